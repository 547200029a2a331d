"""Texts of a workspace that inputs name: wildcards, a line each in `wildcards/*.txt`, and prompts in `prompts/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comfyui_agent.domain.texts import suggest

WILDCARDS, PROMPTS = "wildcards", "prompts"
MOST_BYTES = 4_000_000
LONGEST_PROMPT = 64_000
MOST_FILES = 10_000


class WorkspaceTexts:
    """Reads them when they are asked for. A file that has not changed is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[Path, tuple[tuple[int, int], list[str]]] = {}

    def names(self) -> list[str]:
        """The wildcards that there are, as they are written between the underscores."""
        folder = self._root / WILDCARDS
        files = sorted(path for path in folder.rglob("*.txt") if path.is_file())[:MOST_FILES]
        return [path.relative_to(folder).with_suffix("").as_posix() for path in files]

    def wildcard(self, name: str) -> Sequence[str]:
        """The lines of a wildcard, without empty ones and comments. ValueError if there are none."""
        path = self._file(WILDCARDS, f"{name}.txt")
        if path is None:
            known = self.names()
            hint = suggest(name[:60], known) if known else f"the folder {WILDCARDS} of the workspace has no file"
            raise ValueError(f"__{name}__ is no wildcard; {hint}. For the text itself: \\__{name}__")
        stamp = (path.stat().st_mtime_ns, path.stat().st_size)
        kept = self._read.get(path)
        if kept is None or kept[0] != stamp:
            said = (line.strip() for line in _text_of(path, MOST_BYTES).splitlines())
            kept = self._read[path] = stamp, [line for line in said if line and not line.startswith("#")]
        if not kept[1]:
            raise ValueError(f"{WILDCARDS}/{name}.txt is empty: write a line for each choice")
        return kept[1]

    def prompt(self, path: str) -> str:
        """The text of a file below `prompts`. ValueError if it cannot be had."""
        found = self._file(PROMPTS, path.removeprefix(f"{PROMPTS}/"))
        if found is None:
            raise ValueError(f"{path[:200]!r} is no file below the folder {PROMPTS} of the workspace")
        return _text_of(found, LONGEST_PROMPT).strip()

    def _file(self, folder: str, name: str) -> Path | None:
        """A file below a folder, links followed. None if it is not there or leads out of it."""
        try:
            base = (self._root / folder).resolve()
            path = (base / name).resolve()
            return path if path.is_relative_to(base) and path.is_file() else None
        except (OSError, ValueError, RuntimeError):
            return None


def _text_of(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ValueError(f"{path.name} has more than {most:,} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
