"""The node pack as ComfyUI takes it: made out of this package, and put into `custom_nodes` whole or not at all.

All of this folder but this module goes along, with those modules of other rooms that it imports. ComfyUI loads the
folder as a package of an odd name, so every import in it is made relative; what is installed needs nothing of E3.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent import __version__

PACKAGE = Path(__file__).parents[1]
ROOT = "comfyui_agent"
DISTRIBUTION = "e3-comfyui-agent"
ROOMS: dict[str, tuple[str, ...]] = {"nodes": (), "domain": ("shared", "domain"), "pictures": ("shared", "pictures")}
"""Where modules of a room go in the pack. Other rooms do not go along."""
NOT_TAKEN = PurePosixPath("nodes/installing.py")
WHOLE_FOLDERS = ("web", "example_workflows")
OTHER_FILES = ("pyproject.toml", "README.md")
LICENCE = "LICENSE"
FROM = re.compile(rb"from\s+[.\w]+\s+import\b")

NAME = "e3-iterator"
TITLE = "E3 Iterator"
FOLDER = "e3_iterator"
CUSTOM_NODES = "custom_nodes"
RECORD = "installed.json"
PART = f"{RECORD}.part"
OUR_PROJECT = re.compile(rf"""^name\s*=\s*["']{NAME}["']""", re.MULTILINE)
ASIDE = re.compile(rf"{FOLDER}\.[0-9a-f]{{8}}\.disabled")
"""A folder that is being made or taken away. ComfyUI leaves names that end so alone."""
JUNCTION = 0xA0000003
MADE_BY_OTHERS = ("__pycache__", ".DS_Store")
COMPILED = (".pyc", ".pyo")


class Unbuildable(Exception):
    """A module that cannot go along: which, and why, in one line."""


class WrongFolder(ValueError):
    """A folder into which no nodes go: why, and which one to give, in one line."""


class Refused(Exception):
    """What is in the way, and what to do, in one line."""


class Changed(Refused):
    """Files of an earlier installation that would be lost."""

    def __init__(self, target: Path, files: list[str]) -> None:
        many = "1 file was" if len(files) == 1 else f"{len(files)} files were"
        remedy = "copy what you want to keep, then give --force to replace them"
        super().__init__(f"{many} changed or added in {target} since it was installed: {remedy}")
        self.files = files


@dataclass(frozen=True)
class Installation:
    """What `install` did."""

    path: Path
    version: str
    files: int
    is_replaced: bool
    """Whether an earlier installation was there and gave way."""
    is_changed: bool  # else the same was there already
    left_behind: tuple[Path, ...] = ()
    """Folders of earlier installations that could not be removed. ComfyUI leaves them alone."""


# What the pack is made of.


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
    if place == NOT_TAKEN or any(part.startswith(".") or part in MADE_BY_OTHERS for part in inner.parts):
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
    if target[0] not in ROOMS or NOT_TAKEN in (whole, *named):
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


# Where it goes.


def find_custom_nodes(folder: Path) -> Path:
    """The folder for nodes of a ComfyUI, or of a base directory. WrongFolder if that is neither."""
    if not folder.exists():
        raise WrongFolder(f"there is no folder {folder}: give ComfyUI's own, where its main.py and {CUSTOM_NODES} are")
    if not folder.is_dir():
        raise WrongFolder(f"{folder} is a file: give ComfyUI's folder, where its main.py and {CUSTOM_NODES} are")
    whole = folder.resolve()
    inner = whole / CUSTOM_NODES
    if inner.is_dir():
        return inner.resolve()
    for above in (whole, *whole.parents):
        if above.name == CUSTOM_NODES:
            raise WrongFolder(f"{folder} is too deep: give the folder above {CUSTOM_NODES}, {above.parent}")
    if (whole / "ComfyUI" / CUSTOM_NODES).is_dir():
        raise WrongFolder(f"{folder} is the folder above ComfyUI's: give {folder / 'ComfyUI'}")
    raise WrongFolder(
        f"{folder} has no folder {CUSTOM_NODES}: give ComfyUI's folder (its main.py is there), or the one that it is "
        f"started with as --base-directory; make {CUSTOM_NODES} in it first if it is new"
    )


def install(folder: Path, *, force: bool = False, package: Path = PACKAGE) -> Installation:
    """Put the pack into a ComfyUI, in place of an earlier one.

    Killed at any moment it leaves a whole pack, or what the next call puts right. After WrongFolder, Refused or OSError
    nothing has changed. `force` gives up what people changed in an earlier installation, and nothing else.
    """
    custom_nodes = find_custom_nodes(folder)
    target = custom_nodes / FOLDER
    files = build(package)
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    record = {"name": NAME, "version": __version__, "files": digests}
    with _alone_in(custom_nodes):
        is_there = _is_there(target)
        is_changed = True
        if is_there:
            before, present = _read_record(target), _files_in(target)
            known = before["files"] if before else {}
            lost = [path for path, digest in present.items() if digest not in (known.get(path), digests.get(path))]
            if lost and not force:
                raise Changed(target, lost)
            is_changed = before != record or present != digests
        if is_changed:
            _replace(target, files, record, is_there=is_there)
        left_behind = tuple(_sweep(custom_nodes))
    return Installation(target, __version__, len(files), is_there and is_changed, is_changed, left_behind)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """While nobody else installs there. The lock ends with the process, however that ends."""
    if os.name == "nt":  # pragma: no cover - folders cannot be locked there
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another e3 nodes install is at work in {folder}: try again when it is through") from None
        except OSError:  # a file system without locks: one person installs at a time
            pass
        yield
    finally:
        os.close(handle)


def _is_there(target: Path) -> bool:
    """Whether an earlier installation is there. Refused for anything else of that name."""
    try:
        facts = target.lstat()
    except FileNotFoundError:
        return False
    if target.is_symlink() or getattr(facts, "st_reparse_tag", 0) == JUNCTION:
        raise Refused(f"{target} is a link: remove it, or install into the ComfyUI that it leads to")
    if not target.is_dir():
        raise Refused(f"{target} is a file: move it away, then install again")
    if not _is_ours(target):
        raise Refused(f"{target} was not made by E3: move it out of {CUSTOM_NODES}, then install again")
    return True


def _is_ours(folder: Path) -> bool:
    if _read_record(folder) is not None:
        return True
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
        return bool(OUR_PROJECT.search((folder / "pyproject.toml").read_text(encoding="utf-8")))
    return False


def _read_record(folder: Path) -> dict[str, Any] | None:
    """What was installed there; None if that is not known."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("name") != NAME or not isinstance(record.get("files"), dict):
        return None
    return record


def _files_in(folder: Path) -> dict[str, str]:
    """Digests of all files there but the record, and but those that programs leave; "" for what is no plain file."""
    found: dict[str, str] = {}
    for above, folders, names in os.walk(folder, onerror=_raise):
        links = [name for name in folders if Path(above, name).is_symlink()]
        folders[:] = [name for name in folders if name not in MADE_BY_OTHERS]
        for name in [*names, *links]:
            path = Path(above, name)
            if name not in MADE_BY_OTHERS and not name.endswith(COMPILED):
                is_plain = path.is_file() and not path.is_symlink()
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_plain else ""
                found[path.relative_to(folder).as_posix()] = digest
    found.pop(RECORD, None)
    return dict(sorted(found.items()))


def _raise(error: OSError) -> None:
    raise error


# Written whole, renamed into place.


def _replace(target: Path, files: Mapping[str, bytes], record: Mapping[str, Any], *, is_there: bool) -> None:
    fresh, earlier = (target.with_name(f"{FOLDER}.{secrets.token_hex(4)}.disabled") for _ in range(2))
    try:
        _write(fresh, files, record)
        if is_there:
            target.rename(earlier)
        fresh.rename(target)
    except BaseException:
        with suppress(OSError):
            if earlier.exists() and not target.exists():
                earlier.rename(target)
        with suppress(OSError):
            _remove(fresh)
        raise
    _sync(target.parent)


def _write(folder: Path, files: Mapping[str, bytes], record: Mapping[str, Any]) -> None:
    """The record first: by it the next run knows a folder that was never finished."""
    folder.mkdir()
    _write_file(folder / PART, json.dumps(record, indent=2).encode() + b"\n")
    (folder / PART).rename(folder / RECORD)
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _write_file(folder / path, content)
    for above in {above for path in files for above in (folder / path).parents if above.is_relative_to(folder)}:
        _sync(above)


def _write_file(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    if os.name == "nt":  # pragma: no cover - folders cannot be synced there
        return
    with suppress(OSError):  # some file systems cannot
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(custom_nodes: Path) -> Iterator[Path]:
    """Remove what gave way, and what earlier runs that were killed have left; those that could not be removed."""
    for folder in sorted(custom_nodes.iterdir()):
        if not ASIDE.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
            continue
        try:
            if _is_ours(folder) or {path.name for path in folder.iterdir()} <= {PART}:
                _remove(folder)
        except OSError:
            yield folder


def _remove(folder: Path) -> None:
    """What says that it is ours goes last: whoever is killed in between leaves a folder that the next run knows."""
    marks = [folder / "pyproject.toml", folder / RECORD]
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path not in marks:
            path.unlink()
    for path in marks:
        path.unlink(missing_ok=True)
    folder.rmdir()
