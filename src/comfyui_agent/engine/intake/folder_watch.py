"""Watching folders for changes: what a monitor knows of their files, and what is wrong with them, reported once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.clock import now
from comfyui_agent.engine.intake.folder_scan import SETTLED_SECONDS, Signature

log = logging.getLogger(__name__)

DEBOUNCE_MS, STEP_MS = 100, 20
TROUBLE_PAUSE = 1.0
NEVER_SEEN: Signature = (0, 0, 0, 0)
"""Of a file that should be there, since its job waits."""


class Troubles:
    """Logs each trouble of a subject once, and again when it comes back after it was over."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def report(self, subject: str, message: str) -> None:
        if self._reported.get(subject) != message:
            self._reported[subject] = message
            log.error("%s", message)

    def clear(self, *subjects: str) -> None:
        for subject in subjects:
            self._reported.pop(subject, None)


@dataclass
class FolderWatch:
    """Calls `changed` with the paths that were touched, and `began` when a watch has begun. Each folder is watched by
    itself: watching a tree would follow links out of it. `works` is False where watching fails."""

    folder: Path
    troubles: Troubles
    began: Callable[[], None]
    changed: Callable[[set[str]], None]
    works: bool = True
    _folders: Collection[str] = field(default=(), init=False)
    _restart: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def watch(self, folders: Collection[str]) -> None:
        self._folders = folders
        self._restart.set()

    async def run(self) -> None:
        from watchfiles import awatch

        while True:
            self._restart.clear()
            asyncio.get_running_loop().call_soon(self.began)  # for what happened between two watches
            try:
                async for changes in awatch(
                    *(self._folders or [str(self.folder)]),
                    watch_filter=None,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    recursive=False,
                    stop_event=self._restart,
                    ignore_permission_denied=True,
                ):
                    self.works = True
                    self.troubles.clear("watch")
                    self.changed({path for _, path in changes})
            except Exception as error:  # noqa: BLE001 - whatever is wrong with watching, looking still works
                self.works = False
                message = f"{self.folder} cannot be watched, so it is looked at every second: {error}"
                self.troubles.report("watch", message)
            if not self._restart.is_set():
                await asyncio.sleep(TROUBLE_PAUSE)


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
