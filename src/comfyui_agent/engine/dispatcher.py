"""Handing out work: every server gets what it has room for, idle ones first."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.config.settings import Settings
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.engine.needs_lookup import NeedsLookup
from comfyui_agent.engine.runs import Runs, Signals
from comfyui_agent.engine.staleness import Staleness
from comfyui_agent.fleet.routing import Routing, ServerRoute
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.leases import QueueFront
from comfyui_agent.store.records import Window
from comfyui_agent.store.store import Store

BUSY_SECONDS = 0.05


class ReadyServers(Protocol):
    """What handing out work needs of the fleet."""

    def ready(self) -> list[FleetServer]: ...

    def is_alternative_to(self, server: FleetServer) -> bool: ...


@dataclass
class Dispatcher:
    """Leases jobs for servers with room, and starts their runs."""

    store: Store
    fleet: ReadyServers
    runs: Runs
    signals: Signals
    clock: Clock
    routing: Routing
    lookup: NeedsLookup
    settings: Settings
    policy: RetryPolicy
    only: str | None = None
    """Nothing but the jobs of this batch."""
    front: QueueFront = field(default_factory=QueueFront)

    def __post_init__(self) -> None:
        self._queue = Staleness(self.store, self.clock)

    async def hand_out(self) -> None:
        """Servers with room, least busy first. Idle ones get one job each before any gets its second."""
        self._queue.is_stale()
        ready = self.fleet.ready()
        idle = [server for server in ready if not server.at_work] if len(ready) > 1 else []
        unfed: set[str] = set()
        for server, most in [*((each, 1) for each in idle), *((each, each.most_open) for each in ready)]:
            if server.name not in unfed and not await self._lease_for(server, most):
                unfed.add(server.name)
                if len(unfed) == 1 and self.only is None and not await self.store.run(ops.is_work_waiting):
                    break
        self.lookup.begin()

    async def wait(self) -> None:
        """Until something changes, or a job in backoff is due. Changes are looked for at every poll interval."""
        if await self.clock.wait_for(self.signals.work, BUSY_SECONDS):
            return
        pause, until = self.settings.poll_interval_ms / 1000, math.inf
        with contextlib.suppress(StoreError):
            due = await self.store.run(ops.seconds_until_next)
            until = self.clock.now() + (due if due > 0 else pause) if due is not None else until
        while not await self.clock.wait_for(self.signals.work, min(pause, until - self.clock.now())):
            if self._queue.is_stale() or self.clock.now() >= until:
                return

    async def _lease_for(self, server: FleetServer, most: int) -> bool:
        """Returns whether it may get more: it got something, or was not asked."""
        room = min(most, server.room)
        if room <= 0 or not server.takes_work:
            return True
        asked_at = self.clock.now()
        window = Window(
            server.name,
            server.most_open,
            is_only=not self.fleet.is_alternative_to(server),
            batch_id=self.only,
            one_page=not self.settings.books.parallel_pages,
        )
        ids = [mint_prompt_id() for _ in range(room)]
        found = await self.store.run(
            ops.lease_jobs,
            self.runs.leases.worker,
            window,
            ids,
            self.runs.leases.seconds,
            route=ServerRoute(self.routing, server, is_part=self.only is not None),
            front=self.front,
            longest_backoff=self.policy.longest_backoff,
        )
        for leased in found:
            await self.runs.start(leased, asked_at)
        return bool(found)
