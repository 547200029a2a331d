"""Recorded results, looked for out of turn: who only needs a copy does not wait behind what is rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.engine.runs import Runs
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner


class ReadyServers(Protocol):
    def ready(self) -> list[FleetServer]: ...


@dataclass(frozen=True)
class ReuseAhead:
    """Starts the runs of jobs that may only need a copy."""

    store: OperationRunner
    fleet: ReadyServers
    runs: Runs
    clock: Clock

    async def look(self) -> None:
        """Give every waiting job that has one its recorded result."""
        while ready := self.fleet.ready():
            if not await self.store.run(ops.is_reusable_waiting):
                return
            asked_at, leases = self.clock.now(), self.runs.leases
            lease = leases.worker, ready[0].name, mint_prompt_id(), leases.seconds
            leased = await self.store.run(ops.lease_reusable, *lease)
            if leased is None:
                return
            await self.runs.start(leased, asked_at)
