"""Many callers and several processes on one database: they share commits, see each other, and do each other no harm."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store import writer
from comfyui_agent.store.errors import LeaseLost, StoreClosed
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Lease
from comfyui_agent.store.store import Store
from support.stores import Database, lease, lease_one, submit_and_lease, submit_one, wish


@contextlib.asynccontextmanager
async def writer_kept_busy(store: Store):  # type: ignore[no-untyped-def]
    """While this lasts, the store is in the middle of a transaction, and further callers have to wait."""
    entered, leave = threading.Event(), threading.Event()

    def dawdle(session: Session) -> None:
        entered.set()
        leave.wait(60)

    task = asyncio.create_task(store.driver.write(dawdle))
    await asyncio.to_thread(entered.wait, 20)
    try:
        yield
    finally:
        leave.set()
        await task


async def test_what_one_store_commits_the_other_sees(store: Store, database: Database) -> None:
    other = database.open()
    await submit_one(store, "a")
    assert (await other.run(ops.count_jobs)).pending == 1
    leased = await lease_one(other)
    assert (await store.run(ops.count_jobs)).processing == 1
    await other.run(ops.complete_job, leased.lease, ["a.png"], None)
    assert (await store.run(ops.count_jobs)).done == 1


async def test_waiters_wake_up_at_changes_of_another_process(store: Store, database: Database) -> None:
    told = asyncio.Event()
    store.on_change(told.set)
    await submit_one(database.open(), "a")
    await asyncio.wait_for(told.wait(), 5)


async def test_waiters_wake_up_at_changes_by_hand(store: Store, database: Database) -> None:
    await submit_one(store, "a")
    told = asyncio.Event()
    store.on_change(told.set)
    database.by_hand("UPDATE jobs SET priority = 1")
    await asyncio.wait_for(told.wait(), 5)


async def test_waiters_wake_up_at_jobs_submitted_in_the_same_process(store: Store) -> None:
    told = asyncio.Event()
    store.on_change(told.set)
    await submit_one(store, "a")
    await asyncio.wait_for(told.wait(), 5)


async def test_callers_that_wait_at_the_same_time_share_a_commit(store: Store, database: Database) -> None:
    before = database.commits(store)
    async with writer_kept_busy(store):
        waiting = [asyncio.create_task(submit_one(store, str(number))) for number in range(200)]
        await asyncio.sleep(0)
    ids = await asyncio.gather(*waiting)
    assert len(set(ids)) == 200
    assert database.commits(store) - before <= 2
    assert (await store.run(ops.count_jobs)).pending == 200


async def test_callers_are_served_in_the_order_in_which_they_came(store: Store) -> None:
    ids = await asyncio.gather(*(submit_one(store, str(number)) for number in range(100)))
    assert ids == sorted(ids)


async def test_one_caller_that_fails_does_the_others_no_harm(store: Store, database: Database) -> None:
    stale = (await submit_and_lease(store, "stale")).lease
    await store.run(ops.cancel_jobs, [stale.job_id])
    before = database.commits(store)

    def half_done(session: Session) -> None:
        session.run("set_priority", id=stale.job_id, priority=-7)
        raise RuntimeError("on purpose")

    async with writer_kept_busy(store):
        calls = [
            submit_one(store, "a"),
            store.run(ops.complete_job, stale, ["a.png"], None),
            submit_one(store, "b"),
            store.driver.write(half_done),
            store.run(ops.submit_jobs, [wish("c"), wish("d", metadata={"x": object()})]),
            submit_one(store, "e"),
        ]
        waiting = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
    answers = await waiting
    assert [type(answer) for answer in answers] == [int, LeaseLost, int, RuntimeError, TypeError, int]
    assert database.commits(store) - before <= 2
    assert [job.config_name for job in await store.run(ops.list_jobs)] == ["a", "b", "e", "stale"]
    assert [(job.priority, job.status) for job in await store.run(ops.list_jobs)][-1] == (50, "failed")


async def test_a_caller_that_gives_up_does_the_others_no_harm(store: Store) -> None:
    async with writer_kept_busy(store):
        impatient = asyncio.create_task(submit_one(store, "a"))
        patient = asyncio.create_task(submit_one(store, "b"))
        await asyncio.sleep(0)
        impatient.cancel()
    assert await patient > 0
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_two_agents_that_lease_at_the_same_time_never_get_the_same_job(store: Store, database: Database) -> None:
    other = database.open()
    await store.run(ops.submit_jobs, [wish(str(number)) for number in range(40)])
    rounds = [lease(each, most=2, worker=str(each), size=100) for _ in range(15) for each in (store, other)]
    leased = [job.lease.job_id for jobs in await asyncio.gather(*rounds) for job in jobs]
    rest = [job.lease.job_id for job in await lease(store, most=40, size=100)]
    assert sorted(leased + rest) == list(range(1, 41))
    assert len(leased) > 20, "both go on"


async def test_a_look_sees_one_moment_however_long_it_takes(store: Store, database: Database) -> None:
    await submit_one(store, "a")
    other, looking, go_on = database.open(), threading.Event(), threading.Event()

    def look_twice(session: Session) -> tuple[int, int]:
        first = len(session.rows("jobs_pending", most=10))
        looking.set()
        go_on.wait(60)
        return first, len(session.rows("jobs_pending", most=10))

    task = asyncio.create_task(store.driver.read(look_twice))
    await asyncio.to_thread(looking.wait, 20)
    await submit_one(other, "b")
    await submit_one(store, "c")
    go_on.set()
    assert await task == (1, 1)
    assert (await store.run(ops.count_jobs)).pending == 3


async def test_what_waits_when_the_store_is_closed_is_still_written(store: Store, database: Database) -> None:
    async with writer_kept_busy(store):
        waiting = [asyncio.create_task(submit_one(store, str(number))) for number in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
    await asyncio.gather(closing, *waiting)
    assert (await database.open().run(ops.count_jobs)).pending == 5


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.run(ops.submit_jobs, [wish("a")])
    with pytest.raises(StoreClosed):
        await store.run(ops.count_jobs)
    with pytest.raises(StoreClosed):
        await store.run(ops.complete_job, Lease(1, 1, 1), [], None)


async def test_each_database_has_a_name_of_its_own(store: Store, database: Database) -> None:
    assert database.open().identity == store.identity
    assert len(store.identity) >= 8


async def test_a_column_added_by_hand_beside_a_running_agent_stops_nothing(store: Store, database: Database) -> None:
    first = await submit_and_lease(store, "a")
    await store.run(ops.complete_job, first.lease, [], None)
    assert len(await store.run(ops.list_jobs)) == 1
    database.by_hand("ALTER TABLE jobs ADD COLUMN my_own_notes TEXT")
    assert (await submit_and_lease(store, "b")).config_name == "b"
    assert len(await store.run(ops.list_jobs)) == 2


async def test_what_an_agent_records_waits_a_little_after_a_commit_and_shares_the_next(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GATHER_SECONDS", 0.3)
    store.gathers = True
    await submit_one(store, "a")
    before = database.commits(store)
    first = asyncio.create_task(store.run(ops.register_agent, "a", "host", "a.lock"))
    for _ in range(20):  # longer than a commit takes
        await store.run(ops.count_jobs)
    await store.run(ops.register_agent, "b", "host", "b.lock")
    await first
    assert database.commits(store) == before + 1
