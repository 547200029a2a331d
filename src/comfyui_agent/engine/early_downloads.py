"""Downloads that begin when a server says that a prompt has succeeded, while its history is still being asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.results import ResultFile

MOST_EARLY = 8


class EarlyDownloads:
    """Nothing depends on them: a file that did not come this way is fetched once the history has listed it."""

    def __init__(self) -> None:
        self._begun: dict[ResultFile, asyncio.Future[StagedFile]] = {}
        self._is_over = False

    def begin(self, results: Sequence[ResultFile], fetch: Callable[[ResultFile], Awaitable[StagedFile]]) -> None:
        """Nothing is begun once `discard` was called: a prompt goes on when its job was dropped."""
        for result in () if self._is_over else results[:MOST_EARLY]:
            if result not in self._begun:
                self._begun[result] = asyncio.ensure_future(fetch(result))

    async def take(self, result: ResultFile) -> StagedFile | None:
        """The file, if its download was begun and succeeds."""
        begun = self._begun.pop(result, None)
        if begun is None:
            return None
        try:
            return await asyncio.shield(begun)
        except (ComfyError, OSError):
            return None
        except asyncio.CancelledError:
            self._begun[result] = begun
            raise

    def discard(self) -> None:
        """Remove what nobody took, and begin nothing more."""
        self._is_over = True
        while self._begun:
            _, begun = self._begun.popitem()
            begun.add_done_callback(_remove)  # not cancelled: a thread may be about to write the file


def _remove(begun: asyncio.Future[StagedFile]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().discard()
