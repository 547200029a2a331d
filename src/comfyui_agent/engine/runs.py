"""The runs of an agent: started with a lease, dropped when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store.errors import DatabaseUnusable
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)

COLLECTING_GRACE = 0.6


@dataclass(frozen=True)
class Signals:
    """What wakes the loops of an agent. Whoever waits for an event clears it."""

    work: asyncio.Event = field(default_factory=asyncio.Event)
    """There may be work and room for it."""
    change: asyncio.Event = field(default_factory=asyncio.Event)
    """Something changed from outside: leases, leftovers and server states are looked at again."""


class Servers(Protocol):
    """What starting a run needs of the fleet."""

    def get(self, name: str) -> Awaitable[FleetServer]: ...


@dataclass
class Runs:
    """Every run at work. `fatal` is set when the database can never be used again."""

    fleet: Servers
    leases: Leases
    signals: Signals
    clock: Clock
    make_run: Callable[[Leased, FleetServer], Run]
    fatal: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _tasks: dict[Run, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def all(self) -> list[Run]:
        return list(self._tasks)

    def has(self, prompt_id: str) -> bool:
        return any(run.leased.prompt_id == prompt_id for run in self._tasks)

    async def start(self, leased: Leased, asked_at: float) -> None:
        """Start the run of a lease that was asked for at that time."""
        server = await self.fleet.get(leased.server)
        run = self.make_run(leased, server)
        server.at_work.add(leased.prompt_id)
        task = asyncio.create_task(run.live())
        self._tasks[run] = task
        self.leases.add(leased.lease, asked_at, lambda reason: self._lose(run, reason))
        task.add_done_callback(lambda done: self._ended(run, done))

    async def stop(self) -> None:
        """End every run. Prompts stay at their servers; results that are nearly home are awaited for a moment."""
        await end_tasks([task for run, task in self._tasks.items() if not run.is_collecting])
        deadline = self.clock.now() + COLLECTING_GRACE
        while (at_work := {task for task in self._tasks.values() if not task.done()}) and self.clock.now() < deadline:
            await self.clock.first_of(at_work, deadline - self.clock.now())
        await end_tasks(list(self._tasks.values()))

    def _lose(self, run: Run, reason: str) -> None:
        log.info("%s: dropped, %s", run.leased.config_name, reason)
        if run in self._tasks:
            self._tasks[run].cancel()

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._tasks.pop(run, None)
        self.leases.drop(run.leased.lease)
        run.server.at_work.discard(run.leased.prompt_id)
        self.signals.work.set()
        if run.server.out_of_work is ServerState.DRAINING:
            self.signals.change.set()  # it may have been the last run there
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        log.error("running %s failed", run.leased.config_name, exc_info=error)
        if isinstance(error, DatabaseUnusable) and not self.fatal.done():
            self.fatal.set_exception(error)
