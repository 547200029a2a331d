"""What dead agents, cancelled jobs and late posts left at the servers: taken over, or taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from comfyui_agent.comfy.answers import QueueView
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.downloads import remove_leftovers
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.fleet import Fleet, FleetServer, Health
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import FOLDERS
from comfyui_agent.engine.clock import now
from comfyui_agent.engine.collector import Collector
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_files import remove_stale
from comfyui_agent.engine.result_names import stem_of
from comfyui_agent.engine.thread_pools import PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.store.records import Leased, OpenAttempt
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

OWN_GRACE = 3.0
FOREIGN_SERVER_GRACE = 10.0
WITHDRAW_SECONDS = 10.0
GONE_SECONDS = 60.0
TELL_AGAIN_SECONDS = 30.0
TAKEN_BACK = {
    Cancellation.REMOVED: "taken back before it ran",
    Cancellation.INTERRUPTED: "interrupted",
    Cancellation.ENDED_BEFORE: "it ended after it was not wanted any more: its result was discarded",
    Cancellation.LEFT_RUNNING: "it runs on, its server cannot interrupt one prompt: its result is discarded",
    Cancellation.STILL_RUNNING: "interrupted, and it has not stopped yet: its result is discarded",
}


@dataclass
class Stopping:
    """A prompt that nobody wants and that has not stopped: since when it was told to, and when it was told last."""

    server: str
    since: float
    told_at: float


class Recovery:
    """Goes through the runs without an outcome, again and again. What nobody cares for becomes ours."""

    def __init__(
        self,
        *,
        store: Store,
        fleet: Fleet,
        leases: Leases,
        lock: AgentLock,
        workspace: Workspace,
        client_prefix: str,
        collecting: Collector,
        take: Callable[[Leased, float], Awaitable[None]],
        is_running: Callable[[str], bool],
        is_ours: Callable[[OpenAttempt], bool],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._leases = leases
        self._lock = lock
        self._workspace = workspace
        self._client_prefix = client_prefix
        self._collecting = collecting
        self._take = take
        self._is_running = is_running
        self._is_ours = is_ours
        self._looking = asyncio.Lock()
        self._seen: dict[int, float] = {}
        self._withdrawing: set[int] = set()
        self._deleting: set[str] = set()
        self._stopping: dict[str, Stopping] = {}
        self._lost_at: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether prompts are being taken back."""
        return bool(self._withdrawing)

    @property
    def has_lost(self) -> bool:
        """Whether jobs wait for servers that stopped answering."""
        return bool(self._lost_at)

    @property
    def awaits_first_answer(self) -> bool:
        """Whether a server that was lost with prompts has not been looked at yet: it may have them still."""
        known = (self._fleet.servers.get(name) for name in self._lost_at)
        return any(server is not None and server.health is Health.UNKNOWN for server in known)

    async def look(self) -> int:
        """One round; how many runs were taken over. Rounds do not overlap."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> int:
        await bury_dead(self._store, self._lock.host)
        attempts = [each for each in await self._store.run(ops.open_attempts, self._lock.host) if self._is_ours(each)]
        unattended = [each for each in attempts if not self._leases.holds(each.job_id, each.fence)]
        self._lost_at = {each.server for each in unattended if each.is_lost}
        ids = {each.attempt_id for each in unattended}
        self._seen = {key: at for key, at in self._seen.items() if key in ids}
        taken = 0
        for attempt in unattended:
            self._seen.setdefault(attempt.attempt_id, now())
            if not attempt.is_wanted:
                if self._may_be_withdrawn(attempt):
                    await self._start_withdrawing(attempt)
            elif attempt.attempt_id not in self._withdrawing and self._may_be_taken(attempt):
                taken += await self._adopt(attempt)
        await self._store.run(ops.put_back_unattended, self._lock.host)
        await self._store.run(ops.free_turns)
        await ops.end_members(self._store)
        while await self._store.run(ops.discard_unfinished, self._lock.host):
            log.info("what a door had begun to put in before it died was removed")
        for worker in self._lock.sweep():
            await PUBLISHING.run(self._remove_staged, worker)
            remove_stale(self._workspace.locks, worker)
        return taken

    def _may_be_withdrawn(self, attempt: OpenAttempt) -> bool:
        """Whoever ran it takes it back, once it has let go; others only if that agent is gone, or does not wake up."""
        if attempt.is_lost or attempt.attempt_worker in (None, self._lock.worker):
            return not self._is_running(attempt.prompt_id)
        waited = now() - self._seen[attempt.attempt_id]
        return waited > self._leases.seconds or attempt.is_attempt_worker_dead

    def _remove_staged(self, worker: str) -> None:
        """What a dead agent had fetched and not named, where results usually go."""
        for kind in sorted(set(FOLDERS.values())):
            try:
                folder = self._workspace.finished(kind)
                for place in (folder, *(each for each in folder.glob("*") if each.is_dir())):
                    remove_leftovers(place, worker)
            except (OSError, ValueError) as error:
                log.warning("leftovers of %s could not be removed: %s", worker, error)

    def _may_be_taken(self, attempt: OpenAttempt) -> bool:
        waited = now() - self._seen[attempt.attempt_id]
        if attempt.is_lost and attempt.status == "pending":
            server = self._fleet.servers.get(attempt.server)
            return server is not None and server.answers  # what it still has is taken over, the rest is known then
        if attempt.server not in self._fleet.servers and waited < FOREIGN_SERVER_GRACE:
            return False  # an agent that has this server may come first
        if attempt.status == "pending":
            return True
        if attempt.worker == self._lock.worker:
            return waited >= OWN_GRACE  # leased a moment ago, and not yet begun; else dropped by us
        return attempt.has_expired or attempt.is_worker_dead

    async def _adopt(self, attempt: OpenAttempt) -> int:
        asked_at = now()
        leased = await self._store.run(ops.adopt_attempt, attempt, self._lock.worker, self._leases.seconds)
        self._seen.pop(attempt.attempt_id, None)
        if leased is None:
            return 0
        log.info("%s: taken over from %s", leased.config_name, leased.previous_worker)
        if attempt.is_attempt_worker_dead:  # a living one removes its own
            await self._clean_up_after(leased)
        await self._take(leased, asked_at)
        return 1

    async def _clean_up_after(self, leased: Leased) -> None:
        """Remove what the agent before had fetched and not named."""
        worker = leased.previous_worker
        if not worker:
            return
        try:
            folder = stem_of(leased, self._workspace).parent
            await PUBLISHING.run(remove_leftovers, folder, worker)
        except (OSError, ValueError) as error:
            log.warning("leftovers of %s could not be removed: %s", worker, error)

    async def _start_withdrawing(self, attempt: OpenAttempt) -> None:
        if attempt.attempt_id not in self._withdrawing:
            self._withdrawing.add(attempt.attempt_id)
            server = await self._fleet.get(attempt.server)
            self._spawn(self._withdraw(attempt, server))

    async def _withdraw(self, attempt: OpenAttempt, server: FleetServer) -> None:
        """Take a prompt back whose job was cancelled, deleted, or set to another state by hand."""
        try:
            if server.health is Health.DOWN and not server.is_retired:
                if attempt.is_lost or server.seconds_down() > GONE_SECONDS:  # nothing waits for it any longer
                    await self._close(attempt, "its server is away: the prompt is deleted should it come back with it")
                return  # later, when it can be asked
            result = await server.client.cancel(attempt.prompt_id, timeout=WITHDRAW_SECONDS)
            await self._close(attempt, TAKEN_BACK[result])
        except ComfyError as error:
            if server.is_retired:
                await self._close(attempt, "its server is not used any more")
            log.info("prompt %s could not be taken back yet: %s", attempt.prompt_id, error.message)
        finally:
            self._withdrawing.discard(attempt.attempt_id)

    async def _close(self, attempt: OpenAttempt, words: str) -> None:
        strays = await self._store.run(ops.withdraw_attempt, attempt, words)
        await self._collecting.remove(strays or [])

    def see_queue(self, server: FleetServer, view: QueueView) -> None:
        """A look at a server's queue: prompts of ours that no open run owns came too late, and go."""
        ours = {
            prompt.prompt_id
            for prompt in (*view.running, *view.pending)
            if prompt.client_id.startswith(self._client_prefix) and prompt.prompt_id not in server.at_work
        }
        for prompt_id in [
            key for key, each in self._stopping.items() if each.server == server.name and key not in ours
        ]:
            del self._stopping[prompt_id]
        fresh = {each for each in ours - self._deleting if self._is_to_be_told(each)}
        if fresh:
            self._deleting |= fresh
            self._spawn(self._delete_unowned(server, fresh))

    def _is_to_be_told(self, prompt_id: str) -> bool:
        stopping = self._stopping.get(prompt_id)
        return stopping is None or now() - stopping.told_at > TELL_AGAIN_SECONDS

    async def _delete_unowned(self, server: FleetServer, prompt_ids: set[str]) -> None:
        try:
            for prompt_id in prompt_ids - await self._store.run(ops.owned_prompts):
                if prompt_id not in self._stopping and prompt_id not in server.stuck:
                    log.warning("%s: prompt %s is of a run that was given up, and is deleted", server.name, prompt_id)
                await self._stop_unowned(server, prompt_id)
        except ComfyError as error:
            log.info("%s: %s", server.name, error.message)
        finally:
            self._deleting -= prompt_ids

    async def _stop_unowned(self, server: FleetServer, prompt_id: str) -> None:
        """Delete or interrupt a prompt. One that does not stop for too long holds its server up: it is stuck."""
        since = self._stopping[prompt_id].since if prompt_id in self._stopping else now()
        result = await server.client.cancel(prompt_id, timeout=WITHDRAW_SECONDS)
        if not result.runs_on:
            self._stopping.pop(prompt_id, None)
            return
        self._stopping[prompt_id] = Stopping(server.name, since, now())
        settings = self._workspace.settings.comfyui
        patience = settings.stall_seconds if result is Cancellation.STILL_RUNNING else settings.timeout_seconds
        if prompt_id in server.stuck or now() - since > patience:
            reason = "it does not stop" if result is Cancellation.STILL_RUNNING else "it does not end"
            self._fleet.set_aside(server, prompt_id, reason)
            await self._store.run(ops.note_stuck, server.name, prompt_id, reason)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("recovery failed", exc_info=task.exception())

    async def stop(self) -> None:
        await end_tasks(self._tasks)
