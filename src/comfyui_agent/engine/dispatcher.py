"""Handing out work: every server gets what it has room for, idle ones first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.engine.runs import Runs
from comfyui_agent.engine.signals import Signals
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Window

BUSY_SECONDS = 0.05


class ReadyServers(Protocol):
    """What handing out work needs of the fleet."""

    def ready(self) -> list[FleetServer]: ...

    def is_alternative_to(self, server: FleetServer) -> bool: ...


@dataclass(frozen=True)
class LeaseTerms:
    """What every lease of this agent is asked for with."""

    worker: str
    seconds: float
    longest_backoff: float
    poll_seconds: float
    one_page: bool
    """At most one page of each book at a time."""
    only: str | None = None
    """Nothing but the jobs of this batch."""


class Dispatcher:
    """Leases jobs for servers with room, and starts their runs."""

    def __init__(
        self,
        store: OperationRunner,
        fleet: ReadyServers,
        runs: Runs,
        signals: Signals,
        clock: Clock,
        terms: LeaseTerms,
        mint: Callable[[], PromptId],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._runs = runs
        self._signals = signals
        self._clock = clock
        self._terms = terms
        self._mint = mint

    async def hand_out(self) -> None:
        for server, most in self._rooms():
            await self._lease_for(server, most)

    async def wait(self) -> None:
        """Until something changes, a job in backoff is due, or the poll interval is over."""
        if await self._clock.wait_for(self._signals.work, BUSY_SECONDS):
            return
        seconds = self._terms.poll_seconds
        with contextlib.suppress(StoreError):
            due = await self._store.run(ops.seconds_until_next)
            seconds = min(seconds, due) if due is not None and due > 0 else seconds
        await self._clock.wait_for(self._signals.work, seconds)

    def _rooms(self) -> Sequence[tuple[FleetServer, int]]:
        """Servers with room, least busy first. Idle ones get one job each before any gets its second."""
        ready = self._fleet.ready()
        idle = [(server, 1) for server in ready if not server.at_work] if len(ready) > 1 else []
        return idle + [(server, server.most_open) for server in ready]

    async def _lease_for(self, server: FleetServer, most: int) -> None:
        room = min(most, server.room)
        if room <= 0 or not server.takes_work:
            return
        asked_at = self._clock.now()
        terms = self._terms
        window = Window(
            server.name,
            server.most_open,
            is_only=not self._fleet.is_alternative_to(server),
            batch_id=terms.only,
            one_page=terms.one_page,
        )
        ids = [self._mint() for _ in range(room)]
        for leased in await self._store.run(
            ops.lease_jobs, terms.worker, window, ids, terms.seconds, longest_backoff=terms.longest_backoff
        ):
            await self._runs.start(leased, asked_at)
