"""The runs of an agent: started with a lease for a server that has room, dropped when the lease is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.settings import Settings
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.fleet import Fleet
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Leased, Window

log = logging.getLogger(__name__)

COLLECTING_GRACE = 0.6
BUSY_SECONDS = 0.05


@dataclass(frozen=True)
class Signals:
    """What wakes the loops of an agent. Whoever waits for an event clears it."""

    work: asyncio.Event = field(default_factory=asyncio.Event)
    """There may be work and room for it."""
    change: asyncio.Event = field(default_factory=asyncio.Event)
    """Something changed from outside: leases, leftovers and server states are looked at again."""


@dataclass
class Runs:
    """Every run at work. `fatal` is set when the database can never be used again."""

    fleet: Fleet
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


@dataclass(frozen=True)
class Dispatcher:
    """Leases jobs for servers with room, and starts their runs. With `only`, nothing but the jobs of that batch."""

    store: OperationRunner
    fleet: Fleet
    runs: Runs
    signals: Signals
    clock: Clock
    worker: str
    settings: Settings
    longest_backoff: float
    only: str | None

    async def hand_out(self) -> None:
        """Servers with room, least busy first. Idle ones get one job each before any gets its second."""
        ready = self.fleet.ready()
        idle = [server for server in ready if not server.at_work] if len(ready) > 1 else []
        for server in idle:
            await self._lease_for(server, 1)
        for server in ready:
            await self._lease_for(server, server.most_open)

    async def wait(self) -> None:
        """Until something changes, a job in backoff is due, or the poll interval is over."""
        if await self.clock.wait_for(self.signals.work, BUSY_SECONDS):
            return
        seconds = self.settings.poll_interval_ms / 1000
        with contextlib.suppress(StoreError):
            due = await self.store.run(ops.seconds_until_next)
            seconds = min(seconds, due) if due is not None and due > 0 else seconds
        await self.clock.wait_for(self.signals.work, seconds)

    async def _lease_for(self, server: FleetServer, most: int) -> None:
        room = min(most, server.room)
        if room <= 0 or not server.takes_work:
            return
        asked_at = self.clock.now()
        window = Window(
            server.name,
            server.most_open,
            is_only=not self.fleet.is_alternative_to(server),
            batch_id=self.only,
            one_page=not self.settings.books.parallel_pages,
        )
        ids = [mint_prompt_id() for _ in range(room)]
        seconds, backoff = self.settings.lease_seconds, self.longest_backoff
        for leased in await self.store.run(ops.lease_jobs, self.worker, window, ids, seconds, longest_backoff=backoff):
            await self.runs.start(leased, asked_at)
