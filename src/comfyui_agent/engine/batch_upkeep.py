"""What agents do for batches: grids that are due are made, and batches that make no progress expire."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from comfyui_agent.batches.grids import NoGrid, make_grid
from comfyui_agent.clock import Clock
from comfyui_agent.comfy.watch import Stage
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import Health
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.2, 5.0
LOOKS = 20
"""How often to look within the time that a batch is given."""
GAP = 4
"""Looks that are further apart than so many rounds say nothing about the time between them."""


@dataclass(frozen=True)
class GridBuilder:
    """Makes the grids of complete batches, each once for every completion. With `only`, of one batch."""

    store: Store
    workspace: Workspace
    recorder: Recorder
    lock: AgentLock
    only: str | None = None
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a batch is complete."""

    def see_event(self, event: Event) -> None:
        if event.name == EventName.BATCH_COMPLETED:
            self.due.set()

    async def make_all(self) -> None:
        """Make the grids that are due."""
        self.due.clear()
        while claimed := await self.store.run(ops.claim_grid, self.lock.worker, self.lock.host, self.only):
            await self._make(*claimed)

    async def _make(self, batch_id: str, generation: int) -> None:
        grid, problem = None, None
        try:
            batch = await self.store.run(ops.find_batch, batch_id)
            if batch is not None:
                drawing = partial(make_grid, self.store, self.workspace, batch)
                made = await self.recorder.outlast(drawing, f"the grid of {batch_id} waits", batch_id=batch_id)
                grid = self.workspace.shown(made.pictures[0])
        except NoGrid as error:
            problem = str(error)
        except (asyncio.CancelledError, StoreError):
            with contextlib.suppress(StoreError):
                await self.store.run(ops.release_grids, self.lock.worker)
            raise
        except Exception as error:
            log.exception("the grid of %s cannot be made", batch_id)
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            log.error("the grid of %s cannot be made: %s", batch_id, problem)
        await self.recorder.write(ops.settle_grid, batch_id, self.lock.worker, generation, grid=grid, problem=problem)


@dataclass
class Expiry:
    """The clock of batches: it runs while members are being executed at live servers and none lands.

    Several agents may look: the database adds up what passed since the last look.
    """

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
            is_running = run.progress is not None and run.progress.stage is Stage.RUNNING
            # Waiting at a server is waiting its turn, and at one that does not answer nothing can land.
            if run.leased.batch_id and is_running and run.server.health is Health.UP:
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
