"""Puts the node pack into ComfyUI's `custom_nodes`, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.nodes.pack_builder import PACKAGE, build

NAME = "e3-iterator"
TITLE = "E3 Iterator"
FOLDER = "e3_iterator"
CUSTOM_NODES = "custom_nodes"
RECORD = "installed.json"
MARKS = ("pyproject.toml", RECORD)
"""The files that show that a folder is ours."""
OUR_PROJECT = re.compile(rf"""^name\s*=\s*["']{NAME}["']""", re.MULTILINE)
ASIDE = re.compile(rf"{FOLDER}\.[0-9a-f]{{8}}\.disabled")
"""A folder that is being written or removed. ComfyUI ignores folders whose names end so."""
MADE_BY_OTHERS = {"__pycache__", ".DS_Store"}
COMPILED = (".pyc", ".pyo")
JUNCTION = 0xA0000003


class WrongFolder(ValueError):
    """A folder that is not ComfyUI's. The message says which one to give."""


class Refused(Exception):
    """Something is in the way. The message says what, and what to do."""


class Changed(Refused):
    """Files of an earlier installation were changed and would be lost."""

    def __init__(self, target: Path, files: list[str]) -> None:
        many = "1 file was" if len(files) == 1 else f"{len(files)} files were"
        remedy = "copy what you want to keep, then give --force to replace them"
        super().__init__(f"{many} changed or added in {target} since it was installed: {remedy}")
        self.files = files


@dataclass(frozen=True)
class Installation:
    path: Path
    version: str
    files: int
    is_replaced: bool
    """An earlier installation was there and was replaced."""
    is_changed: bool
    """False if the same pack was there already."""
    left_behind: tuple[Path, ...]
    """Folders of earlier installations that could not be removed. ComfyUI ignores them."""


def find_custom_nodes(folder: Path) -> Path:
    """The `custom_nodes` folder of a ComfyUI or of its base directory; WrongFolder if there is none."""
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
    """Put the pack into a ComfyUI, in place of an earlier one. A killed call leaves a whole pack, or the next one
    repairs it. After an error nothing has changed. `force` overwrites files that people changed."""
    custom_nodes = find_custom_nodes(folder)
    target = custom_nodes / FOLDER
    files = build(package)
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    record = {"name": NAME, "version": __version__, "files": digests}
    with _alone_in(custom_nodes):
        is_there = _is_installed(target)
        is_changed = True
        if is_there:
            before, present = _read_record(target), _digests(target)
            known = before["files"] if before else {}
            lost = [path for path, digest in present.items() if digest not in (known.get(path), digests.get(path))]
            if lost and not force:
                raise Changed(target, lost)
            is_changed = before != record or present != digests
        if is_changed:
            _replace(target, {RECORD: json.dumps(record, indent=2).encode() + b"\n", **files}, is_there)
        left_behind = tuple(_remove_leftovers(custom_nodes))
    return Installation(target, __version__, len(files), is_there and is_changed, is_changed, left_behind)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Refused while another process installs there. The lock ends with its process."""
    if os.name == "nt":  # folders cannot be locked there
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


def _is_installed(target: Path) -> bool:
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
    with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError, RecursionError):
        record = json.loads((folder / RECORD).read_bytes())
        if isinstance(record, dict) and record.get("name") == NAME and isinstance(record.get("files"), dict):
            return record
    return None


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every installed file, except the record and caches. A link has the digest ""."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.suffix in COMPILED or not MADE_BY_OTHERS.isdisjoint(inner.parts) or inner.as_posix() == RECORD:
            continue
        if path.is_symlink():
            found[inner.as_posix()] = ""
        elif not path.is_dir():
            found[inner.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def _replace(target: Path, files: Mapping[str, bytes], is_there: bool) -> None:
    """Write a new folder, then rename it into place. The record comes first in `files`: by it the next call knows a
    folder that was not finished."""
    fresh, earlier = (target.with_name(f"{FOLDER}.{secrets.token_hex(4)}.disabled") for _ in range(2))
    try:
        for path, content in files.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            with (fresh / path).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
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


def _remove_leftovers(custom_nodes: Path) -> Iterator[Path]:
    """Remove the replaced folder, and those of calls that were killed. Gives those that could not be removed."""
    for folder in sorted(custom_nodes.iterdir()):
        if not ASIDE.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
            continue
        try:
            if _is_ours(folder) or {path.name for path in folder.iterdir()} <= {RECORD}:
                _remove(folder)
        except OSError:
            yield folder


def _remove(folder: Path) -> None:
    """Remove a folder of ours. What shows that it is ours goes last, so that a killed call leaves a known folder."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name in MARKS):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.rmdir()
