"""Leases are let go before anyone else may take the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from comfyui_agent.domain.jobs import AttemptId, JobId
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.store.errors import DatabaseFull, DatabaseUnusable
from comfyui_agent.store.records import Lease
from support.engine import FakeClock
from support.stores import ScriptedStore, SqliteClock

LEASE = Lease(JobId(1), 3, AttemptId(9))
SECONDS = 30.0


class HeldLeases(ScriptedStore):
    """A store that holds what it is told to hold, and can go away."""

    def __init__(self) -> None:
        self.held = frozenset({(JobId(1), 3)})
        self.present = asyncio.Event()
        self.present.set()
        self.renewals = 0
        self.error: Exception | None = None

    async def renew_leases(self, _worker: str, _seconds: float) -> frozenset[tuple[JobId, int]]:
        await self.present.wait()
        self.renewals += 1
        if self.error:
            raise self.error
        return self.held

    async def held_leases(self, _worker: str) -> frozenset[tuple[JobId, int]]:
        return self.held

    async def add_event(self, _event: object) -> None: ...


class Holder:
    """Holds one lease, and notes when it is lost."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store = HeldLeases()
        self.leases = Leases(self.store, Recorder(self.store, clock), clock, "w", SECONDS)  # type: ignore[arg-type]
        self.lost: list[tuple[float, str]] = []
        self.began = clock.now()
        self.leases.add(LEASE, self.began, lambda reason: self.lost.append((clock.now() - self.began, reason)))

    async def keep(self, seconds: float) -> asyncio.Task[None]:
        task = asyncio.create_task(self.leases.keep())
        await self.clock.advance(seconds)
        return task


@pytest.fixture
async def holder() -> AsyncIterator[Holder]:
    database = SqliteClock()
    yield Holder(FakeClock(database))
    database.unregister()


async def test_a_lease_is_renewed_and_kept_far_beyond_its_time(holder: Holder) -> None:
    task = await holder.keep(10 * SECONDS)
    assert holder.leases.holds(JobId(1), 3)
    assert holder.store.renewals >= 30
    task.cancel()


@pytest.mark.parametrize("trouble", ["silent", "full"])
async def test_when_the_database_is_away_the_job_is_let_go_before_the_lease_ends(holder: Holder, trouble: str) -> None:
    if trouble == "silent":
        holder.store.present.clear()
    else:
        holder.store.error = DatabaseFull("full")
    task = await holder.keep(2 * SECONDS)
    ((at, reason),) = holder.lost
    assert SECONDS / 2 < at < SECONDS
    assert "could not be asked in time" in reason
    assert not holder.leases.holds(JobId(1), 3)
    assert not task.done()
    task.cancel()


async def test_a_job_that_someone_else_has_is_lost_once(holder: Holder) -> None:
    holder.store.held = frozenset({(JobId(1), 4)})
    await holder.leases.check()
    await holder.leases.check()
    assert len(holder.lost) == 1


async def test_a_database_that_needs_a_person_ends_the_keeping(holder: Holder) -> None:
    holder.store.error = DatabaseUnusable("corrupt")
    task = await holder.keep(1)
    with pytest.raises(DatabaseUnusable):
        await task


async def test_a_dropped_lease_is_never_lost(holder: Holder) -> None:
    holder.leases.drop(LEASE)
    holder.store.held = frozenset()
    await holder.leases.check()
    assert holder.lost == []
