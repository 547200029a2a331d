"""Grids that are due: made once for every completion, by whichever agent claims them first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from comfyui_agent.batches.grids import NoGrid, make_grid
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GridBuilder:
    """Looks for batches that are complete and have no grid of this generation yet. With `only`, for one batch."""

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
        while claimed := await self.store.run(ops.claim_grid, self.lock.worker, self.lock.host, self.only):
            await self._make(*claimed)

    async def _make(self, batch_id: str, generation: int) -> None:
        grid, problem = None, None
        try:
            batch = await self.store.run(ops.find_batch, batch_id)
            if batch is not None:
                made = await make_grid(self.store, self.workspace, batch)
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
