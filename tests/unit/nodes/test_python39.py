"""The pack runs on Python 3.9, as ComfyUI does: it uses no syntax and no name that came later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from comfyui_agent.nodes.pack_builder import build

LATER_NAMES = {
    "typing": "TypeAlias TypeGuard ParamSpec Self Never LiteralString assert_never assert_type NotRequired Required "
    "Unpack TypeVarTuple override",
    "types": "NoneType UnionType EllipsisType",
    "dataclasses": "KW_ONLY",
    "itertools": "pairwise batched",
    "enum": "StrEnum ReprEnum EnumType",
    "contextlib": "aclosing chdir",
    "datetime": "UTC",
    "asyncio": "TaskGroup Runner timeout timeout_at",
    "hashlib": "file_digest",
    "inspect": "get_annotations",
    "tomllib": "load loads",
}
"""Module → names that it has only in later versions."""
LATER_METHODS = {"bit_count", "hardlink_to", "is_junction", "full_match", "add_note"}
LATER_ARGUMENTS = {
    "zip": {"strict"},
    "map": {"strict"},
    "dataclass": {"slots", "kw_only"},
    "field": {"kw_only"},
    "write_text": {"newline"},
    "relative_to": {"walk_up"},
    "rmtree": {"onexc"},
}
BUILT_IN_TYPES = {"int", "str", "float", "bytes", "bool", "list", "dict", "set", "frozenset", "tuple", "type"}
CAPITALISED = re.compile(r"[A-Z][A-Z0-9]*[a-z]\w*")
MODULES = {path: text.decode() for path, text in build().items() if path.endswith(".py")}
FUTURE = "from __future__ import annotations\n"


def faults(source: str) -> list[str]:
    """What a module uses that Python 3.9 does not have, with lines."""
    try:
        tree = ast.parse(source, feature_version=(3, 9))
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    found = [f"line {line}: {what}" for node in _running_code(tree) for line, what in _later(node)]
    if any(getattr(node, "annotation", None) for node in ast.walk(tree)) and FUTURE not in source:
        found.append("line 1: annotations that are evaluated")
    return found


def _running_code(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except annotations and code for type checkers."""
    yield tree
    skipped = [getattr(tree, "returns", None), getattr(tree, "annotation", None)]
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING":
        skipped += tree.body
    for child in ast.iter_child_nodes(tree):
        if child not in skipped:
            yield from _running_code(child)


def _later(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ImportFrom):
        later = LATER_NAMES.get(node.module or "", "").split()
        yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names if alias.name in later)
    elif isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr in LATER_NAMES.get(owner, "").split() or node.attr in LATER_METHODS:
            yield node.lineno, f"{owner}.{node.attr}"
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        later_arguments = LATER_ARGUMENTS.get(name, set())
        yield from ((node.lineno, f"{name}({each.arg}=)") for each in node.keywords if each.arg in later_arguments)
    elif (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and (_is_type(node.left) or _is_type(node.right))
    ):
        yield node.lineno, "X | Y between types"


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.Constant):
        return node.value is None
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in BUILT_IN_TYPES or CAPITALISED.fullmatch(name) is not None


def test_every_module_of_the_pack_runs_on_python_3_9() -> None:
    assert {"__init__.py", "host.py", "core/feeder.py", "shared/domain/values.py"} <= set(MODULES)
    assert {path: found for path, text in MODULES.items() if (found := faults(text))} == {}


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("match a:\n    case 1:\n        pass", "Pattern matching"),
        ("zip(a, b, strict=True)", "zip(strict=)"),
        ("@dataclass(frozen=True, slots=True)\nclass A:\n    pass", "dataclass(slots=)"),
        ("isinstance(a, int | str)", "X | Y between types"),
        ("T = Mapping[str, list[int] | None]", "X | Y between types"),
        ("def f():\n    from typing import Any, TypeAlias", "typing.TypeAlias"),
        ("import asyncio\nasyncio.timeout(3)", "asyncio.timeout"),
        ("(5).bit_count()", ".bit_count"),
    ],
)
def test_what_came_later_is_found(code: str, fault: str) -> None:
    assert any(fault in each for each in faults(FUTURE + code))


def test_what_python_3_9_has_is_fine() -> None:
    code = """
def f(a: int | None, **c: list[int | str]) -> dict[str, int] | None:
    d: int | None = None
if TYPE_CHECKING:
    from typing import TypeAlias
x = re.DOTALL | re.MULTILINE
y = {'a': 1} | {'b': 2}
zip(a, b)
"""
    assert faults(FUTURE + code) == []
    assert faults("def f(a: int | None):\n    pass") == ["line 1: annotations that are evaluated"]
