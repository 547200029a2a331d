"""How long it takes until a batch, or all that waits, is done."""

from __future__ import annotations

import time

from comfyui_agent.comfy.address import address_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus
from comfyui_agent.domain.forecast import seconds_left
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import is_attended
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
        if batch is not None and not self._goes_on_by_itself(batch):
            return None
        key, began = batch.id if batch else None, time.monotonic()
        self._kept = {each: found for each, found in self._kept.items() if found[0] > began}
        if key not in self._kept:
            settings = self._workspace.settings
            servers = settings.comfyui.urls if is_attended(self._workspace.locks) else ()
            backlog = await self._store.run(ops.read_backlog, [address_of(url) for url in servers], batch)
            seconds = await REQUESTS.run(seconds_left, backlog, settings.routing.stay_seconds)
            now = time.monotonic()
            self._kept[key] = now + max(LEAST_KEPT, LONGER * (now - began)), seconds
        return self._kept[key][1]

    def _goes_on_by_itself(self, batch: Batch) -> bool:
        is_serial = batch.kind is BatchKind.BOOK and not self._workspace.settings.books.parallel_pages
        is_held = batch.is_paused or batch.status is BatchStatus.PENDING or batch.kind is BatchKind.BURST
        return not (is_held or is_serial or batch.status.has_ended)
