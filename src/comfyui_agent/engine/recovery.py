"""What dead agents and cancelled jobs left: prompts at servers are taken over or taken back, files are removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.downloads import remove_leftovers
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.kinds import FOLDERS
from comfyui_agent.engine.live_files import remove_stale
from comfyui_agent.engine.result_names import stem_of
from comfyui_agent.files.connect import open_files
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.pools import PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Leased, OpenAttempt

log = logging.getLogger(__name__)

OWN_GRACE = 3.0
FOREIGN_SERVER_GRACE = 10.0
WITHDRAW_SECONDS = 10.0
GONE_SECONDS = 60.0
TAKEN_BACK: Mapping[Cancellation, str] = {
    Cancellation.REMOVED: "taken back before it ran",
    Cancellation.INTERRUPTED: "interrupted",
    Cancellation.ENDED_BEFORE: "it ended after it was not wanted any more: its result was discarded",
    Cancellation.LEFT_RUNNING: "it runs on, its server cannot interrupt one prompt: its result is discarded",
    Cancellation.STILL_RUNNING: "interrupted, and it has not stopped yet: its result is discarded",
}


class KnownServers(Protocol):
    """What recovery needs of the fleet."""

    @property
    def servers(self) -> Mapping[str, FleetServer]: ...

    def get(self, name: str) -> Awaitable[FleetServer]: ...


class HeldLeases(Protocol):
    seconds: float

    def holds(self, job_id: JobId, fence: int) -> bool: ...


class StartedRuns(Protocol):
    def has(self, prompt_id: str) -> bool: ...

    async def start(self, leased: Leased, asked_at: float) -> None: ...


class Identity(Protocol):
    """By what the database knows this agent, and the lock files of dead ones."""

    worker: str
    host: str

    def sweep(self) -> Iterable[str]: ...


@dataclass
class Recovery:
    """Goes through the runs without an outcome, again and again. Those that nobody cares for become ours.

    With `only`, it cares for the runs of one batch; else for all but those that are reserved for bursts.
    """

    store: OperationRunner
    workspace: Workspace
    lock: Identity
    fleet: KnownServers
    leases: HeldLeases
    runs: StartedRuns
    clock: Clock
    remove_files: Callable[[Sequence[str]], Awaitable[None]]
    """Removes results that are nobody's any more, and uploads that ended after their run was dropped."""
    only: str | None = None
    withdrawing: set[int] = field(default_factory=set, init=False)
    """Attempts whose prompts are being taken back."""
    lost_at: set[str] = field(default_factory=set, init=False)
    """Servers that stopped answering, and that jobs wait for."""
    _round: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _seen: dict[int, float] = field(default_factory=dict, init=False)
    tasks: BackgroundTasks = field(default_factory=lambda: BackgroundTasks("taking a prompt back"), init=False)

    @property
    def has_unattended(self) -> bool:
        """Whether there were runs at the last look that others, or nobody, care for."""
        return bool(self._seen)

    @property
    def awaits_first_answer(self) -> bool:
        """Whether a server that was lost with prompts has not been probed yet: it may still have them."""
        known = (self.fleet.servers.get(name) for name in self.lost_at)
        return any(server is not None and server.health is Health.UNKNOWN for server in known)

    async def look(self) -> None:
        """One round. Rounds do not overlap."""
        async with self._round:
            await bury_dead(self.store, self.lock.host)
            await self._look_at_attempts()
            await self.remove_files(())
            await self.store.run(ops.put_back_unattended, self.lock.host)
            await self.store.run(ops.free_turns)
            await ops.end_members(self.store)
            while await self.store.run(ops.discard_unfinished, self.lock.host):
                log.info("a batch was removed whose creator died before it was whole")
            for worker in self.lock.sweep():
                await PUBLISHING.run(_remove_staged, self.workspace, worker)
                remove_stale(self.workspace.locks, worker)

    async def _look_at_attempts(self) -> None:
        attempts = [each for each in await self.store.run(ops.open_attempts, self.lock.host) if self._covers(each)]
        unattended = [each for each in attempts if not self.leases.holds(each.job_id, each.fence)]
        self.lost_at = {each.server for each in unattended if each.is_lost}
        self._seen = {each.attempt_id: self._seen.get(each.attempt_id, self.clock.now()) for each in unattended}
        for attempt in unattended:
            if attempt.attempt_id in self.withdrawing:
                continue
            if not attempt.is_wanted:
                if self._may_be_withdrawn(attempt):
                    server = await self.fleet.get(attempt.server)
                    self.withdrawing.add(attempt.attempt_id)
                    self.tasks.start(self._withdraw(attempt, server))
            elif self._may_be_taken(attempt):
                await self._adopt(attempt)

    def _covers(self, attempt: OpenAttempt) -> bool:
        if self.only is not None:
            return attempt.batch_id == self.only
        return not attempt.is_reserved or not attempt.is_wanted

    def _waited(self, attempt: OpenAttempt) -> float:
        return self.clock.now() - self._seen[attempt.attempt_id]

    def _may_be_withdrawn(self, attempt: OpenAttempt) -> bool:
        """Whoever ran it takes it back once it has let go; others only if that agent is gone or does not wake up."""
        if attempt.is_lost or attempt.attempt_worker in (None, self.lock.worker):
            return not self.runs.has(attempt.prompt_id)
        return self._waited(attempt) > self.leases.seconds or attempt.is_attempt_worker_dead

    def _may_be_taken(self, attempt: OpenAttempt) -> bool:
        if attempt.is_lost and attempt.status == "pending":
            server = self.fleet.servers.get(attempt.server)
            return server is not None and server.answers  # what it still has is taken over, the rest is known then
        if attempt.server not in self.fleet.servers and self._waited(attempt) < FOREIGN_SERVER_GRACE:
            return False  # an agent that has this server may come first
        if attempt.status == "pending":
            return True
        if attempt.worker == self.lock.worker:
            return self._waited(attempt) >= OWN_GRACE  # leased a moment ago and not yet begun, or dropped by us
        return attempt.has_expired or attempt.is_worker_dead

    async def _adopt(self, attempt: OpenAttempt) -> None:
        asked_at = self.clock.now()
        leased = await self.store.run(ops.adopt_attempt, attempt, self.lock.worker, self.leases.seconds)
        self._seen.pop(attempt.attempt_id, None)
        if leased is None:
            return
        log.info("%s: taken over from %s", leased.config_name, leased.previous_worker)
        if attempt.is_attempt_worker_dead:  # a living agent removes its own
            await self._remove_fetched(leased)
        await self.runs.start(leased, asked_at)

    async def _remove_fetched(self, leased: Leased) -> None:
        """Remove what the agent before had fetched for a run and not named."""
        worker = leased.previous_worker
        if worker:
            try:
                stem, results = stem_of(leased, self.workspace), self.workspace.results
                folder = open_files(results, self.workspace.shown(stem)).staging(stem.parent)
                await PUBLISHING.run(remove_leftovers, folder, worker)
            except (OSError, ValueError) as error:
                log.warning("leftovers of %s could not be removed: %s", worker, error)

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
            self.withdrawing.discard(attempt.attempt_id)

    async def _close(self, attempt: OpenAttempt, message: str) -> None:
        strays = await self.store.run(ops.withdraw_attempt, attempt, message)
        await self.remove_files(strays or [])


def _remove_staged(workspace: Workspace, worker: str) -> None:
    """Remove what a dead agent had fetched and not named, where results usually go."""
    if workspace.results.url:
        remove_leftovers(workspace.results.staged, worker)
        return
    for kind in sorted(set(FOLDERS.values())):
        try:
            folder: Path = workspace.finished(kind)
            for place in (folder, *(each for each in folder.glob("*") if each.is_dir())):
                remove_leftovers(place, worker)
        except (OSError, ValueError) as error:
            log.warning("leftovers of %s could not be removed: %s", worker, error)
