"""Watching folders for changes, by the means of the operating system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from comfyui_agent.engine.intake.troubles import Troubles

DEBOUNCE_MS, STEP_MS = 100, 20
TROUBLE_PAUSE = 1.0


class FolderWatch:
    """Calls `changed` with the paths that were touched, and `began` when a watch has begun.

    Each folder is watched by itself: watching a tree would follow links out of it. `works` is False where watching
    fails; the folder then has to be looked at more often.
    """

    def __init__(
        self,
        folder: Path,
        troubles: Troubles,
        *,
        began: Callable[[], None],
        changed: Callable[[set[str]], None],
    ) -> None:
        self._folder = folder
        self._troubles = troubles
        self._began = began
        self._changed = changed
        self._folders: Collection[str] = [str(folder)]
        self._restart = asyncio.Event()
        self.works = True

    def watch(self, folders: Collection[str]) -> None:
        """Watch these folders from now on."""
        self._folders = folders or [str(self._folder)]
        self._restart.set()

    async def run(self) -> None:
        from watchfiles import awatch

        while True:
            self._restart.clear()
            asyncio.get_running_loop().call_soon(self._began)  # for what happened between two watches
            try:
                async for changes in awatch(
                    *self._folders,
                    watch_filter=None,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    recursive=False,
                    stop_event=self._restart,
                    ignore_permission_denied=True,
                ):
                    self.works = True
                    self._troubles.clear("watch")
                    self._changed({path for _, path in changes})
            except Exception as error:  # noqa: BLE001 - whatever is wrong with watching, looking still works
                self.works = False
                message = f"{self._folder} cannot be watched, so it is looked at every second: {error}"
                self._troubles.report("watch", message)
            if not self._restart.is_set():
                await asyncio.sleep(TROUBLE_PAUSE)
