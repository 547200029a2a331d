"""The agent: keeps every server fed from the queue until it is told to stop or nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from comfyui_agent.comfy.fleet import Fleet, FleetServer, Health
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.tasks import end_tasks, wait_until_set, wait_while
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.batch_expiry import Expiry
from comfyui_agent.engine.clock import now
from comfyui_agent.engine.collector import Collector
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.grid_builder import GridBuilder
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_files import LiveFile, live_run, preview_of
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.run import Rules, Run
from comfyui_agent.engine.server_inputs import ServerInputs
from comfyui_agent.engine.server_states import ServerStateWatcher
from comfyui_agent.engine.stuck_servers import StuckServers, words_of
from comfyui_agent.engine.thread_pools import RECORDING
from comfyui_agent.engine.write_retry import write_with_retry
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.records import Leased, OpenAttempt, Window
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

RECOVERY_SECONDS = 2.0
COLLECTING_GRACE = 0.6
LEAVING_SECONDS = 0.8
UNHURRIED_SECONDS = 10.0
CLOSING_SECONDS = 0.2
CHECK_PAUSE = 0.2
BUSY_SECONDS = 0.05
LIVE_SECONDS = 0.5
LEFTOVER_SECONDS = 10.0
FIRST_ANSWER_SECONDS = 3.0
RETURN_SECONDS = 1.0
NEVER = 10 * 365 * 24 * 3600.0


class Agent:
    """One process that works the queue off. Several may share one database."""

    def __init__(
        self,
        store: Store,
        workspace: Workspace,
        bus: Bus | None = None,
        *,
        only: str | None = None,
        is_quiet: bool = False,
    ) -> None:
        """With `only` the id of a batch, nothing but its jobs are taken, those that are reserved included.

        One that `is_quiet` asks its servers nothing more often than every `poll_interval_ms`.
        """
        settings = workspace.settings
        self._store = store
        self._settings = settings
        self._only = only
        self._lock = AgentLock(workspace.locks, is_part=only is not None)
        self.worker = self._lock.worker
        self.bus = bus or Bus()
        self._policy = RetryPolicy(settings.retry_limit, settings.retry_backoff_seconds, settings.poison_limit)
        client_prefix = f"e3-{store.identity}-"
        self._leases = Leases(store, self.worker, settings.lease_seconds)
        self.fleet = Fleet(
            settings.comfyui.urls,
            client_prefix + self.worker,
            Limits(
                lost_after_seconds=NEVER,
                poll_seconds=settings.poll_interval_ms / 1000,
                is_quiet=is_quiet,
                keep_free_bytes=round(settings.paths.keep_free_gb * 1024**3),
            ),
            on_health=self._tell_health,
            on_queue=lambda server, view: self._recovery.see_queue(server, view),
        )
        self._halting = ServerStateWatcher(store, self.fleet, self._wake_up)
        self._stuck = StuckServers(store, self.fleet)
        self._tail = EventTail(store, MetricsLog(workspace.metrics_log, store.identity), self.bus)
        self._collecting = Collector(
            store,
            workspace,
            self._leases,
            self.worker,
            self._alert_disk,
            patience=settings.comfyui.failover_seconds,
        )
        self._recovery = Recovery(
            store=store,
            fleet=self.fleet,
            leases=self._leases,
            lock=self._lock,
            workspace=workspace,
            client_prefix=client_prefix,
            collecting=self._collecting,
            take=self._start_run,
            is_running=lambda prompt_id: any(run.leased.prompt_id == prompt_id for run in self._runs),
            is_ours=self._is_ours,
        )
        self._gridding = GridBuilder(store, workspace, self._lock, only=only)
        self._expiry = Expiry(store, settings.batch_expiry_seconds, lambda: list(self._runs))
        self._live = LiveFile(workspace.locks, self.worker)
        self.bus.subscribe(self._hear)
        self._fitting = ServerInputs(workspace)
        self._make_run = partial(
            Run,
            fleet=self.fleet,
            store=store,
            preparing=PromptBuilder(store, workspace),
            fitting=self._fitting,
            collecting=self._collecting,
            wake=self._wake_up,
            rules=Rules(
                self._policy,
                settings.comfyui.timeout_seconds,
                settings.comfyui.stall_seconds,
                settings.comfyui.failover_seconds,
            ),
            previews=settings.ui.previews,
        )
        self._runs: dict[Run, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._has_looked = asyncio.Event()
        self._leftovers_since: float | None = None
        self._blocked_since: float | None = None
        self.blocked = ""
        """Why it ended although work is left, if it did: nothing can go on."""
        self._background: set[asyncio.Task[None]] = set()
        self._fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_event = 0
        self.is_ready = asyncio.Event()
        """Set when failures are being counted, or the end has come."""

    def close(self) -> None:
        """Give up the lock file. `run` does so at its end; this is for an agent that never ran."""
        self._lock.release()

    @property
    def runs(self) -> list[Run]:
        """What is at work now."""
        return list(self._runs)

    async def run(self, *, until_idle: bool = False, is_quiet: Callable[[], bool] = lambda: True) -> int:
        """Work until cancelled or, if asked, until nothing is pending and it `is_quiet`; how many jobs failed.

        It also ends when nothing can go on, and says why in `blocked`.
        """
        loops: list[asyncio.Task[None]] = []
        seconds = LEAVING_SECONDS
        try:
            await self._store.run(ops.register_agent, self.worker, self._lock.host, str(self._lock.path))
            self.first_event = await self._tail.begin()
            self.is_ready.set()
            await self.fleet.start()
            self._store.on_change(self._see_change)
            await self._look_at_halts()
            works = [self._leases.keep(), self._recover(), self._check(), self._dispatch(), self._tail.follow()]
            works += [self._gridding.keep_making(), self._expiry.watch(), self._show_live()]
            loops += [asyncio.create_task(work) for work in works]
            ends = {*loops, self._fatal}
            if until_idle:
                loops.append(asyncio.create_task(self._until_idle(is_quiet)))
                ends.add(loops[-1])
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            seconds = UNHURRIED_SECONDS
        finally:
            self.is_ready.set()
            await self._stop(loops, now() + seconds)
        return await self._store.run(ops.failures_since, self.first_event)

    async def _stop(self, loops: list[asyncio.Task[None]], deadline: float) -> None:
        """Leave prompts at their servers, finish what is being brought home if that is quick, and say goodbye."""
        await end_tasks([*loops, *(task for run, task in self._runs.items() if not run.is_collecting)])
        if self._runs:
            await asyncio.wait(self._runs.values(), timeout=COLLECTING_GRACE)
        await end_tasks([*self._runs.values(), *self._background])
        await self._recovery.stop()
        await self._until(deadline, self._say_goodbye())
        self._live.remove()
        self._tail.close()
        await self._until(deadline + CLOSING_SECONDS, self.fleet.stop())
        self._lock.release()

    async def _say_goodbye(self) -> None:
        with contextlib.suppress(StoreError):
            await self._store.run(ops.release_jobs, self.worker)
            await self._store.run(ops.release_grids, self.worker)
            await self._halting.look()  # the last run at a server that is drained may have ended just now
            await self._tail.catch_up()
            await self._store.run(ops.remove_agent, self.worker)

    async def _until(self, deadline: float, work: Coroutine[Any, Any, None]) -> None:
        """Do something, if it is done in time."""
        task = asyncio.create_task(work)
        await asyncio.wait({task}, timeout=max(0.0, deadline - now()))
        await end_tasks([task])

    # The dispatcher.

    async def _dispatch(self) -> None:
        """Hand out work whenever there may be room and work. First what others left, then what is new."""
        await self._attempt("looking at what others left", self._recovery.look)
        if self._recovery.awaits_first_answer:
            await wait_while(lambda: self._recovery.awaits_first_answer, FIRST_ANSWER_SECONDS)
            await self._attempt("looking at what lost servers have", self._recovery.look)
        self._has_looked.set()
        while True:
            self._wake.clear()
            if not await self._attempt("leasing jobs", self._hand_out):
                await asyncio.sleep(1.0)
            await self._sleep()

    async def _hand_out(self) -> None:
        for server, most in self._rooms():
            await self._lease_for(server, most)

    def _rooms(self) -> list[tuple[FleetServer, int]]:
        """Servers with room, the least busy first; idle ones get one job each before any gets its second."""
        ready = self.fleet.ready()
        idle = [(server, 1) for server in ready if not server.at_work] if len(ready) > 1 else []
        return idle + [(server, server.most_open) for server in ready]

    async def _lease_for(self, server: FleetServer, most: int) -> None:
        room = min(most, server.room)
        if room <= 0 or not server.takes_work:
            return
        asked_at = now()
        ids = [mint_prompt_id() for _ in range(room)]
        window = Window(
            server.name,
            server.most_open,
            is_only=not self.fleet.is_alternative_to(server),
            batch_id=self._only,
            one_page=not self._settings.books.parallel_pages,
        )
        for leased in await self._store.run(
            ops.lease_jobs, self.worker, window, ids, self._leases.seconds, longest_backoff=self._policy.longest_backoff
        ):
            await self._start_run(leased, asked_at)

    async def _sleep(self) -> None:
        """Until something changes, a job in backoff is due, or the poll interval is over."""
        if await wait_until_set(self._wake, BUSY_SECONDS):
            return
        seconds = self._settings.poll_interval_ms / 1000
        with contextlib.suppress(StoreError):
            due = await self._store.run(ops.seconds_until_next)
            seconds = min(seconds, due) if due is not None and due > 0 else seconds
        await wait_until_set(self._wake, seconds)

    async def _start_run(self, leased: Leased, asked_at: float) -> None:
        server = await self.fleet.get(leased.server)
        run = self._make_run(leased, server)
        server.at_work.add(leased.prompt_id)
        task = asyncio.create_task(run.live())
        self._runs[run] = task
        self._leases.add(leased.lease, asked_at, lambda reason: self._lose(run, reason))
        task.add_done_callback(lambda done: self._ended(run, done))

    def _lose(self, run: Run, reason: str) -> None:
        log.info("%s: dropped, %s", run.leased.config_name, reason)
        task = self._runs.get(run)
        if task is not None:
            task.cancel()

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        self._runs.pop(run, None)
        self._leases.drop(run.leased.lease)
        run.server.at_work.discard(run.leased.prompt_id)
        self._wake.set()
        if run.server.halt is ServerState.DRAINING:
            self._changed.set()  # it may have been the last run there
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        log.error("running %s failed", run.leased.config_name, exc_info=error)
        if isinstance(error, DatabaseUnusable) and not self._fatal.done():
            self._fatal.set_exception(error)

    # What runs beside it.

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

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(RECOVERY_SECONDS)
            await self._attempt("looking at what others left", self._recovery.look)
            await self._look_at_halts()

    async def _check(self) -> None:
        """After a change from outside: what was cancelled or reset is noticed at once."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._wake.set()
            await self._look_at_halts()
            await self._attempt("looking at what changed", self._leases.check)
            await self._attempt("looking at what others left", self._recovery.look)
            await asyncio.sleep(CHECK_PAUSE)

    async def _look_at_halts(self) -> None:
        """What people have taken out of work since, what is drained by now, and what is stuck."""
        await self._attempt("looking at servers that are out of work", self._halting.look)
        await self._attempt("looking at servers that are stuck", self._stuck.look)

    async def _until_idle(self, is_quiet: Callable[[], bool]) -> None:
        await self._has_looked.wait()  # what is to be taken back is not seen in the queue
        while True:
            with contextlib.suppress(StoreError):
                is_free = is_quiet() and not self._runs and not self._recovery.is_busy
                if is_free and await self._is_idle() and not await self._has_leftovers():
                    return
                if is_quiet() and await self._is_blocked():
                    return
            await asyncio.sleep(CHECK_PAUSE)

    async def _has_leftovers(self) -> bool:
        """Whether prompts that nobody wants any more are still to be taken back; not waited for for ever."""
        if not any(each.attempt_worker == self.worker for each in await self._store.run(ops.open_attempts)):
            self._leftovers_since = None
            return False
        self._leftovers_since = self._leftovers_since or now()
        return now() - self._leftovers_since < LEFTOVER_SECONDS

    async def _is_blocked(self) -> bool:
        """Whether all that is left has waited for stuck servers for as long as a server that is away is waited for."""
        blocking = await self._stuck.blocking(self._only)
        if not blocking:
            self._blocked_since = None
            return False
        self._blocked_since = self._blocked_since or now()
        if now() - self._blocked_since < self._settings.comfyui.failover_seconds:
            return False
        self.blocked = words_of(blocking)
        return True

    async def _is_idle(self) -> bool:
        return await (
            self._store.run(ops.is_batch_idle, self._only) if self._only else self._store.run(ops.is_queue_idle)
        )

    def _is_ours(self, attempt: OpenAttempt) -> bool:
        """Whether to care for a run whose agent is gone. What is reserved waits for whoever works off its batch."""
        if self._only is not None:
            return attempt.batch_id == self._only
        return not attempt.is_reserved or not attempt.is_wanted

    async def _show_live(self) -> None:
        while True:
            await RECORDING.run(self._live.write, [(live_run(run), preview_of(run)) for run in self._runs])
            await asyncio.sleep(LIVE_SECONDS)

    def _hear(self, event: Event) -> None:
        if event.name == EventName.BATCH_COMPLETED:
            self._gridding.wake()

    def _wake_up(self) -> None:
        self._wake.set()

    def _see_change(self) -> None:
        self._changed.set()

    def _tell_health(self, server: FleetServer, before: Health) -> None:
        self._wake.set()
        self._fitting.forget(server.name)  # it may come back with other models, and without what it was given
        if server.answers and self._recovery.has_lost:
            # What it was lost with is looked up; others may be back any moment with what they have.
            server.rest(RETURN_SECONDS)
            self._changed.set()
            asyncio.get_running_loop().call_later(RETURN_SECONDS, self._wake.set)
        if server.health is Health.UP:
            if before is not Health.UNKNOWN:
                self._note(Event(EventName.SERVER_UP, server=server.name))
        elif server.health is Health.DOWN:
            self._note(Event(EventName.SERVER_DOWN, server=server.name, message=server.reason))
            count = server.tell_loss()
            if count:
                words = f"gone with {count} of our prompts: {server.reason}"
                self._note(Event(EventName.ALERT_SERVER, server=server.name, message=words))

    def _alert_disk(self, message: str, leased: Leased) -> None:
        log.error("%s", message)
        self._note(Event(EventName.ALERT_DISK, job_id=leased.lease.job_id, message=message))

    def _note(self, event: Event) -> None:
        self._spawn(write_with_retry(self._store, lambda: self._store.run(ops.add_event, event)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
