"""The clock of batches: it runs while members are being executed at live servers and none lands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


@dataclass
class Expiry:
    """Looks at what runs now and again. Several agents may: the database adds up what passed since the last look."""

    store: Store
    seconds: float
    runs: Callable[[], Sequence[Run]]
    clock: Clock
    _executed: dict[str, set[str]] = field(default_factory=dict, init=False)

    async def watch(self) -> None:
        pause = min(LONGEST, max(SHORTEST, self.seconds / LOOKS))
        while True:
            await self.clock.sleep(pause)
            try:
                await self._look(GAP * pause)
            except StoreError as error:
                log.warning("the clock of batches stands still: %s", error)

    async def _look(self, longest_gap: float) -> None:
        """Time passes for a batch whose prompt was executed at the last look and still is; for others it begins."""
        before, self._executed = self._executed, {}
        for run in self.runs():
            if run.leased.batch_id and _is_executed(run):
                self._executed.setdefault(run.leased.batch_id, set()).add(run.leased.prompt_id)
        going_on = sorted(each for each, prompts in self._executed.items() if prompts & before.get(each, set()))
        begun = sorted(self._executed.keys() - set(going_on))
        if begun:
            await self.store.run(ops.tick_batches, begun, 0.0, self.seconds)
        if going_on:
            expired = await self.store.run(ops.tick_batches, going_on, longest_gap, self.seconds)
            for batch_id in expired:
                log.warning("the batch %s has expired", batch_id)
            if expired:
                await ops.end_members(self.store)
                self.store.wake()


def _is_executed(run: Run) -> bool:
    """Whether its prompt is being executed at a server that answers; waiting there is waiting its turn."""
    progress = run.progress
    return progress is not None and progress.stage is Stage.RUNNING and run.server.health is Health.UP
