"""Whether an agent that works until nothing is left may end."""

from __future__ import annotations

from dataclasses import dataclass, field

from comfyui_agent.clock import Clock
from comfyui_agent.domain.server_states import STUCK_REMEDY
from comfyui_agent.engine.server_states import ServerStates
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

LEFTOVER_SECONDS = 10.0


@dataclass
class Idleness:
    """Nothing is pending and nothing is to be taken back; or nothing can go on, and `blocked` says why."""

    store: OperationRunner
    states: ServerStates
    clock: Clock
    worker: str
    only: str | None
    patience: float
    """Seconds for which stuck servers are waited for."""
    blocked: str = ""
    _leftovers_since: float | None = field(default=None, init=False)
    _blocked_since: float | None = field(default=None, init=False)

    async def is_reached(self) -> bool:
        run = self.store.run
        is_idle = await (run(ops.is_batch_idle, self.only) if self.only is not None else run(ops.is_queue_idle))
        return is_idle and not await self._has_leftovers()

    async def is_out_of_reach(self) -> bool:
        """Whether everything that is left has waited for stuck servers for too long."""
        blocking = await self.states.blocking(self.only)
        if not blocking:
            self._blocked_since = None
            return False
        self._blocked_since = self._blocked_since or self.clock.now()
        if self.clock.now() - self._blocked_since < self.patience:
            return False
        named = "; ".join(f"{each.server} is stuck since {each.since[:19]} UTC" for each in blocking)
        self.blocked = f"nothing can go on: {named}: {STUCK_REMEDY}, then start again"
        return True

    async def _has_leftovers(self) -> bool:
        """Whether prompts of ours are still to be taken back. They are waited for only so long."""
        if not any(each.attempt_worker == self.worker for each in await self.store.run(ops.open_attempts)):
            self._leftovers_since = None
            return False
        self._leftovers_since = self._leftovers_since or self.clock.now()
        return self.clock.now() - self._leftovers_since < LEFTOVER_SECONDS
