"""Leases are let go before anyone else may take the job."""

from __future__ import annotations

import asyncio

import pytest

from comfyui_agent.domain.attempts import AttemptId
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.engine.clock import now
from comfyui_agent.engine.leases import Leases
from comfyui_agent.store.errors import DatabaseCorrupt, DatabaseFull
from comfyui_agent.store.records import Lease
from support.stores import ScriptedStore

LEASE = Lease(JobId(1), 3, AttemptId(9))
SECONDS = 0.6


class Memory(ScriptedStore):
    """A store that holds what it is told to hold, and can go away."""

    def __init__(self) -> None:
        self.held_now = frozenset({(JobId(1), 3)})
        self.present = asyncio.Event()
        self.present.set()
        self.renewals = 0
        self.error: Exception | None = None

    async def renew_leases(self, _worker: str, _seconds: float) -> frozenset[tuple[JobId, int]]:
        await self.present.wait()
        self.renewals += 1
        if self.error:
            raise self.error
        return self.held_now

    async def held_leases(self, _worker: str) -> frozenset[tuple[JobId, int]]:
        return self.held_now

    async def add_event(self, _event: object) -> None: ...


class InputFiles:
    def __init__(self, memory: Memory) -> None:
        self.leases = Leases(memory, "w", SECONDS)  # type: ignore[arg-type]
        self.lost: list[tuple[float, str]] = []
        self.asked_at = now()
        self.gone = asyncio.Event()
        self.leases.add(LEASE, self.asked_at, self._lose)

    def _lose(self, reason: str) -> None:
        self.lost.append((now(), reason))
        self.gone.set()


async def test_a_lease_is_renewed_and_kept_far_beyond_its_time() -> None:
    memory = Memory()
    keeping = InputFiles(memory)
    task = asyncio.create_task(keeping.leases.keep())
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(keeping.gone.wait(), SECONDS * 2.5)
    assert keeping.leases.holds(JobId(1), 3)
    assert memory.renewals >= 5
    task.cancel()


async def test_when_the_database_is_away_the_job_is_let_go_before_the_lease_ends() -> None:
    memory = Memory()
    memory.present.clear()
    keeping = InputFiles(memory)
    task = asyncio.create_task(keeping.leases.keep())
    await asyncio.wait_for(keeping.gone.wait(), SECONDS * 2)
    ((at, reason),) = keeping.lost
    assert at < keeping.asked_at + SECONDS
    assert "could not be asked in time" in reason
    assert not keeping.leases.holds(JobId(1), 3)
    task.cancel()


@pytest.mark.timing
async def test_failing_renewals_are_repeated_and_the_job_is_let_go_in_time() -> None:
    memory = Memory()
    memory.error = DatabaseFull("full")
    keeping = InputFiles(memory)
    task = asyncio.create_task(keeping.leases.keep())
    await asyncio.wait_for(keeping.gone.wait(), SECONDS * 2)
    assert keeping.lost[0][0] < keeping.asked_at + SECONDS
    assert not task.done()
    task.cancel()


async def test_a_job_that_someone_else_has_is_lost_once() -> None:
    memory = Memory()
    keeping = InputFiles(memory)
    memory.held_now = frozenset({(JobId(1), 4)})
    await keeping.leases.check()
    await keeping.leases.check()
    assert len(keeping.lost) == 1


async def test_a_database_that_needs_a_person_ends_the_keeping() -> None:
    memory = Memory()
    memory.error = DatabaseCorrupt("corrupt")
    keeping = InputFiles(memory)
    with pytest.raises(DatabaseCorrupt):
        await asyncio.wait_for(keeping.leases.keep(), 5)


async def test_a_dropped_lease_is_never_lost() -> None:
    memory = Memory()
    keeping = InputFiles(memory)
    keeping.leases.drop(LEASE)
    memory.held_now = frozenset()
    await keeping.leases.check()
    assert keeping.lost == []
