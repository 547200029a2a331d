"""What dead agents and cancelled jobs left at the servers: taken over, or taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.store import operations as ops
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


class Liveness(Protocol):
    """Which agents are gone."""

    worker: str

    def is_dead(self, worker: str) -> bool: ...


class Leftovers(Protocol):
    """Files that dead agents and withdrawn runs leave behind."""

    @property
    def remove(self) -> Callable[[Sequence[str]], Awaitable[None]]: ...

    async def remove_fetched(self, leased: Leased) -> None: ...

    async def sweep(self) -> None: ...


@dataclass(frozen=True)
class RecoveryScope:
    """Which runs an agent cares for. With `only`, those of one batch; else all but what is reserved for bursts."""

    only: str | None = None

    def covers(self, attempt: OpenAttempt) -> bool:
        if self.only is not None:
            return attempt.batch_id == self.only
        return not attempt.is_reserved or not attempt.is_wanted


class Recovery:
    """Goes through the runs without an outcome, again and again. Those that nobody cares for become ours."""

    def __init__(
        self,
        store: OperationRunner,
        fleet: KnownServers,
        leases: HeldLeases,
        runs: StartedRuns,
        liveness: Liveness,
        leftovers: Leftovers,
        clock: Clock,
        scope: RecoveryScope,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._leases = leases
        self._runs = runs
        self._liveness = liveness
        self._leftovers = leftovers
        self._clock = clock
        self._scope = scope
        self._round = asyncio.Lock()
        self._seen: dict[int, float] = {}
        self._withdrawing: dict[int, asyncio.Task[None]] = {}
        self._lost_at: set[str] = set()

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
        """Whether a server that was lost with prompts has not been probed yet: it may still have them."""
        known = (self._fleet.servers.get(name) for name in self._lost_at)
        return any(server is not None and server.health is Health.UNKNOWN for server in known)

    async def look(self) -> int:
        """One round. Returns how many runs were taken over. Rounds do not overlap."""
        async with self._round:
            return await self._look()

    async def stop(self) -> None:
        await end_tasks(list(self._withdrawing.values()))

    async def _look(self) -> int:
        attempts = [each for each in await self._store.run(ops.open_attempts) if self._scope.covers(each)]
        unattended = [each for each in attempts if not self._leases.holds(each.job_id, each.fence)]
        self._lost_at = {each.server for each in unattended if each.is_lost}
        ids = {each.attempt_id for each in unattended}
        self._seen = {key: at for key, at in self._seen.items() if key in ids}
        taken = 0
        for attempt in unattended:
            self._seen.setdefault(attempt.attempt_id, self._clock.now())
            if not attempt.is_wanted:
                if self._may_be_withdrawn(attempt):
                    await self._start_withdrawing(attempt)
            elif attempt.attempt_id not in self._withdrawing and self._may_be_taken(attempt):
                taken += await self._adopt(attempt)
        await self._store.run(ops.put_back_unattended, self._liveness.is_dead)
        await self._store.run(ops.free_turns)
        while await self._store.run(ops.discard_unfinished, self._liveness.is_dead):
            log.info("a batch was removed whose creator died before it was whole")
        await self._leftovers.sweep()
        return taken

    def _waited(self, attempt: OpenAttempt) -> float:
        return self._clock.now() - self._seen[attempt.attempt_id]

    def _may_be_withdrawn(self, attempt: OpenAttempt) -> bool:
        """Whoever ran it takes it back once it has let go; others only if that agent is gone or does not wake up."""
        if attempt.is_lost or attempt.attempt_worker in (None, self._liveness.worker):
            return not self._runs.has(attempt.prompt_id)
        return self._waited(attempt) > self._leases.seconds or self._liveness.is_dead(attempt.attempt_worker or "")

    def _may_be_taken(self, attempt: OpenAttempt) -> bool:
        if attempt.is_lost and attempt.status == "pending":
            server = self._fleet.servers.get(attempt.server)
            return server is not None and server.answers  # what it still has is taken over, the rest is known then
        if attempt.server not in self._fleet.servers and self._waited(attempt) < FOREIGN_SERVER_GRACE:
            return False  # an agent that has this server may come first
        if attempt.status == "pending":
            return True
        if attempt.worker == self._liveness.worker:
            return self._waited(attempt) >= OWN_GRACE  # leased a moment ago and not yet begun, or dropped by us
        return attempt.has_expired or (attempt.worker is not None and self._liveness.is_dead(attempt.worker))

    async def _adopt(self, attempt: OpenAttempt) -> int:
        asked_at = self._clock.now()
        leased = await self._store.run(ops.adopt_attempt, attempt, self._liveness.worker, self._leases.seconds)
        self._seen.pop(attempt.attempt_id, None)
        if leased is None:
            return 0
        log.info("%s: taken over from %s", leased.config_name, leased.previous_worker)
        await self._leftovers.remove_fetched(leased)
        await self._runs.start(leased, asked_at)
        return 1

    async def _start_withdrawing(self, attempt: OpenAttempt) -> None:
        if attempt.attempt_id not in self._withdrawing:
            server = await self._fleet.get(attempt.server)
            task = asyncio.create_task(self._withdraw(attempt, server))
            self._withdrawing[attempt.attempt_id] = task
            task.add_done_callback(self._withdrawn(attempt))

    def _withdrawn(self, attempt: OpenAttempt) -> Callable[[asyncio.Task[None]], None]:
        def reap(task: asyncio.Task[None]) -> None:
            self._withdrawing.pop(attempt.attempt_id, None)
            if not task.cancelled() and task.exception() is not None:
                log.error("taking prompt %s back failed", attempt.prompt_id, exc_info=task.exception())

        return reap

    async def _withdraw(self, attempt: OpenAttempt, server: FleetServer) -> None:
        """Take a prompt back whose job was cancelled, deleted, or set to another state by hand."""
        if server.health is Health.DOWN and not server.is_retired:
            if attempt.is_lost or server.seconds_down() > GONE_SECONDS:  # nothing waits for it any longer
                await self._close(attempt, "its server is away: the prompt is deleted should it come back with it")
            return  # later, when it can be asked
        try:
            result = await server.client.cancel(attempt.prompt_id, timeout=WITHDRAW_SECONDS)
            await self._close(attempt, TAKEN_BACK[result])
        except ComfyError as error:
            if server.is_retired:
                await self._close(attempt, "its server is not used any more")
            log.info("prompt %s could not be taken back yet: %s", attempt.prompt_id, error.message)

    async def _close(self, attempt: OpenAttempt, message: str) -> None:
        strays = await self._store.run(ops.withdraw_attempt, attempt, message)
        await self._leftovers.remove(strays or [])
