"""Keeping leases alive, and letting go of a job before anyone else may take it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

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
BEAT_SECONDS = 10.0
"""How much later an agent without leases beats."""

LeaseKey = tuple[JobId, int]


@dataclass
class HeldLease:
    """`lose` is called once, when the lease is lost or can no longer be proved."""

    lose: Callable[[str], None]
    proved_until: float = 0.0


@dataclass
class Leases:
    """The leases of this process."""

    store: OperationRunner
    recorder: Recorder
    clock: Clock
    worker: str
    seconds: float
    _held: dict[LeaseKey, HeldLease] = field(default_factory=dict, init=False)
    _first: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when there is a lease to renew."""

    def add(self, lease: Lease, asked_at: float, lose: Callable[[str], None]) -> None:
        """A lease that was asked for at that time."""
        self._held[lease.job_id, lease.fence] = HeldLease(lose)
        self._first.set()
        self.prove(lease, asked_at)

    def prove(self, lease: Lease, asked_at: float) -> float:
        """A write about this lease succeeded; the time until which the job is certainly ours."""
        return self._prove((lease.job_id, lease.fence), asked_at)

    def _prove(self, key: LeaseKey, asked_at: float) -> float:
        until = asked_at + self.seconds * (1 - MARGIN)
        if key in self._held:
            self._held[key].proved_until = max(until, self._held[key].proved_until)
        return until

    def proved_until(self, lease: Lease) -> float:
        held = self._held.get((lease.job_id, lease.fence))
        return held.proved_until if held is not None else 0.0

    def drop(self, lease: Lease) -> None:
        self._held.pop((lease.job_id, lease.fence), None)

    def holds(self, job_id: JobId, fence: int) -> bool:
        return (job_id, fence) in self._held

    async def keep(self) -> None:
        """Renew for ever."""
        watching = asyncio.create_task(self._watch_time())
        try:
            while True:
                try:
                    if not self._held:
                        self._first.clear()
                    await self._renew()
                    await self.clock.wait_for(self._first, BEAT_SECONDS)
                    pause = self.seconds / RENEWALS_PER_LEASE
                except DatabaseUnusable:
                    raise
                except StoreError as error:
                    log.warning("leases could not be renewed: %s", error)
                    pause = RETRY_SECONDS
                await self.clock.sleep(pause)
        finally:
            watching.cancel()

    async def _watch_time(self) -> None:
        """While the database is away, leases run out here before they run out there."""
        while True:
            await self.clock.sleep(self.seconds / 20)
            self._drop_unproved()

    def _drop_unproved(self) -> None:
        for key, held in list(self._held.items()):
            if self.clock.now() >= held.proved_until:
                self._lose(key, "the database could not be asked in time")

    async def _renew(self) -> None:
        asked_at = self.clock.now()
        before = set(self._held)
        for key in self._still_held(before, await self.store.run(ops.renew_leases, self.worker, self.seconds)):
            self._prove(key, asked_at)
        took = self.clock.now() - asked_at
        if took > self.seconds / 2:
            await self.recorder.alert(f"the database was locked or away: leases could not be renewed for {took:.0f} s")

    async def check(self) -> None:
        """Something changed in the database: see whether everything is still ours."""
        before = set(self._held)
        if before:
            self._still_held(before, await self.store.run(ops.held_leases, self.worker))

    def _still_held(self, before: set[LeaseKey], held: frozenset[LeaseKey]) -> set[LeaseKey]:
        """Lose the leases that the database does not hold for us. Returns the others."""
        for key in before & self._held.keys() - held:
            self._lose(key, "someone else has it now, or it was cancelled")
        return before & self._held.keys()

    def _lose(self, key: LeaseKey, reason: str) -> None:
        self._held.pop(key).lose(reason)
