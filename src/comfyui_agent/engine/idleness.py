"""Whether an agent that works until nothing is left may end."""

from __future__ import annotations

from comfyui_agent.clock import Clock
from comfyui_agent.engine.stuck_servers import StuckServers, describe_blocking
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

LEFTOVER_SECONDS = 10.0


class Idleness:
    """Nothing is pending and nothing is to be taken back; or nothing can go on, and `blocked` says why."""

    def __init__(
        self,
        store: OperationRunner,
        stuck: StuckServers,
        clock: Clock,
        *,
        worker: str,
        only: str | None,
        patience: float,
    ) -> None:
        """`patience`: seconds for which stuck servers are waited for."""
        self._store = store
        self._stuck = stuck
        self._clock = clock
        self._worker = worker
        self._only = only
        self._patience = patience
        self._leftovers_since: float | None = None
        self._blocked_since: float | None = None
        self.blocked = ""

    async def is_reached(self) -> bool:
        if self._only is not None:
            is_idle = await self._store.run(ops.is_batch_idle, self._only)
        else:
            is_idle = await self._store.run(ops.is_queue_idle)
        return is_idle and not await self._has_leftovers()

    async def is_out_of_reach(self) -> bool:
        """Whether everything that is left has waited for stuck servers for too long."""
        blocking = await self._stuck.blocking(self._only)
        if not blocking:
            self._blocked_since = None
            return False
        self._blocked_since = self._blocked_since or self._clock.now()
        if self._clock.now() - self._blocked_since < self._patience:
            return False
        self.blocked = describe_blocking(blocking)
        return True

    async def _has_leftovers(self) -> bool:
        """Whether prompts of ours are still to be taken back. They are waited for only so long."""
        if not any(each.attempt_worker == self._worker for each in await self._store.run(ops.open_attempts)):
            self._leftovers_since = None
            return False
        self._leftovers_since = self._leftovers_since or self._clock.now()
        return self._clock.now() - self._leftovers_since < LEFTOVER_SECONDS
