"""The clock of batches: it runs while members are being executed at live servers and none lands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.watch import Stage
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.2, 5.0
LOOKS = 20
"""How often to look within the time that a batch is given."""
GAP = 4
"""Looks that are further apart than so many rounds say nothing about the time between them."""


class Expiry:
    """Looks at what runs now and again. Several agents may: the database adds up what passed since the last look."""

    def __init__(self, store: Store, seconds: float, runs: Callable[[], Sequence[Run]], clock: Clock) -> None:
        self._clock = clock
        self._store = store
        self._seconds = seconds
        self._runs = runs
        self._pause = min(LONGEST, max(SHORTEST, seconds / LOOKS))
        self._executed: dict[str, set[str]] = {}

    async def watch(self) -> None:
        while True:
            await self._clock.sleep(self._pause)
            try:
                await self._look()
            except StoreError as error:
                log.warning("the clock of batches stands still: %s", error)

    async def _look(self) -> None:
        """Time passes for a batch whose prompt was executed at the last look and still is; for others it begins."""
        before, self._executed = self._executed, {}
        for run in self._runs():
            if run.leased.batch_id and is_executed(run):
                self._executed.setdefault(run.leased.batch_id, set()).add(run.leased.prompt_id)
        going_on = sorted(each for each, prompts in self._executed.items() if prompts & before.get(each, set()))
        begun = sorted(self._executed.keys() - set(going_on))
        if begun:
            await self._store.run(ops.tick_batches, begun, 0.0, self._seconds)
        if going_on:
            expired = await self._store.run(ops.tick_batches, going_on, GAP * self._pause, self._seconds)
            for batch_id in expired:
                log.warning("the batch %s has expired", batch_id)
            if expired:
                self._store.wake()


def is_executed(run: Run) -> bool:
    """Whether its prompt is being executed at a server that answers; waiting there is waiting its turn."""
    progress = run.progress
    return progress is not None and progress.stage is Stage.RUNNING and run.server.health is Health.UP
