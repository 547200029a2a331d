"""What a monitor knows of the files in its folder: taken in, perhaps still being written, or missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from comfyui_agent.clock import now
from comfyui_agent.engine.intake.folder_scan import SETTLED_SECONDS, Signature

NEVER_SEEN: Signature = (0, 0, 0, 0)
"""Of a file that should be there, since its job waits."""


@dataclass
class WaitingFile:
    """A file that may still be written, or that is to be read later."""

    signature: Signature
    since: float
    due: float
    is_later: bool = False
    """It waits for the end of a run."""

    def put_off(self, seconds: float) -> None:
        self.due = now() + seconds


@dataclass
class SeenFiles:
    """Files by path. `known` are taken in, `waiting` are to be read, `missing` are known and not there any more."""

    known: dict[str, Signature] = field(default_factory=dict)
    waiting: dict[str, WaitingFile] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)

    def see(self, found: Mapping[str, Signature | None]) -> None:
        """These files were looked at; None stands for one that is not there."""
        moment, time_of_day = now(), time.time()
        for path, signature in found.items():
            if signature is None:
                self._miss(path)
                continue
            self.missing.pop(path, None)
            waiting = self.waiting.get(path)
            if self.known.get(path) == signature or (waiting and waiting.signature == signature):
                continue
            # What was written a while ago and is seen now was moved here.
            since = moment - max(0.0, time_of_day - signature[0] / 1e9)
            self.waiting[path] = WaitingFile(signature, since, since + SETTLED_SECONDS)

    def see_all(self, found: Mapping[str, Signature], is_hidden: Callable[[str], bool]) -> None:
        """Everything was looked at, apart from what `is_hidden`: the rest is missing."""
        self.see(found)
        for path in self.known.keys() | self.waiting.keys():
            if path not in found and not is_hidden(path):
                self._miss(path)

    def ready(self) -> list[str]:
        """Files that were left alone long enough to be whole."""
        moment = now()
        return [path for path, waiting in self.waiting.items() if waiting.due <= moment]

    def _miss(self, path: str) -> None:
        self.waiting.pop(path, None)
        if path in self.known:
            self.missing.setdefault(path, now())
