"""A folder of prompts: text files, also in subfolders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from comfyui_agent.batches.state_file import Entry
from comfyui_agent.domain.bursts import ItemStatus
from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.domain.texts import is_whole

ENDING = ".txt"
LARGEST_PROMPT = 1024 * 1024


class BadPrompt(Exception):
    """A prompt file that cannot be used. The message says why and what to do."""


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
