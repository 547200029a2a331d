"""What is installed runs on Python 3.9, as ComfyUI does: no syntax and no name that came later."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator

import pytest

from comfyui_agent.nodes.pack_builder import build

VERSION = (3, 9)
LATER: dict[str, str] = {
    "typing": """TypeAlias TypeGuard Concatenate ParamSpec ParamSpecArgs ParamSpecKwargs is_typeddict Self Never
        LiteralString assert_never assert_type reveal_type NotRequired Required Unpack TypeVarTuple dataclass_transform
        get_overloads clear_overloads override TypeAliasType TypeIs ReadOnly NoDefault get_protocol_members is_protocol
        """,
    "types": "NoneType EllipsisType NotImplementedType UnionType get_original_bases CapsuleType",
    "dataclasses": "KW_ONLY",
    "itertools": "pairwise batched",
    "enum": "StrEnum ReprEnum EnumType EnumCheck FlagBoundary verify member nonmember global_enum property STRICT",
    "contextlib": "aclosing chdir",
    "datetime": "UTC",
    "asyncio": "TaskGroup Runner timeout timeout_at Barrier eager_task_factory",
    "inspect": "get_annotations getmembers_static getasyncgenstate markcoroutinefunction BufferFlags",
    "statistics": "covariance correlation linear_regression kde",
    "math": "cbrt exp2 sumprod fma",
    "operator": "call",
    "hashlib": "file_digest",
    "sys": "stdlib_module_names orig_argv exception monitoring activate_stack_trampoline",
    "logging": "getLevelNamesMapping getHandlerByName getHandlerNames",
    "re": "NOFLAG PatternError",
    "os": "EFD_NONBLOCK eventfd splice login_tty process_cpu_count",
    "threading": "gettrace getprofile setprofile_all_threads settrace_all_threads",
    "copy": "replace",
}
"""Module → names that it has only in later versions."""
LATER_MODULES = {
    "tomllib",
    "wsgiref.types",
    "importlib.resources.abc",
    "compression",
    "annotationlib",
    "string.templatelib",
}
LATER_BUILTINS = {
    "aiter",
    "anext",
    "ExceptionGroup",
    "BaseExceptionGroup",
    "EncodingWarning",
    "PythonFinalizationError",
}
LATER_METHODS = {"bit_count", "hardlink_to", "is_junction", "full_match", "from_uri", "add_note"}
"""Of numbers, paths and exceptions; nothing else here has such names."""
LATER_ARGUMENTS = {
    "zip": {"strict"},
    "map": {"strict"},
    "dataclass": {"slots", "kw_only", "match_args", "weakref_slot"},
    "field": {"kw_only", "doc"},
    "make_dataclass": {"slots", "kw_only", "match_args", "weakref_slot", "module"},
    "bisect": {"key"},
    "bisect_left": {"key"},
    "bisect_right": {"key"},
    "insort": {"key"},
    "insort_left": {"key"},
    "insort_right": {"key"},
    "glob": {"root_dir", "dir_fd", "include_hidden", "case_sensitive", "recurse_symlinks"},
    "rglob": {"case_sensitive", "recurse_symlinks"},
    "relative_to": {"walk_up"},
    "exists": {"follow_symlinks"},
    "is_file": {"follow_symlinks"},
    "is_dir": {"follow_symlinks"},
    "stat": {"follow_symlinks"},
    "chmod": {"follow_symlinks"},
    "write_text": {"newline"},
    "read_text": {"newline"},
    "run": {"process_group", "loop_factory"},
    "Popen": {"process_group"},
    "TemporaryDirectory": {"ignore_cleanup_errors", "delete"},
    "NamedTemporaryFile": {"delete_on_close"},
    "rmtree": {"onexc", "dir_fd"},
    "shutdown_default_executor": {"timeout"},
    "create_task": {"context"},
    "signature": {"eval_str", "globals", "locals"},
}
"""What is called, by its last name → arguments that came later."""
TYPES = {
    "int",
    "str",
    "float",
    "bytes",
    "bool",
    "list",
    "dict",
    "set",
    "frozenset",
    "tuple",
    "type",
    "object",
    "complex",
}
CAPITALISED = re.compile(r"[A-Z][A-Z0-9]*[a-z]\w*")
LATER_PATTERN = re.compile(r"\(\?>|[)\]}\w.][*+?}]\+")
"""Groups and repetitions that never give anything back."""
MODULES = {path: text.decode() for path, text in build().items() if path.endswith(".py")}


def faults(source: str) -> list[str]:
    """What a module has that Python 3.9 has not, each with its line."""
    try:
        tree = ast.parse(source, feature_version=VERSION)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    found = [f"line {line}: {what}" for line, what in (*_in_code(tree), *_grouped_with(source, tree))]
    if _has_annotations(tree) and not _has_future(tree):
        found.append("line 1: annotations that are looked at when it runs")
    return sorted(set(found))


def _in_code(tree: ast.Module) -> Iterator[tuple[int, str]]:
    imported = _imported(tree)
    for node in _that_run(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _of_import(node)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.BitOr)
            and (_is_type(node.left) or _is_type(node.right))
        ):
            yield node.lineno, "X | Y between types"
        elif isinstance(node, ast.Attribute):
            module = imported.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
            if node.attr in LATER.get(module, "").split():
                yield node.lineno, f"{module}.{node.attr}"
            elif not module and node.attr in LATER_METHODS:
                yield node.lineno, f".{node.attr}"
            elif not module and node.attr == "walk":
                yield node.lineno, "Path.walk"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in LATER_BUILTINS:
            yield node.lineno, node.id


def _that_run(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but annotations, and but what is there for type checkers alone."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        skipped: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            skipped = [node.returns]
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            skipped = [node.annotation]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skipped = list(node.body)
        waiting += [child for child in ast.iter_child_nodes(node) if child not in skipped]


def _imported(tree: ast.Module) -> dict[str, str]:
    """The names of modules in a module, and which they are."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names})
    return found


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[int, str]]:
    module = node.module if isinstance(node, ast.ImportFrom) and not node.level else None
    for alias in node.names:
        if module and (alias.name in LATER.get(module, "").split() or f"{module}.{alias.name}" in LATER_MODULES):
            yield node.lineno, f"{module}.{alias.name}"
        name = module or (alias.name if isinstance(node, ast.Import) else "")
        if any(name == later or name.startswith(f"{later}.") for later in LATER_MODULES):
            yield node.lineno, name


