"""The agent: keeps every server fed from the queue until it is told to stop or nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.engine.batch_expiry import Expiry
from comfyui_agent.engine.dispatcher import Dispatcher
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.grid_builder import GridBuilder
from comfyui_agent.engine.idleness import Idleness
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.run import Run
from comfyui_agent.engine.runs import Runs
from comfyui_agent.engine.server_alerts import ServerAlerts
from comfyui_agent.engine.server_states import ServerStateWatcher
from comfyui_agent.engine.signals import Signals
from comfyui_agent.engine.stuck_servers import StuckServers
from comfyui_agent.engine.unowned_prompts import UnownedPrompts
from comfyui_agent.events.bus import Bus
from comfyui_agent.fleet.fleet import Fleet
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
LIVE_SECONDS = 0.5
FIRST_ANSWER_SECONDS = 3.0


@dataclass(frozen=True)
class AgentParts:
    """What an agent consists of; `engine/composition.py` puts them together."""

    store: Store
    lock: AgentLock
    clock: Clock
    bus: Bus
    signals: Signals
    fleet: Fleet
    leases: Leases
    runs: Runs
    dispatcher: Dispatcher
    recovery: Recovery
    unowned: UnownedPrompts
    alerts: ServerAlerts
    states: ServerStateWatcher
    stuck: StuckServers
    tail: EventTail
    grids: GridBuilder
    expiry: Expiry
    live: LiveFile
    idleness: Idleness


class Agent:
    """One process that works the queue off. Several may share one database."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        self.worker = parts.lock.worker
        self.fleet = parts.fleet
        self.bus = parts.bus
        self.first_event = 0
        self.is_ready = asyncio.Event()
        """Set when failures are being counted, or the agent has ended."""
        self._has_recovered = asyncio.Event()

    @property
    def blocked(self) -> str:
        """Why it ended although work is left; empty if it did not."""
        return self._parts.idleness.blocked

    @property
    def runs(self) -> list[Run]:
        return self._parts.runs.all()

    def close(self) -> None:
        """Release the lock file of an agent that never ran. `run` does so at its end."""
        self._parts.lock.release()

    async def run(self, *, until_idle: bool = False, is_quiet: Callable[[], bool] = lambda: True) -> int:
        """Work until cancelled or, if asked, until nothing is pending and `is_quiet()`. Returns how many jobs failed.

        It also ends when nothing can go on; `blocked` then says why.
        """
        parts = self._parts
        loops: list[asyncio.Task[None]] = []
        seconds = LEAVING_SECONDS
        try:
            self.first_event = await parts.tail.begin()
            self.is_ready.set()
            await parts.fleet.start()
            parts.store.on_change(parts.signals.note_change)
            await self._look_at_servers()
            loops += [asyncio.create_task(work) for work in self._loops()]
            ends: set[asyncio.Future[None]] = {*loops, parts.runs.fatal}
            if until_idle:
                loops.append(asyncio.create_task(self._until_idle(is_quiet)))
                ends.add(loops[-1])
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            seconds = UNHURRIED_SECONDS
        finally:
            self.is_ready.set()
            await self._stop(loops, parts.clock.now() + seconds)
        return await parts.store.run(ops.failures_since, self.first_event)

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        parts = self._parts
        own = [self._recover(), self._check_changes(), self._dispatch(), self._show_live()]
        return [*own, parts.leases.keep(), parts.tail.follow(), parts.grids.keep_making(), parts.expiry.watch()]

    async def _stop(self, loops: list[asyncio.Task[None]], deadline: float) -> None:
        """Leave prompts at their servers, finish what is nearly home, and release everything."""
        parts = self._parts
        await end_tasks(loops)
        await parts.runs.stop()
        await parts.alerts.stop()
        await parts.recovery.stop()
        await parts.unowned.stop()
        await self._until(deadline, self._release())
        parts.live.remove()
        parts.tail.close()
        await self._until(deadline + CLOSING_SECONDS, parts.fleet.stop())
        parts.lock.release()

    async def _release(self) -> None:
        parts = self._parts
        with contextlib.suppress(StoreError):
            await parts.store.run(ops.release_jobs, self.worker)
            await parts.store.run(ops.release_grids, self.worker)
            await parts.states.look()  # the last run at a server that is drained may have ended just now
            await parts.tail.catch_up()

    async def _until(self, deadline: float, work: Coroutine[Any, Any, None]) -> None:
        """Do something, if it is done in time."""
        task = asyncio.create_task(work)
        await self._parts.clock.first_of({task}, max(0.0, deadline - self._parts.clock.now()))
        await end_tasks([task])

    # The loops.

    async def _dispatch(self) -> None:
        """Hand out work whenever there may be room and work. First what others left, then what is new."""
        parts = self._parts
        await self._attempt("looking at what others left", parts.recovery.look)
        if parts.recovery.awaits_first_answer:
            await parts.clock.wait_while(lambda: parts.recovery.awaits_first_answer, FIRST_ANSWER_SECONDS)
            await self._attempt("looking at what lost servers have", parts.recovery.look)
        self._has_recovered.set()
        while True:
            parts.signals.work.clear()
            if not await self._attempt("leasing jobs", parts.dispatcher.hand_out):
                await parts.clock.sleep(LEASE_PAUSE)
            await parts.dispatcher.wait()

    async def _recover(self) -> None:
        while True:
            await self._parts.clock.sleep(RECOVERY_SECONDS)
            await self._attempt("looking at what others left", self._parts.recovery.look)
            await self._look_at_servers()

    async def _check_changes(self) -> None:
        """After a change from outside: what was cancelled or reset is noticed at once."""
        parts = self._parts
        while True:
            await parts.signals.change.wait()
            parts.signals.change.clear()
            parts.signals.wake()
            await self._look_at_servers()
            await self._attempt("looking at what changed", parts.leases.check)
            await self._attempt("looking at what others left", parts.recovery.look)
            await parts.clock.sleep(CHECK_PAUSE)

    async def _look_at_servers(self) -> None:
        """Which servers people have taken out of work, which are drained by now, and which are stuck."""
        await self._attempt("looking at servers that are out of work", self._parts.states.look)
        await self._attempt("looking at servers that are stuck", self._parts.stuck.look)

    async def _until_idle(self, is_quiet: Callable[[], bool]) -> None:
        parts = self._parts
        await self._has_recovered.wait()  # what is to be taken back is not seen in the queue
        while True:
            with contextlib.suppress(StoreError):
                is_free = is_quiet() and not parts.runs.all() and not parts.recovery.is_busy
                if is_free and await parts.idleness.is_reached():
                    return
                if is_quiet() and await parts.idleness.is_out_of_reach():
                    return
            await parts.clock.sleep(CHECK_PAUSE)

    async def _show_live(self) -> None:
        while True:
            await self._parts.live.show(self._parts.runs.all())
            await self._parts.clock.sleep(LIVE_SECONDS)

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
