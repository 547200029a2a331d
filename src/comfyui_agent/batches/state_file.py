"""The files of a burst: its folder of prompts, and its state file, which is always replaced as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.config.validation import shown_path
from comfyui_agent.domain.bursts import ItemStatus
from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.domain.texts import is_whole
from comfyui_agent.files.folder import sync_folder

LARGEST = 256 * 1024 * 1024
MOST_KEPT_ASIDE = 1_000
OURS = ("result", "error")
"""Keys that E3 adds to an item."""
ENDING = ".txt"
LARGEST_PROMPT = 1024 * 1024


class BadState(Exception):
    """A state file with a wrong entry: what is wrong, and what to write instead. The file stays as it is."""


class BadPrompt(Exception):
    """A prompt file that cannot be used. The message says why and what to do."""


@dataclass(frozen=True)
class Entry:
    """One item of the file. `more` are keys of other programs, which are kept."""

    word: ItemStatus
    subfolder: str
    filename: str
    more: Mapping[str, Any] = field(default_factory=dict)
    is_told: bool = False
    """Whether E3 wrote how it ended. Its status may have been changed since."""


@dataclass(frozen=True)
class State:
    """The entries of a file and the digest of its bytes. An unreadable file was moved to `kept_aside`."""

    entries: Mapping[str, Entry]
    digest: str
    kept_aside: Path | None = None


def read_state(path: Path, *, keeps_aside: bool = True) -> State:
    """Read the file. No file means no entries. A file that is not JSON is moved aside."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadState(f"{shown_path(path)} is too large for a state file")
        data = path.read_bytes()
    except FileNotFoundError:
        return State({}, "")
    except OSError as error:
        raise BadState(f"{shown_path(path)} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return State({}, "", kept_aside=_keep_aside(path) if keeps_aside else None)
    return State({key: _entry(path, key, item) for key, item in document.items()}, digest_of(data))


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _keep_aside(path: Path) -> Path:
    for number in range(1, MOST_KEPT_ASIDE):
        kept = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak-{number}")
        if not kept.exists():
            return path.rename(kept)
    raise BadState(f"{shown_path(path)} cannot be read, and so are {MOST_KEPT_ASIDE} copies of it: remove them")


def _entry(path: Path, key: str, item: Any) -> Entry:
    def bad(what: str) -> BadState:
        return BadState(f"{shown_path(path)}: {key[:200]!r}: {what}")

    if not key or "\0" in key or not is_whole(key):
        raise bad("is no path: write the absolute path of a prompt")
    if not isinstance(item, dict):
        raise bad("is no item: write status, subfolder and filename")
    try:
        word = ItemStatus(item.get("status"))
    except ValueError:
        raise bad(f"status {item.get('status')!r:.60} is not pending, completed or failed") from None
    subfolder, filename = item.get("subfolder", ""), item.get("filename") or os.path.basename(key)  # noqa: PTH119
    if not isinstance(subfolder, str) or not isinstance(filename, str):
        raise bad("subfolder and filename are texts")
    parts = PurePosixPath(subfolder).parts
    if subfolder.startswith("/") or ".." in parts or "\\" in subfolder or "\0" in subfolder + filename:
        raise bad(f"subfolder {subfolder[:60]!r} leads out of the output folder")
    if not is_whole(subfolder + filename):
        raise bad("subfolder and filename hold half characters")
    if not filename or filename in (".", "..") or "/" in filename or "\\" in filename:
        raise bad(f"filename {filename[:60]!r} is no name of a file")
    known = {"status", "subfolder", "filename", *OURS}
    more = {name: value for name, value in item.items() if name not in known}
    return Entry(word, subfolder, filename, more, is_told=any(name in item for name in OURS))


def state_bytes(entries: Mapping[str, Entry]) -> bytes:
    document = {
        key: {"status": entry.word.value, "subfolder": entry.subfolder, "filename": entry.filename, **entry.more}
        for key, entry in entries.items()
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return ((text if is_whole(text) else json.dumps(document, indent=2)) + "\n").encode("utf-8")


def write_state(path: Path, data: bytes) -> None:
    """Replace the file. It is on disk when this returns. Readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".e3part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105 - the other half of mkstemp
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers left beside the file. The caller must hold the lock of the burst."""
    for stale in path.parent.glob(f".{path.name}.*.e3part"):
        with contextlib.suppress(OSError):
            stale.unlink()


def find_prompts(folder: Path) -> Iterator[tuple[str, Entry]]:
    """All prompt files below a folder in natural order: absolute path, and first entry of the state file."""
    root = Path(os.path.abspath(folder))
    found = []
    for above, folders, files in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = Path(above).relative_to(root).as_posix()
        subfolder = "" if inner == "." else inner
        found += [(subfolder, name) for name in files if name.lower().endswith(ENDING) and not name.startswith(".")]
    for subfolder, name in sorted(found, key=lambda each: (natural_key(each[0]), natural_key(each[1]))):
        yield str(root / subfolder / name), Entry(ItemStatus.PENDING, subfolder, name)


def with_new(entries: Mapping[str, Entry], folder: Path) -> dict[str, Entry]:
    """The entries of a state file, and new ones for the other prompts of the folder."""
    real = {os.path.realpath(key) for key in entries}
    fresh = {
        key: entry
        for key, entry in find_prompts(folder)
        if key not in entries and is_whole(key) and os.path.realpath(key) not in real
    }
    return {**entries, **fresh}


def nameless(folder: Path) -> list[str]:
    """Prompt files whose names cannot be encoded, so that no state file can hold them."""
    return [key for key, _ in find_prompts(folder) if not is_whole(key)]


def read_prompt(path: str) -> str:
    """The text of a prompt file. BadPrompt if it cannot be one."""
    try:
        if not Path(path).is_file() and Path(path).exists():
            raise BadPrompt(f"{path} is no file: put a text file there")
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_PROMPT + 1)
    except FileNotFoundError:
        raise BadPrompt(f"{path} is not there any more: put it back, or take it out of the state file") from None
    except (OSError, ValueError) as error:
        raise BadPrompt(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_PROMPT:
        raise BadPrompt(f"{path} is too large for a prompt: at most {LARGEST_PROMPT // 1024} KB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadPrompt(f"{path}:{line} is not UTF-8 text: save it as UTF-8") from None
    text = text.strip()
    if not text:
        raise BadPrompt(f"{path} is empty: write a prompt into it")
    if "\0" in text:
        raise BadPrompt(f"{path} is not a text file")
    return text
