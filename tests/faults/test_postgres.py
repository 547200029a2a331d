"""A PostgreSQL that is killed, cut off, replaced or locked: what was confirmed stays, and nothing happens twice."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store import writer
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.errors import DatabaseAway, DatabaseUnusable
from comfyui_agent.store.port import Session
from comfyui_agent.store.postgres import connection, driver
from comfyui_agent.store.store import Store
from support import postgres
from support.cutting_proxy import Cut, CuttingProxy, cutting_proxy
from support.postgres import SAFE, PostgresServer
from support.sampling import some
from support.stores import lease, lease_one, submit_one, wish


@pytest.fixture(autouse=True)
def _servers_can_be_started() -> None:
    postgres.skip_without_postgres()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres.server_of_its_own(options=SAFE) as made:
        yield made


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[Store]:
    opened = open_store(server.url)
    yield opened
    await opened.close(timeout=5)


# Killed.


class Progress:
    """How many jobs are done. Others wait until there are so many."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    async def note(self, name: str) -> None:
        async with self._changed:
            self.done[name] += 1
            self._changed.notify_all()

    async def reach(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.done) >= count)


async def work_off(store: Store, worker: str, own: int, total: int, progress: Progress) -> None:
    """Submit jobs of its own, and complete whatever there is, until all are done."""
    for number in range(own):
        assert await store.run(ops.submit_jobs, [wish(f"{worker}-{number}")]) != [None], "submitted twice"
        for leased in await lease(store, most=2, worker=worker, server=worker):
            await store.run(ops.renew_leases, worker, 300.0)
            await store.run(ops.complete_job, leased.lease, [f"{leased.config_name}.png"], 1.0)
            await progress.note(leased.config_name)
    while len(progress.done) < total:
        for leased in await lease(store, most=2, worker=worker, server=worker):
            await store.run(ops.complete_job, leased.lease, [f"{leased.config_name}.png"], 1.0)
            await progress.note(leased.config_name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", some([2, 12], 2))
async def test_a_database_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice(
    server: PostgresServer, kills: int
) -> None:
    stores, progress, own = [open_store(server.url) for _ in range(3)], Progress(), 8 * kills
    total = own * len(stores)

    async def kill() -> None:
        for number in range(kills):
            await progress.reach(number * total // kills + 2)
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            await asyncio.to_thread(server.start)

    working = [work_off(each, f"worker-{number}", own, total, progress) for number, each in enumerate(stores)]
    await asyncio.gather(kill(), *working)
    assert set(progress.done.values()) == {1}
    counts = await stores[0].run(ops.count_jobs)
    assert (counts.done, counts.pending, counts.processing, counts.failed) == (total, 0, 0, 0)
    told = Counter((event.name, event.job_id) for event in await stores[0].run(ops.events_after, 0, 100_000))
    assert set(told.values()) == {1}
    assert len(told) == 3 * total
    assert await stores[0].driver.read(lambda session: session.rows("wrong_counts")) == []
    for each in stores:
        await each.close()


# Cut off.


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CuttingProxy]:
    with cutting_proxy(server.port) as made:
        yield made


@pytest.fixture
async def distant(server: PostgresServer, proxy: CuttingProxy) -> AsyncIterator[Store]:
    """A store behind the proxy."""
    opened = open_store(server.url.replace(f":{server.port}/", f":{proxy.port}/"))
    yield opened
    proxy.heal()
    await opened.close(timeout=5)


MOST_MESSAGES = 60
END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'e3'"


@pytest.mark.parametrize("how", list(Cut))
async def test_a_transition_that_is_cut_off_at_any_point_happens_once(
    server: PostgresServer, distant: Store, store: Store, proxy: CuttingProxy, how: Cut
) -> None:
    """A command, a lease and an ending, each cut at its first message, at its second, and so on until there is none."""
    points = 0
    await store.run(ops.cancel_jobs, [await submit_one(store, "taken")])
    postgres.execute(server.url, "UPDATE jobs SET created_at = created_at - interval '1 second'")
    for number in range(1, MOST_MESSAGES):
        name = f"job-{number}"
        cuts = []
        proxy.cut(how, number)
        new, taken = await distant.run(ops.submit_jobs, [wish(name), wish("taken")])
        assert (new is None, taken) == (False, None)
        cuts.append(proxy.has_cut)
        proxy.cut(how, number)
        while not (found := await lease(distant)):
            pass  # the connection that was cut holds the job for a moment
        (leased,) = found
        cuts.append(proxy.has_cut)
        proxy.cut(how, number)
        await distant.run(ops.complete_job, leased.lease, [f"{name}.png"], 1.0)
        cuts.append(proxy.has_cut)
        assert leased.config_name == name
        points += sum(cuts)
        if not any(cuts):
            break
    assert points >= 4, "a command and an ending have one message each, a lease two"
    told = Counter((event.name, event.config_name) for event in await store.run(ops.events_after, 0, 10_000))
    assert set(told.values()) == {1}
    assert len(told) == 3 * number + 2
    attempts = await store.driver.read(lambda session: session.rows("attempts_of_job", job_id=leased.lease.job_id))
    assert [(each["number"], each["outcome"]) for each in attempts] == [(1, "done")]
    assert (await store.run(ops.count_jobs)).done == number


@pytest.mark.slow
@pytest.mark.parametrize("how", list(Cut))
async def test_a_database_is_opened_although_that_is_cut_off_at_any_point(
    server: PostgresServer, proxy: CuttingProxy, how: Cut
) -> None:
    for number in range(1, MOST_MESSAGES):
        proxy.cut(how, number)
        opened = open_store(server.url.replace(f":{server.port}/", f":{proxy.port}/"))
        has_cut = proxy.has_cut
        proxy.heal()
        await opened.close(timeout=5)
        if not has_cut:
            break
    assert number > 4, "settings, version, identity and more"


async def test_an_agent_waits_for_a_database_that_is_not_up_yet_and_a_command_says_that_it_is_not(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "OPEN_PATIENCE", 0.1)
    server.stop()
    with pytest.raises(DatabaseAway, match="does not answer"):
        open_store(server.url)
    opening = asyncio.create_task(asyncio.to_thread(open_store, server.url, is_patient=True))
    await asyncio.sleep(0.5)
    assert not opening.done()
    server.start()
    await (await opening).close()
    assert "trying again" in caplog.text


async def test_what_cannot_be_repeated_is_not_repeated_after_its_answer_was_lost(
    distant: Store, store: Store, proxy: CuttingProxy
) -> None:
    for number in range(1, 12):
        proxy.cut(Cut.AFTER, number)
        await distant.run(ops.add_event, Event(EventName.SERVER_UP, message=str(number)))
    proxy.heal()
    told = [event.message for event in await store.run(ops.events_after, 0)]
    assert told == [str(number) for number in range(1, 12)]


async def test_connections_that_an_administrator_ends_are_made_anew(store: Store, server: PostgresServer) -> None:
    """Ended at any moment: before a statement, within it, and while the answer to a commit is on its way."""
    numbers = [str(number) for number in range(400)]

    async def end_all() -> None:
        while True:
            await asyncio.to_thread(postgres.execute, server.url, END_ALL)
            await asyncio.sleep(random.uniform(0, 0.1))

    ending = asyncio.create_task(end_all())
    for number in numbers:
        await store.run(ops.add_event, Event(EventName.SERVER_UP, message=number))
    ending.cancel()
    assert [event.message for event in await store.run(ops.events_after, 0)] == numbers


# Another takes over.


def copied(server: PostgresServer) -> Path:
    """The data as it is now. The server goes on."""
    server.stop()
    copy = server.folder.with_name("copy")
    shutil.copytree(server.data, copy)
    server.start()
    return copy


@pytest.mark.parametrize("others", [0, 40], ids=["alone", "others have written since"])
async def test_a_copy_that_lost_what_was_confirmed_is_refused(
    store: Store, server: PostgresServer, others: int
) -> None:
    """Also if its transactions have the numbers by now that the lost ones had."""
    await submit_one(store, "kept")
    copy = copied(server)
    await submit_one(store, "lost")
    server.stop()
    behind = PostgresServer(server.folder.with_name("second"), options=SAFE, data=copy, port=server.port).start()
    try:
        other = open_store(behind.url)
        for number in range(others):
            await submit_one(other, f"other-{number}")
        await other.close()
        with pytest.raises(DatabaseUnusable, match="has lost what it had confirmed"):
            await submit_one(store, "next")
        anew = open_store(behind.url)
        assert await anew.run(ops.find_job, "next") is None
        await submit_one(anew, "next")
        await anew.close()
    finally:
        behind.stop()


async def test_a_copy_that_has_everything_takes_over(store: Store, server: PostgresServer) -> None:
    await submit_one(store, "first")
    copy = copied(server)
    server.stop()
    second = PostgresServer(server.folder.with_name("second"), options=SAFE, data=copy, port=server.port).start()
    try:
        await submit_one(store, "second")
        assert (await store.run(ops.count_jobs)).pending == 2
    finally:
        second.stop()


# Locked.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are waited for a fraction of a second at a time."""
    monkeypatch.setattr(
        connection, "SETTINGS", connection.SETTINGS.replace("lock_timeout = '2s'", "lock_timeout = '200ms'")
    )
    monkeypatch.setattr(writer, "BLOCKED_SECONDS", 0.1)


async def test_a_row_that_somebody_keeps_locked_holds_up_nothing_else(impatient: None, server: PostgresServer) -> None:
    store = open_store(server.url)
    await store.run(ops.submit_jobs, [wish("locked"), wish("free")])
    locked, free = await lease(store, most=2)
    with psycopg.connect(server.url) as somebody:
        somebody.execute("UPDATE jobs SET priority = 1 WHERE id = %s", [locked.lease.job_id])
        waiting = asyncio.create_task(store.run(ops.complete_job, locked.lease, ["locked.png"], 1.0))
        await store.run(ops.complete_job, free.lease, ["free.png"], 1.0)
        held = await store.run(ops.renew_leases, "first-agent", 30.0)
        assert held == {(locked.lease.job_id, locked.lease.fence)}
        await submit_one(store, "next")
        assert (await lease_one(store)).config_name == "next"
        assert not waiting.done()
    await asyncio.wait_for(waiting, 20)
    assert (await store.run(ops.count_jobs)).done == 2
    await store.close()


async def test_what_waits_for_a_lock_when_the_store_is_closed_is_told_so(
    impatient: None, server: PostgresServer
) -> None:
    store = open_store(server.url)
    job_id = await submit_one(store, "locked")
    with psycopg.connect(server.url) as somebody:
        somebody.execute("UPDATE jobs SET priority = 1 WHERE id = %s", [job_id])
        waiting = asyncio.create_task(store.run(ops.set_priority, job_id, 7))
        await submit_one(store, "next")
        await asyncio.wait_for(store.close(), 20)
        with pytest.raises(Exception, match="lock timeout"):
            await waiting


async def test_a_deadlock_is_repeated(store: Store, server: PostgresServer) -> None:
    other = open_store(server.url)
    first, second = [await submit_one(store, name) for name in ("a", "b")]
    both_hold_one = threading.Barrier(2)

    def take(session: Session, ids: tuple[int, int], priority: int, tries: list[int]) -> None:
        tries.append(1)
        session.run("set_priority", id=ids[0], priority=priority)
        if len(tries) == 1:
            both_hold_one.wait(60)
        session.run("set_priority", id=ids[1], priority=priority)

    tries: tuple[list[int], list[int]] = ([], [])
    await asyncio.gather(
        store.driver.write(lambda session: take(session, (first, second), 1, tries[0])),
        other.driver.write(lambda session: take(session, (second, first), 2, tries[1])),
    )
    assert sorted(map(len, tries)) == [1, 2]
    jobs = await store.run(ops.list_jobs)
    assert len({job.priority for job in jobs}) == 1
    await other.close()
