"""Looking at the folder of job files without being led astray: links are not followed, pipes are not waited for."""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import FOLDERS

ENDINGS = (".yaml", ".yml")
REJECTED = ".rejected"
LARGEST = 1024 * 1024
SETTLED_SECONDS = 0.3
"""A file that was left alone for so long is whole."""
NOT_FOLLOWED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Signature = tuple[int, int, int, int]
"""What changes when a file does: time of writing, size, inode, time of any change."""


class Unsettled(Exception):
    """The file is gone, or was changed while it was read: look again later."""


class Refused(Exception):
    """A file that is not read at all: why."""


class NoFolder(Exception):
    """There is no folder to watch: what to do."""


@dataclass
class Sight:
    files: dict[str, Signature] = field(default_factory=dict)
    folders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Each folder, and which one it is: one that was made anew is another."""
    rejected: list[str] = field(default_factory=list)
    oddities: dict[str, str] = field(default_factory=dict)
    """What cannot be used, and why."""


def signature_of(found: os.stat_result) -> Signature:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns


def is_job_file(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def make_folders(workspace: Workspace) -> None:
    """Create the folders that are missing. NoFolder if this is no workspace; Complaints about `workflows.yaml`."""
    folder = workspace.processing
    if not folder.is_dir() and workspace.config is None:
        missing = f"there is no workspace in {workspace.root}: it has no config/global_config.yaml"
        raise NoFolder(f"{missing}. Make one with e3 init, or name one with -C")
    for base in (folder, workspace.root / workspace.settings.paths.jobs_finished):
        for kind in sorted(set(FOLDERS.values())):
            try:
                (base / kind).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise NoFolder(f"the folder {base / kind} cannot be made: {error.strerror}") from None
            if not os.access(base / kind, os.R_OK | os.W_OK | os.X_OK):
                raise NoFolder(f"the folder {base / kind} cannot be used: give yourself the right to write there")
    Workflows(workspace).refresh()


def look(folder: Path) -> Sight:
    """Every job file below a folder. Folders that cannot be read are oddities, a folder that is gone is empty."""
    sight = Sight()
    folders = [str(folder)]
    while folders:
        here = folders.pop()
        try:
            own = os.stat(here)  # noqa: PTH116 - a text
            sight.folders[here] = own.st_dev, own.st_ino
            with os.scandir(here) as entries:
                folders += [found for entry in entries if (found := _see(entry, sight))]
        except FileNotFoundError:
            continue
        except OSError as error:
            sight.oddities[here] = f"it cannot be read: {error.strerror}"
    return sight


def _see(entry: os.DirEntry[str], sight: Sight) -> str | None:
    """Note one entry; its path if it is a folder to look into."""
    if entry.name.startswith("."):
        return None
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112 - a text
            sight.oddities[entry.path] = "it is a link to a folder, which is not followed: set paths.jobs_processing"
        elif not is_folder and entry.name.endswith(REJECTED):
            sight.rejected.append(entry.path)
        elif is_folder or is_job_file(entry.name):
            trouble = trouble_with(entry.name)
            if trouble:
                sight.oddities[entry.path] = trouble
            elif is_folder:
                return entry.path
            else:
                sight.files[entry.path] = signature_of(entry.stat(follow_symlinks=False))
    except OSError:  # gone meanwhile
        pass
    return None


def is_watched(path: str, folder: str) -> bool:
    """Whether a path is a job file below a folder, in no folder that is skipped."""
    parts = Path(path.removeprefix(folder).strip(os.sep)).parts
    return is_job_file(parts[-1]) and not any(part.startswith(".") or trouble_with(part) for part in parts)


def trouble_with(name: str) -> str:
    """Why a file of this name cannot be a job; empty if it can."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "its name holds control characters or is not UTF-8: rename it"
    return ""


def is_gone(path: str) -> bool:
    """Whether there is nothing at a path; not if one may not look, or the drive does not answer."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def sign(path: str) -> Signature | None:
    """The signature of one file; None if it is gone."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return None if stat.S_ISDIR(found.st_mode) else signature_of(found)


def read_whole(path: str, signature: Signature | None = None, largest: int = LARGEST) -> bytes:
    """The bytes of a plain file, without waiting for them: Refused if it is no such file, Unsettled if it changes."""
    try:
        handle = os.open(path, os.O_RDONLY | NOT_FOLLOWED)
    except FileNotFoundError:
        raise Unsettled from None
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114 - a text, thousands of times
            raise Refused("it is a link: put the file itself here") from None
        raise Refused(f"it cannot be read: {error.strerror}") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise Refused("it is not a file")
    with os.fdopen(handle, "rb") as file:
        if signature is not None and signature_of(found) != signature:
            raise Unsettled
        if found.st_size > largest:
            raise Refused(f"it is {found.st_size / 1024**2:,.1f} MB: a job file has at most {largest / 1024**2:.0f} MB")
        try:
            data = file.read(largest + 1)
        except OSError as error:
            raise Refused(f"it cannot be read: {error.strerror}") from None
        if signature is not None and (len(data) != found.st_size or signature_of(os.fstat(handle)) != signature):
            raise Unsettled
    return data


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
