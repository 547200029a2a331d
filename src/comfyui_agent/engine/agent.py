"""The agent: keeps every server fed from the queue until it is told to stop or nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.engine.batch_upkeep import Expiry, GridBuilder
from comfyui_agent.engine.dispatcher import Dispatcher
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.idleness import Idleness
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_feed import FeedServer
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.needs_lookup import NeedsLookup
from comfyui_agent.engine.notifier import Notifier
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.retention import Retention
from comfyui_agent.engine.reuse_ahead import ReuseAhead
from comfyui_agent.engine.run import Run
from comfyui_agent.engine.runs import Runs, Signals
from comfyui_agent.engine.server_states import ServerAlerts, ServerStates
from comfyui_agent.engine.staleness import Staleness
from comfyui_agent.engine.tuner import Tuner
from comfyui_agent.engine.unowned_prompts import UnownedPrompts
from comfyui_agent.engine.webhooks import Webhooks
from comfyui_agent.events.bus import Bus
from comfyui_agent.fleet.fleet import Fleet
from comfyui_agent.fleet.launch.supervisor import Supervisor
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock, working
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

RECOVERY_SECONDS = 2.0
LEAVING_SECONDS = 0.8
UNHURRIED_SECONDS = 10.0
CLOSING_SECONDS = 0.2
CHECK_PAUSE = 0.2
LEASE_PAUSE = 1.0
GRID_SECONDS = 2.0
TUNING_SECONDS = 2.0
LIVE_SECONDS = 0.5
RETENTION_SECONDS = 300.0
TELLING_SECONDS = 20.0
FIRST_ANSWER_SECONDS = 3.0


@dataclass
class Agent:
    """One process that works the queue off. Several may share one database. `composition.py` puts it together."""

    store: Store
    lock: AgentLock
    clock: Clock
    bus: Bus
    signals: Signals
    fleet: Fleet
    leases: Leases
    started: Runs
    dispatcher: Dispatcher
    lookup: NeedsLookup
    recovery: Recovery
    unowned: UnownedPrompts
    alerts: ServerAlerts
    states: ServerStates
    tail: EventTail
    grids: GridBuilder
    expiry: Expiry
    live: LiveFile
    idleness: Idleness
    reuse: ReuseAhead | None = None
    feed: FeedServer | None = None
    """For gateways on this machine."""
    supervisor: Supervisor | None = None
    tuner: Tuner | None = None
    retention: Retention | None = None
    notifier: Notifier | None = None
    webhooks: Webhooks | None = None
    leaving_seconds: float = LEAVING_SECONDS
    """How long it may take to leave when it is cancelled."""
    first_event: int = 0
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when failures are being counted, or the agent has ended."""
    _has_recovered: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def worker(self) -> str:
        return self.lock.worker

    @property
    def blocked(self) -> str:
        """Why it ended although work is left; empty if it did not."""
        return self.idleness.blocked

    @property
    def runs(self) -> list[Run]:
        return self.started.all()

    async def run(self, *, until_idle: bool = False, is_quiet: Callable[[], bool] = lambda: True) -> int:
        """Work until cancelled, or nothing is pending and `is_quiet()`, if asked. Returns how many jobs failed."""
        loops: list[asyncio.Task[None]] = []
        seconds = self.leaving_seconds
        try:
            await self.store.run(ops.register_agent, self.worker, self.lock.host, str(self.lock.path))
            self.first_event = await self.tail.begin()
            self.is_ready.set()
            if self.feed is not None:
                await self._attempt("opening a port for gateways", self.feed.start)
            await self.fleet.start()
            self.store.on_change(self._note_change)
            self.store.gathers = True
            if self.supervisor is not None:
                await self._attempt("starting ComfyUI processes", self.supervisor.look)
            await self._look_at_servers()
            loops += [asyncio.create_task(work) for work in self._loops()]
            if until_idle:
                loops.append(asyncio.create_task(self._until_idle(is_quiet)))
            done, _ = await asyncio.wait({*loops, self.started.fatal}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            for each in (self.notifier, self.webhooks):
                if each is not None:
                    await self._until(self.clock.now() + TELLING_SECONDS, each.finish())
            seconds = UNHURRIED_SECONDS
        finally:
            self.is_ready.set()
            await self._stop(loops, self.clock.now() + seconds)
        return await self.store.run(ops.failures_since, self.first_event)

    async def _stop(self, loops: list[asyncio.Task[None]], deadline: float) -> None:
        """Leave prompts at their servers, finish what is nearly home, and release everything."""
        await end_tasks(loops)
        await self.started.stop()
        for tasks in (self.alerts.tasks, self.lookup.tasks, self.recovery.tasks, self.unowned.tasks):
            await tasks.stop()
        if self.supervisor is not None and working(self.lock.folder) == [self.worker]:
            await self._until(deadline, self.supervisor.leave())
        if self.tuner is not None:
            self.tuner.lock.release()
        await self._until(deadline, self._release())
        self.live.remove()
        if self.feed is not None:
            await self.feed.stop()
        self.tail.metrics.close()
        await self._until(deadline + CLOSING_SECONDS, self.fleet.stop())
        self.lock.release()

    async def _release(self) -> None:
        with contextlib.suppress(StoreError):
            await self.store.run(ops.release_jobs, self.worker)
            await self.store.run(ops.release_grids, self.worker)
            await self.recovery.remove_files(())  # uploads that have just ended, and that nobody waits for
            await self.states.look_at_states()  # the last run at a server that is drained may have ended just now
            await self.tail.catch_up()
            await self.store.run(ops.remove_agent, self.worker)

    async def _until(self, deadline: float, work: Coroutine[Any, Any, None]) -> None:
        """Do something, if it is done in time."""
        task = asyncio.create_task(work)
        await self.clock.first_of({task}, max(0.0, deadline - self.clock.now()))
        await end_tasks([task])

    # The loops.

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        own = [self._recover(), self._check_changes(), self._dispatch(), self._show_live()]
        wait_for_grid = partial(self.clock.wait_for, self.grids.due, GRID_SECONDS)
        due_grids = Staleness(self.store, self.clock)
        own.append(self._repeat("making grids", self.grids.make_all, wait_for_grid, due_grids.is_stale))
        if self.supervisor is not None:
            own.append(self._repeat("looking at ComfyUI processes", self.supervisor.look, self.supervisor.pause))
        if self.tuner is not None:
            pause = partial(self.clock.sleep, TUNING_SECONDS)
            own.append(self._repeat("measuring ComfyUI processes", self.tuner.look, pause))
        if self.reuse is not None:
            pause = partial(self.clock.sleep, CHECK_PAUSE)
            looked = Staleness(self.store, self.clock)
            own.append(self._repeat("looking for recorded results", self.reuse.look, pause, looked.is_stale))
        if self.retention is not None:
            pause = partial(self.clock.sleep, RETENTION_SECONDS)
            own.append(self._repeat("removing what is old", self.retention.look, pause))
        own += [each.follow() for each in (self.notifier, self.webhooks) if each is not None]
        return [*own, self.leases.keep(), self.tail.follow(), self.expiry.watch()]

    async def _dispatch(self) -> None:
        """Hand out work whenever there may be room and work. First what others left, then what is new."""
        await self._look_at_leftovers()
        if self.recovery.awaits_first_answer:
            await self.clock.wait_while(lambda: self.recovery.awaits_first_answer, FIRST_ANSWER_SECONDS)
            await self._look_at_leftovers()
        self._has_recovered.set()
        while True:
            self.signals.work.clear()
            if not await self._attempt("leasing jobs", self.dispatcher.hand_out):
                await self.clock.sleep(LEASE_PAUSE)
            await self.dispatcher.wait()

    async def _recover(self) -> None:
        leftovers = Staleness(self.store, self.clock)
        while True:
            await self.clock.sleep(RECOVERY_SECONDS)
            if not leftovers.is_stale() and not self.recovery.has_unattended:
                continue
            await self._look_at_leftovers()
            await self._look_at_servers()
            await self._attempt("looking at what was measured", self.lookup.refresh)

    def _note_change(self) -> None:
        """Something changed from outside: there may be work, which does not wait for the other checks."""
        self.dispatcher.front.forget()
        self.signals.work.set()
        self.signals.change.set()

    async def _check_changes(self) -> None:
        """After a change from outside: what was cancelled or reset is noticed at once."""
        while True:
            await self.signals.change.wait()
            self.signals.change.clear()
            await self._look_at_servers()
            await self._attempt("looking at what changed", self.leases.check)
            if self.runs or self.recovery.has_unattended:  # else it can wait for the next round
                await self._look_at_leftovers()
            await self.clock.sleep(CHECK_PAUSE)

    async def _look_at_leftovers(self) -> None:
        await self._attempt("looking at what others left", self.recovery.look)

    async def _look_at_servers(self) -> None:
        await self._attempt("looking at servers that are out of work or stuck", self.states.look)

    async def _until_idle(self, is_quiet: Callable[[], bool]) -> None:
        await self._has_recovered.wait()  # what is to be taken back is not seen in the queue
        while True:
            with contextlib.suppress(StoreError):
                is_free = is_quiet() and not self.runs and not self.recovery.withdrawing
                if is_free and await self.idleness.is_reached():
                    return
                if is_quiet() and await self.idleness.is_out_of_reach():
                    return
            await self.clock.sleep(CHECK_PAUSE)

    async def _show_live(self) -> None:
        while True:
            self.lock.beat()
            await self.live.show(self.runs)
            await self.clock.sleep(LIVE_SECONDS)

    async def _repeat(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        pause: Callable[[], Awaitable[object]],
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        while True:
            if is_due():
                await self._attempt(what, work)
            await pause()

    async def _attempt(self, what: str, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something that is done again later: only a database that needs a person ends the agent."""
        try:
            await work()
        except DatabaseUnusable:
            raise
        except StoreError as error:
            log.error("%s: %s", what, error)
        except Exception:
            log.exception("%s failed", what)
        else:
            return True
        return False
