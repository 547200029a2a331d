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

KEPT_SECONDS = 2.0


class Forecasts:
    """Seconds that are left, looked up at most every few seconds."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store, self._workspace = store, workspace
        self._kept: dict[str | None, tuple[float, float | None]] = {}

    async def left(self, batch: Batch | None = None) -> float | None:
        """Of a batch, else of the queue. None if nobody can know: it is paused, or nothing like it was measured."""
        if batch is not None and not self._goes_on_by_itself(batch):
            return None
        key, now = batch.id if batch else None, time.monotonic()
        self._kept = {each: found for each, found in self._kept.items() if now - found[0] < KEPT_SECONDS}
        if key not in self._kept:
            settings = self._workspace.settings
            servers = settings.comfyui.urls if is_attended(self._workspace.locks) else ()
            backlog = await self._store.run(ops.read_backlog, [address_of(url) for url in servers], batch)
            self._kept[key] = now, await REQUESTS.run(seconds_left, backlog, settings.routing.stay_seconds)
        return self._kept[key][1]

    def _goes_on_by_itself(self, batch: Batch) -> bool:
        is_serial = batch.kind is BatchKind.BOOK and not self._workspace.settings.books.parallel_pages
        is_held = batch.is_paused or batch.status is BatchStatus.PENDING or batch.kind is BatchKind.BURST
        return not (is_held or is_serial or batch.status.has_ended)
