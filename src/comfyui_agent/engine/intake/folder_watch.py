"""Watching folders for changes, by the means of the operating system, and what is wrong with them, reported once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

DEBOUNCE_MS, STEP_MS = 100, 20
TROUBLE_PAUSE = 1.0


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
