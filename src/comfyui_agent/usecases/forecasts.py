"""How long it takes until a batch, or all that waits, is done."""

from __future__ import annotations

import time

from comfyui_agent.comfy.address import address_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.forecast import Schedule
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

LEAST_KEPT, LONGER = 0.5, 50.0
"""A forecast is kept for so many seconds, and so much longer than it took to make it."""


class Forecasts:
    """Seconds that are left. Whoever asks often gets the same answer for a while."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store, self._workspace = store, workspace
        self._kept: dict[str | None, tuple[float, float | None]] = {}

    async def left(self, batch: Batch | None = None) -> float | None:
        """Of a batch, else of the queue. None if nobody can know: it is paused, or nothing like it was measured."""
        settings, key, began = self._workspace.settings, batch.id if batch else None, time.monotonic()
        is_serial = batch and batch.kind is BatchKind.BOOK and not settings.books.parallel_pages
        if batch and (is_serial or batch.is_paused):
            return None
        self._kept = {each: found for each, found in self._kept.items() if found[0] > began}
        if key not in self._kept:
            urls = server_urls(self._workspace) if await ops.is_attended(self._store, self._workspace.locks) else ()
            work = await self._store.run(ops.work_left, [address_of(url) for url in urls], key)
            seconds = await REQUESTS.run(Schedule(work, settings.routing.stay_seconds).seconds)
            now = time.monotonic()
            self._kept[key] = now + max(LEAST_KEPT, LONGER * (now - began)), seconds
        return self._kept[key][1]
