"""Keeping leases alive, and letting go of a job before anyone else may take it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from comfyui_agent.clock import Clock
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Lease

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3
MARGIN = 0.1
RETRY_SECONDS = 0.5


class Leases:
    """The leases of this process. `lose` of a lease is called once, when it is lost or can no longer be proved."""

    def __init__(self, store: OperationRunner, recorder: Recorder, clock: Clock, worker: str, seconds: float) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._worker = worker
        self.seconds = seconds
        self._held: dict[tuple[JobId, int], Callable[[str], None]] = {}
        self._proved_until: dict[tuple[JobId, int], float] = {}

    def add(self, lease: Lease, asked_at: float, lose: Callable[[str], None]) -> None:
        """A lease that was asked for at that time."""
        key = (lease.job_id, lease.fence)
        self._held[key] = lose
        self.prove(lease, asked_at)

    def prove(self, lease: Lease, asked_at: float) -> float:
        """A write about this lease succeeded; the time until which the job is certainly ours."""
        key = (lease.job_id, lease.fence)
        until = self._until(asked_at)
        if key in self._held:
            self._proved_until[key] = max(until, self._proved_until.get(key, 0.0))
        return until

    def drop(self, lease: Lease) -> None:
        self._forget((lease.job_id, lease.fence))

    def holds(self, job_id: JobId, fence: int) -> bool:
        return (job_id, fence) in self._held

    async def keep(self) -> None:
        """Renew for ever."""
        watching = asyncio.create_task(self._watch_time())
        try:
            while True:
                try:
                    await self._renew()
                    pause = self.seconds / RENEWALS_PER_LEASE
                except DatabaseUnusable:
                    raise
                except StoreError as error:
                    log.warning("leases could not be renewed: %s", error)
                    pause = RETRY_SECONDS
                await self._clock.sleep(pause)
        finally:
            watching.cancel()

    async def _watch_time(self) -> None:
        """While the database is away, leases run out here before they run out there."""
        while True:
            await self._clock.sleep(self.seconds / 20)
            self._drop_unproved()

    async def _renew(self) -> None:
        asked_at = self._clock.now()
        before = set(self._held)
        held = await self._store.run(ops.renew_leases, self._worker, self.seconds)
        for key in self._still_held(before, held):
            self._proved_until[key] = self._until(asked_at)
        took = self._clock.now() - asked_at
        if took > self.seconds / 2:
            await self._recorder.alert(f"the database was locked: leases could not be renewed for {took:.0f} s")

    async def check(self) -> None:
        """Something changed in the database: see whether everything is still ours."""
        before = set(self._held)
        if before:
            self._still_held(before, await self._store.run(ops.held_leases, self._worker))

    def _still_held(self, before: set[tuple[JobId, int]], held: frozenset[tuple[JobId, int]]) -> set[tuple[JobId, int]]:
        """Lose the leases that the database does not hold for us. Returns the others."""
        for key in before & set(self._held) - held:
            self._lose(key, "someone else has it now, or it was cancelled")
        return before & set(self._held)

    def _until(self, asked_at: float) -> float:
        return asked_at + self.seconds * (1 - MARGIN)

    def _drop_unproved(self) -> None:
        for key, until in list(self._proved_until.items()):
            if self._clock.now() >= until:
                self._lose(key, "the database could not be asked in time")

    def _lose(self, key: tuple[JobId, int], reason: str) -> None:
        lose = self._held.get(key)
        self._forget(key)
        if lose is not None:
            lose(reason)

    def _forget(self, key: tuple[JobId, int]) -> None:
        self._held.pop(key, None)
        self._proved_until.pop(key, None)
