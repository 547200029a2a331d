"""What the node pack is made of: this folder, and those modules of other rooms that it imports.

ComfyUI loads the pack as a package of an odd name, so every import in it is made relative; it needs nothing of E3.
This module and the one that installs the pack stay behind.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath

PACKAGE = Path(__file__).parents[1]
ROOT = "comfyui_agent"
DISTRIBUTION = "e3-comfyui-agent"
ROOMS: dict[str, tuple[str, ...]] = {"nodes": (), "domain": ("shared", "domain"), "pictures": ("shared", "pictures")}
"""Where modules of a room go in the pack. Other rooms do not go along."""
NOT_TAKEN = (PurePosixPath("nodes/pack_builder.py"), PurePosixPath("nodes/installer.py"))
WHOLE_FOLDERS = ("web", "example_workflows")
OTHER_FILES = ("pyproject.toml", "README.md")
LICENCE = "LICENSE"
FROM = re.compile(rb"from\s+[.\w]+\s+import\b")
MADE_BY_OTHERS = ("__pycache__", ".DS_Store")
COMPILED = (".pyc", ".pyo")


class Unbuildable(Exception):
    """A module that cannot go along: which, and why, in one line."""


def build(package: Path = PACKAGE) -> dict[str, bytes]:
    """Every file of the pack by its path in it. Nothing in it imports E3; the same package gives the same bytes."""
    files: dict[str, bytes] = {}
    modules: list[PurePosixPath] = []
    for path in sorted((package / "nodes").rglob("*")):
        place = PurePosixPath(path.relative_to(package).as_posix())
        if not path.is_file() or not _is_taken(place):
            continue
        if place.suffix == ".py":
            modules.append(place)
        else:
            files[_place(place).as_posix()] = path.read_bytes()
    seen: set[PurePosixPath] = set()
    while modules:
        module = modules.pop()
        if module not in seen:
            seen.add(module)
            files[_place(module).as_posix()] = _relocate(package, module, modules)
    for folder in {above for path in files for above in PurePosixPath(path).parents if above.parts[:1] == ("shared",)}:
        files[f"{folder}/__init__.py"] = b'"""What E3 and its nodes in ComfyUI share."""\n'
    with suppress(metadata.PackageNotFoundError):
        licence = metadata.distribution(DISTRIBUTION).read_text(f"licenses/{LICENCE}")
        files.update({LICENCE: licence.encode()} if licence else {})
    _check_imports(files)
    return dict(sorted(files.items()))


def _is_taken(place: PurePosixPath) -> bool:
    inner = place.relative_to("nodes")
    if place in NOT_TAKEN or any(part.startswith(".") or part in MADE_BY_OTHERS for part in inner.parts):
        return False
    if inner.parts[0] in WHOLE_FOLDERS:
        return inner.suffix not in COMPILED
    return inner.suffix == ".py" or inner.as_posix() in OTHER_FILES


def _place(module: PurePosixPath) -> PurePosixPath:
    """Where a file of the package goes in the pack."""
    room, *inner = module.parts
    return PurePosixPath(*ROOMS[room], *inner)


def _relocate(package: Path, module: PurePosixPath, wanted: list[PurePosixPath]) -> bytes:
    """The text of a module for its place in the pack; modules that it imports are added to `wanted`."""
    source = (package / module).read_bytes()
    lines = source.splitlines(keepends=True)
    nodes = ast.walk(ast.parse(source, str(module)))
    found = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        target = _target(node, module)
        if target is None:
            continue
        imported = _modules_of(package, target, node)
        line = lines[node.lineno - 1]
        start = FROM.match(line, node.col_offset)
        if not imported or not start:
            reason = "not on one line" if imported else f"{'.'.join((ROOT, *target))} is no module that can go along"
            raise Unbuildable(f"{module}, line {node.lineno}: {reason}")
        wanted.extend(imported)
        relative = f"from {_relative(_place(module), _place(PurePosixPath(*target)))} import".encode()
        lines[node.lineno - 1] = line[: start.start()] + relative + line[start.end() :]
    return b"".join(lines)


def _target(node: ast.Import | ast.ImportFrom, module: PurePosixPath) -> tuple[str, ...] | None:
    """The path in this package that an import names; None for imports from elsewhere."""
    if isinstance(node, ast.Import):
        if any(alias.name.split(".")[0] == ROOT for alias in node.names):
            raise Unbuildable(f"{module}, line {node.lineno}: only `from {ROOT}.… import …` can be made relative")
        return None
    named = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        folder = module.parent.parts
        named = (ROOT, *folder[: len(folder) - node.level + 1], *named)
    if named[0] != ROOT:
        return None
    if len(named) == 1:
        raise Unbuildable(f"{module}, line {node.lineno}: {ROOT} itself does not go along")
    return named[1:]


def _modules_of(package: Path, target: tuple[str, ...], node: ast.Import | ast.ImportFrom) -> list[PurePosixPath]:
    """The modules behind an import: the one it names, or those that it takes out of a package. None: it cannot be."""
    whole, start = PurePosixPath(*target).with_suffix(".py"), PurePosixPath(*target, "__init__.py")
    named = [PurePosixPath(*target, f"{alias.name}.py") for alias in node.names]
    if target[0] not in ROOMS or {whole, *named} & set(NOT_TAKEN):
        return []
    if (package / whole).is_file():
        return [whole]
    if all((package / place).is_file() for place in named):
        return named
    return [start] if target[0] == "nodes" and (package / start).is_file() else []


def _relative(importer: PurePosixPath, target: PurePosixPath) -> str:
    """`..core.feeding`: a module as another one of the pack names it."""
    here, there = importer.parent.parts, target.parts
    common = 0
    while common < min(len(here), len(there)) and here[common] == there[common]:
        common += 1
    return "." * (len(here) - common + 1) + ".".join(there[common:])


def _check_imports(files: Mapping[str, bytes]) -> None:
    """The last word: no import of E3 is left, in a function or for the type checker neither."""
    for path, text in files.items():
        for node in ast.walk(ast.parse(text, path)) if path.endswith(".py") else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.split(".")[0] == ROOT for name in names):
                raise Unbuildable(f"{path} still imports {ROOT} after its imports were rewritten")