def _of_call(node: ast.Call) -> Iterator[tuple[int, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    for keyword in node.keywords:
        if keyword.arg in LATER_ARGUMENTS.get(name, ()):
            yield node.lineno, f"{name}({keyword.arg}=)"
    if name in ("to_bytes", "from_bytes") and len(node.args) + len(node.keywords) < 2:
        yield node.lineno, f"{name} without a byte order"
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id == "re" and node.args:
        texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
        if any(isinstance(text, str) and LATER_PATTERN.search(text) for text in texts):
            yield node.lineno, "a pattern that never gives back"


def _is_type(node: ast.expr) -> bool:
    """Whether this looks like a type: a built-in one, a capitalised name, None, or one of those with brackets."""
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in TYPES or CAPITALISED.fullmatch(name) is not None


def _grouped_with(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`with (a as b, c as d):` - a bracket that is around all of its items, and is no part of the first."""
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith))]
    if not statements:
        return
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in (tokenize.NL, tokenize.COMMENT)
    ]
    places = {token.start: number for number, token in enumerate(tokens)}
    for node in statements:
        place = places[node.lineno, node.col_offset] + (2 if isinstance(node, ast.AsyncWith) else 1)
        is_more = len(node.items) > 1 or node.items[0].optional_vars is not None
        if tokens[place].string != "(" or not is_more:
            continue
        depth = 0
        for end in range(place, len(tokens)):
            depth += {"(": 1, ")": -1}.get(tokens[end].string, 0)
            if depth == 0:
                break
        if tokens[end + 1].string == ":":
            yield node.lineno, "brackets around with"


def _has_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.AnnAssign)
        or (isinstance(node, ast.arg) and node.annotation is not None)
        or (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None)
        for node in ast.walk(tree)
    )


def _has_future(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )


def test_every_module_of_the_pack_runs_on_python_3_9() -> None:
    assert {path: found for path, text in MODULES.items() if (found := faults(text))} == {}


def test_the_modules_that_matter_are_among_them() -> None:
    assert {"__init__.py", "host.py", "core/feeder.py", "shared/domain/values.py"} <= set(MODULES)
    assert not {"installing.py", "packing.py"} & set(MODULES)


def test_what_came_later_is_seen() -> None:
    cases = [
        ("match a:\n    case 1:\n        pass", "Pattern matching"),
        ("with (open(a) as b, open(c) as d):\n    pass", "brackets around with"),
        ("with (open(a) as b):\n    pass", "brackets around with"),
        ("with (\n    a(),\n    b(),  # both\n):\n    pass", "brackets around with"),
        ("async def f():\n    async with (a as b, c):\n        pass", "brackets around with"),
        ("zip(a, b, strict=True)", "zip(strict=)"),
        ("x = [*map(f, a, b, strict=False)]", "map(strict=)"),
        ("@dataclass(frozen=True, slots=True)\nclass A:\n    pass", "dataclass(slots=)"),
        ("@dataclasses.dataclass(kw_only=True)\nclass A:\n    pass", "dataclass(kw_only=)"),
        ("a = field(default=1, kw_only=True)", "field(kw_only=)"),
        ("Name = int | None", "X | Y between types"),
        ("isinstance(a, int | str)", "X | Y between types"),
        ("Alias = list[int] | Sequence[str]", "X | Y between types"),
        ("def f(a=int | None):\n    pass", "X | Y between types"),
        ("cast('str | None' | None, a)", "X | Y between types"),
        ("T = Mapping[str, int | None]", "X | Y between types"),
        ("Links = collections.abc.Mapping | None", "X | Y between types"),
        ("class A(Base[int | str]):\n    pass", "X | Y between types"),
        ("from typing import Any, TypeAlias", "typing.TypeAlias"),
        ("from typing import Self", "typing.Self"),
        ("from typing import assert_never", "typing.assert_never"),
        ("import typing\nx: typing.Any = typing.ParamSpec('x')", "typing.ParamSpec"),
        ("import typing as t\nx = t.override", "typing.override"),
        ("from itertools import pairwise", "itertools.pairwise"),
        ("import itertools\nitertools.batched(a, 2)", "itertools.batched"),
        ("def f():\n    from enum import StrEnum", "enum.StrEnum"),
        ("from types import NoneType", "types.NoneType"),
        ("from datetime import UTC", "datetime.UTC"),
        ("import asyncio\nasyncio.timeout(3)", "asyncio.timeout"),
        ("import asyncio\nasync def f():\n    async with asyncio.TaskGroup():\n        pass", "asyncio.TaskGroup"),
        ("from contextlib import chdir", "contextlib.chdir"),
        ("import hashlib\nhashlib.file_digest(a, b)", "hashlib.file_digest"),
        ("import tomllib", "tomllib"),
        ("from tomllib import loads", "tomllib"),
        ("(5).bit_count()", ".bit_count"),
        ("path.hardlink_to(other)", ".hardlink_to"),
        ("error.add_note('x')", ".add_note"),
        ("list(folder.walk())", "Path.walk"),
        ("list(Path(a).walk())", "Path.walk"),
        ("path.write_text('x', newline='')", "write_text(newline=)"),
        ("path.exists(follow_symlinks=False)", "exists(follow_symlinks=)"),
        ("insort(a, b, key=len)", "insort(key=)"),
        ("raise ExceptionGroup('x', [])", "ExceptionGroup"),
        ("async def f():\n    await anext(a)", "anext"),
        ("import sys\nsys.stdlib_module_names", "sys.stdlib_module_names"),
        ("(5).to_bytes()", "to_bytes without a byte order"),
        ("import re\nre.compile(r'(?>a)')", "a pattern that never gives back"),
        ("import re\nre.compile(rf'[a-z]++{x}')", "a pattern that never gives back"),
        ("def f(a: int | None) -> None:\n    pass", "annotations that are looked at"),
        ("a: int | None = None", "annotations that are looked at"),
    ]
    if sys.version_info >= (3, 11):  # earlier ones cannot read it either
        cases.append(("try:\n    pass\nexcept* ValueError:\n    pass", "Exception groups"))
    for text, what in cases:
        future = "" if what.startswith("annotations") else "from __future__ import annotations\n"
        found = faults(future + text)
        assert any(what in each for each in found), (text, what, found)


def test_what_python_3_9_has_is_left_alone() -> None:
    texts = [
        "def f(a: int | None, *b: str | int, **c: list[int | str]) -> dict[str, int] | None:\n    d: int | None = None",
        "class A:\n    a: int | None = None",
        "x = re.DOTALL | re.MULTILINE",
        "x = TRUE | FALSE",
        "x = {'a': 1} | {'b': 2}",
        "x = [1] if a | b else 2",
        "class A(dict[str, int]):\n    pass",
        "with open(a) as b, open(c) as d:\n    pass",
        "with (open(a) if b else c) as d:\n    pass",
        "with (a).b as c:\n    pass",
        "with (a):\n    pass",
        "import os\nos.walk(a)",
        "import ast\nast.walk(a)",
        "text.removeprefix('a')",
        "zip(a, b)",
        "field(default_factory=dict)",
        "if TYPE_CHECKING:\n    from typing import TypeAlias, Self",
        "from typing import Any, NamedTuple, NewType, Protocol, Annotated, Literal",
        "from functools import cache, cached_property",
        "import asyncio\nasyncio.to_thread(f)",
        "import re\nre.compile(r'[-+]?[0-9]+(?:[eE][-+]?[0-9]{1,4})?')",
        "(5).to_bytes(2, 'big')",
        "import math\nmath.lcm(2, 3)",
    ]
    future = "from __future__ import annotations\n"
    assert {text: found for text in texts if (found := faults(future + text))} == {}


@pytest.mark.parametrize("path", ["host.py", "core/prompt_rewriting.py", "shared/domain/values.py"])
def test_a_fault_is_seen_deep_inside_of_a_real_module(path: str) -> None:
    """The same faults, put at the end of functions of the pack."""
    lines = MODULES[path].splitlines(keepends=True)
    place = max(number for number, line in enumerate(lines) if line.startswith("    return "))
    for fault in ("zip(a, b, strict=True)", "x = int | None", "(5).bit_count()", "from typing import TypeAlias"):
        assert faults("".join([*lines[:place], f"    {fault}\n", *lines[place:]])) != []
