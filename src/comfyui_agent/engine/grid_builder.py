"""Grids that are due: made once for every completion, by whichever agent claims them first."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from comfyui_agent.batches.grids import NoGrid, make_grid
from comfyui_agent.clock import Clock
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class GridBuilder:
    """Looks for batches that are complete and have no grid of this generation yet."""

    def __init__(
        self, store: Store, workspace: Workspace, lock: AgentLock, clock: Clock, *, only: str | None = None
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._lock = lock
        self._clock = clock
        self._recorder = Recorder(store, clock)
        self._only = only
        self._wake_up = asyncio.Event()

    def wake(self) -> None:
        self._wake_up.set()

    async def keep_making(self) -> None:
        while True:
            self._wake_up.clear()
            try:
                while await self._make_next():
                    pass
            except DatabaseUnusable:
                raise
            except StoreError as error:
                log.error("grids cannot be made: %s", error)
            except Exception:
                log.exception("making a grid failed")
            await self._clock.wait_for(self._wake_up, LOOK_SECONDS)

    async def _make_next(self) -> bool:
        """Make one; False if none is due."""
        claimed = await self._store.run(ops.claim_grid, self._lock.worker, self._lock.is_dead, self._only)
        if claimed is None:
            return False
        batch_id, generation = claimed
        grid, problem = None, None
        try:
            batch = await self._store.run(ops.find_batch, batch_id)
            if batch is not None:
                made = await make_grid(self._store, self._workspace, batch)
                grid = self._workspace.shown(made.pictures[0])
        except NoGrid as error:
            problem = str(error)
        except (asyncio.CancelledError, StoreError):
            with contextlib.suppress(StoreError):
                await self._store.run(ops.release_grids, self._lock.worker)
            raise
        except Exception as error:
            log.exception("the grid of %s cannot be made", batch_id)
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            log.error("the grid of %s cannot be made: %s", batch_id, problem)
        await self._recorder.write(ops.settle_grid, batch_id, self._lock.worker, generation, grid=grid, problem=problem)
        return True
