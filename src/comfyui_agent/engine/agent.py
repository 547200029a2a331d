"""The agent: keeps every server fed from the queue until it is told to stop or nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from comfyui_agent.clock import SYSTEM_CLOCK, Clock
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.engine.batch_upkeep import Expiry, GridBuilder
from comfyui_agent.engine.collector import Collector
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.idleness import Idleness
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.patience import PatienceLimits
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.run import Run, RunParts
from comfyui_agent.engine.runs import Dispatcher, Runs, Signals
from comfyui_agent.engine.sender import Sender
from comfyui_agent.engine.server_inputs import ServerInputs
from comfyui_agent.engine.server_states import ServerAlerts, ServerStates
from comfyui_agent.engine.settlement import Settlement
from comfyui_agent.engine.unowned_prompts import UnownedPrompts
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.fleet.fleet import Connect, Fleet, connect_over_http
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
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
LIVE_SECONDS = 0.5
FIRST_ANSWER_SECONDS = 3.0
NEVER = 10 * 365 * 24 * 3600.0


class Agent:
    """One process that works the queue off. Several may share one database.

    With `only`, it takes nothing but the jobs of that batch, reserved ones included. One that `is_quiet` asks its
    servers nothing more often than every `poll_interval_ms`. Tests give it a clock, chances and connections.
    """

    def __init__(
        self,
        store: Store,
        workspace: Workspace,
        bus: Bus | None = None,
        *,
        only: str | None = None,
        is_quiet: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        chance: Callable[[], float] = random.random,
        connect: Connect | None = None,
    ) -> None:
        """The one place where the parts of an agent meet."""
        settings, comfyui = workspace.settings, workspace.settings.comfyui
        policy = RetryPolicy(settings.retry_limit, settings.retry_backoff_seconds, settings.poison_limit)
        patience = PatienceLimits(comfyui.timeout_seconds, comfyui.stall_seconds, comfyui.failover_seconds)
        lock = AgentLock(workspace.locks, is_part=only is not None)
        signals, recorder, inputs = Signals(), Recorder(store, clock), ServerInputs(workspace, clock)
        client_prefix = f"e3-{store.identity}-"  # the client ids of all agents of this database start with it
        limits = Limits(
            lost_after_seconds=NEVER,
            poll_seconds=settings.poll_interval_ms / 1000,
            is_quiet=is_quiet,
            keep_free_bytes=round(settings.paths.keep_free_gb * 1024**3),
        )
        connect = connect or connect_over_http(client_prefix + lock.worker, limits, clock)
        fleet = Fleet(comfyui.urls, connect, limits, clock)
        leases = Leases(store, recorder, clock, lock.worker, settings.lease_seconds)
        collector = Collector(store, workspace, leases, recorder, clock, lock.worker)
        sender = Sender(recorder, fleet, PromptBuilder(store, workspace), inputs, clock, settings.ui.previews)
        settlement = Settlement(recorder, fleet, policy, clock, chance, collector.remove)
        parts = RunParts(fleet, sender, collector, settlement, recorder, patience, clock, signals.work.set)
        runs = Runs(fleet, leases, signals, clock, partial(Run, parts=parts))
        self._store, self._lock, self._clock, self._signals = store, lock, clock, signals
        self._leases, self._runs = leases, runs
        self._dispatcher = Dispatcher(
            store, fleet, runs, signals, clock, lock.worker, settings, policy.longest_backoff, only
        )
        self._recovery = Recovery(store, workspace, lock, fleet, leases, runs, clock, collector.remove, only)
        self._unowned = UnownedPrompts(store, fleet, clock, client_prefix, patience)
        self._alerts = ServerAlerts(recorder, self._recovery, signals, clock, inputs.forget)
        fleet.on_health, fleet.on_queue = self._alerts.see_health, self._unowned.see_queue
        self._states = ServerStates(store, fleet, signals.work)
        self._idleness = Idleness(store, self._states, clock, lock.worker, only, patience.failover)
        self._grids = GridBuilder(store, workspace, recorder, lock, only)
        self._expiry = Expiry(store, settings.batch_expiry_seconds, runs.all, clock)
        self._live = LiveFile(workspace.locks, lock.worker)
        self.worker, self.fleet, self.bus = lock.worker, fleet, bus or Bus()
        self.bus.subscribe(self._grids.see_event)
        self._tail = EventTail(store, MetricsLog(workspace.metrics_log, store.identity), self.bus, clock)
        self.first_event = 0
        self.is_ready = asyncio.Event()
        """Set when failures are being counted, or the agent has ended."""
        self._has_recovered = asyncio.Event()

    @property
    def blocked(self) -> str:
        """Why it ended although work is left; empty if it did not."""
        return self._idleness.blocked

    @property
    def runs(self) -> list[Run]:
        return self._runs.all()

    def close(self) -> None:
        """Release the lock file of an agent that never ran. `run` does so at its end."""
        self._lock.release()

    async def run(self, *, until_idle: bool = False, is_quiet: Callable[[], bool] = lambda: True) -> int:
        """Work until cancelled or, if asked, until nothing is pending and `is_quiet()`. Returns how many jobs failed.

        It also ends when nothing can go on; `blocked` then says why.
        """
        loops: list[asyncio.Task[None]] = []
        seconds = LEAVING_SECONDS
        try:
            await self._store.run(ops.register_agent, self.worker, self._lock.host, str(self._lock.path))
            self.first_event = await self._tail.begin()
            self.is_ready.set()
            await self.fleet.start()
            self._store.on_change(self._signals.change.set)
            await self._look_at_servers()
            loops += [asyncio.create_task(work) for work in self._loops()]
            if until_idle:
                loops.append(asyncio.create_task(self._until_idle(is_quiet)))
            done, _ = await asyncio.wait({*loops, self._runs.fatal}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            seconds = UNHURRIED_SECONDS
        finally:
            self.is_ready.set()
            await self._stop(loops, self._clock.now() + seconds)
        return await self._store.run(ops.failures_since, self.first_event)

    async def _stop(self, loops: list[asyncio.Task[None]], deadline: float) -> None:
        """Leave prompts at their servers, finish what is nearly home, and release everything."""
        await end_tasks(loops)
        await self._runs.stop()
        await self._alerts.stop()
        await self._recovery.stop()
        await self._unowned.stop()
        await self._until(deadline, self._release())
        self._live.remove()
        self._tail.close()
        await self._until(deadline + CLOSING_SECONDS, self.fleet.stop())
        self._lock.release()

    async def _release(self) -> None:
        with contextlib.suppress(StoreError):
            await self._store.run(ops.release_jobs, self.worker)
            await self._store.run(ops.release_grids, self.worker)
            await self._states.look_at_states()  # the last run at a server that is drained may have ended just now
            await self._tail.catch_up()
            await self._store.run(ops.remove_agent, self.worker)

    async def _until(self, deadline: float, work: Coroutine[Any, Any, None]) -> None:
        """Do something, if it is done in time."""
        task = asyncio.create_task(work)
        await self._clock.first_of({task}, max(0.0, deadline - self._clock.now()))
        await end_tasks([task])

    # The loops.

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        own = [self._recover(), self._check_changes(), self._dispatch(), self._show_live(), self._make_grids()]
        return [*own, self._leases.keep(), self._tail.follow(), self._expiry.watch()]

    async def _dispatch(self) -> None:
        """Hand out work whenever there may be room and work. First what others left, then what is new."""
        await self._look_at_leftovers()
        if self._recovery.awaits_first_answer:
            await self._clock.wait_while(lambda: self._recovery.awaits_first_answer, FIRST_ANSWER_SECONDS)
            await self._look_at_leftovers()
        self._has_recovered.set()
        while True:
            self._signals.work.clear()
            if not await self._attempt("leasing jobs", self._dispatcher.hand_out):
                await self._clock.sleep(LEASE_PAUSE)
            await self._dispatcher.wait()

    async def _recover(self) -> None:
        while True:
            await self._clock.sleep(RECOVERY_SECONDS)
            await self._look_at_leftovers()
            await self._look_at_servers()

    async def _check_changes(self) -> None:
        """After a change from outside: what was cancelled or reset is noticed at once."""
        while True:
            await self._signals.change.wait()
            self._signals.change.clear()
            self._signals.work.set()
            await self._look_at_servers()
            await self._attempt("looking at what changed", self._leases.check)
            await self._look_at_leftovers()
            await self._clock.sleep(CHECK_PAUSE)

    async def _look_at_leftovers(self) -> None:
        await self._attempt("looking at what others left", self._recovery.look)

    async def _look_at_servers(self) -> None:
        await self._attempt("looking at servers that are out of work or stuck", self._states.look)

    async def _until_idle(self, is_quiet: Callable[[], bool]) -> None:
        await self._has_recovered.wait()  # what is to be taken back is not seen in the queue
        while True:
            with contextlib.suppress(StoreError):
                is_free = is_quiet() and not self.runs and not self._recovery.withdrawing
                if is_free and await self._idleness.is_reached():
                    return
                if is_quiet() and await self._idleness.is_out_of_reach():
                    return
            await self._clock.sleep(CHECK_PAUSE)

    async def _show_live(self) -> None:
        while True:
            await self._live.show(self.runs)
            await self._clock.sleep(LIVE_SECONDS)

    async def _make_grids(self) -> None:
        while True:
            self._grids.due.clear()
            await self._attempt("making grids", self._grids.make_all)
            await self._clock.wait_for(self._grids.due, GRID_SECONDS)

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
