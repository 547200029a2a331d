"""What is old goes in parts and with all that belongs to it; nothing that is open goes, nor any of its batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.retention import DAY, Ages, Pruned, preview, prune
from comfyui_agent.store import operations as ops
from comfyui_agent.store import retention
from comfyui_agent.store.postgres.session import PostgresSession
from comfyui_agent.store.store import Store
from support.agents import wait_until
from support.store_batches import FOX, fall, land, lease_of, queue, status_of
from support.stores import Database, PostgresDatabase, lease_one, real_counts, submit_one

OLD = Ages(jobs=30 * DAY, events=30 * DAY)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "night", Settings())


async def at_once(_: float) -> None:
    """Time is not what these tests are about."""


async def pruned(store: Store, place: Workspace, ages: Ages = OLD) -> Pruned:
    return await prune(store, place, ages, at_once, 0)


async def done(store: Store, place: Workspace, name: str, *paths: str) -> int:
    """A job that is done, with results on disk."""
    job_id = await submit_one(store, name, template=Template.of({"1": {"class_type": name, "inputs": {}}}))
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, paths, 30)
    for path in paths:
        write(place, path)
    await store.run(ops.complete_job, leased.lease, list(paths), 1.0)
    return job_id


def write(place: Workspace, path: str) -> None:
    (place.root / path).parent.mkdir(parents=True, exist_ok=True)
    (place.root / path).write_bytes(b"1234567890")


def left(place: Workspace) -> list[str]:
    return sorted(path.relative_to(place.root).as_posix() for path in place.root.rglob("*") if path.is_file())


def names(database: Database) -> list[str]:
    return [row["config_name"] for row in database.by_hand("SELECT config_name FROM jobs ORDER BY id")]


async def test_jobs_that_ended_long_ago_go_with_all_that_is_theirs(
    store: Store, database: Database, place: Workspace
) -> None:
    await done(store, place, "old", "jobs/finished/image/old.png", "jobs/finished/image/old_2.png")
    waits = await submit_one(store, "waits", priority=99)
    await store.run(ops.cancel_jobs, [await submit_one(store, "cancelled")])
    audit = Event(EventName.AUDIT_JOB_CANCEL, job_id=waits, actor="cli")
    await store.run(ops.add_event, audit)
    await store.run(ops.add_event, Event(EventName.SERVER_UP))
    database.clock.advance(29 * DAY)
    assert await pruned(store, place) == Pruned()
    database.clock.advance(2 * DAY)
    await done(store, place, "new", "jobs/finished/image/new.png")
    seen = await preview(store, place, OLD)
    assert (seen.jobs, seen.files, seen.file_bytes) == (2, 2, 20)
    found = await pruned(store, place)
    assert (found.jobs, found.attempts, found.templates, found.files, found.file_bytes) == (2, 1, 1, 2, 20)
    assert (names(database), left(place)) == (["waits", "new"], ["jobs/finished/image/new.png"])
    [kept] = database.by_hand("SELECT count(*) AS rows FROM files")
    assert kept["rows"] == 1
    told = database.by_hand(f"SELECT event FROM events WHERE job_id IS NULL OR job_id <= {waits}")
    assert [row["event"] for row in told] == ["job.submitted", "audit.job.cancel"], "of what waits, and the audit trail"
    assert (await store.run(ops.count_jobs)).done == real_counts(database)["done"] == 1
    assert await pruned(store, place) == Pruned()


async def test_a_batch_goes_as_a_whole_or_not_at_all(store: Store, database: Database, place: Workspace) -> None:
    await queue(store, 3, FOX)
    await queue(store, 3, "open")
    await land(store, await lease_of(store, FOX, most=3))
    await land(store, await lease_of(store, "open", most=2))
    await store.run(ops.claim_grid_files, FOX, [f"jobs/finished/image/{FOX}/grid.png"], [])
    write(place, f"jobs/finished/image/{FOX}/grid.png")
    database.clock.advance(31 * DAY)
    assert (await preview(store, place, OLD)).jobs == 3
    found = await pruned(store, place)
    assert (found.batches, found.jobs, found.files) == (1, 3, 1)
    assert not (place.root / f"jobs/finished/image/{FOX}").exists()
    assert names(database) == ["open_0", "open_1", "open_2"]
    assert [row["event"] for row in database.by_hand("SELECT event FROM events")].count("job.done") == 2
    await fall(store, await lease_of(store, "open", most=1))
    assert await status_of(store, "open") == "complete"
    assert (await pruned(store, place)).jobs == 0, "one of its members ended just now"
    database.clock.advance(31 * DAY)
    assert (await pruned(store, place)).batches == 1
    assert database.by_hand("SELECT count(*) AS rows FROM events") == [{"rows": 0}]


async def test_what_is_at_a_server_or_awaits_its_grid_stays(store: Store, database: Database, place: Workspace) -> None:
    await queue(store, 1, FOX, wants_grid=True)
    await land(store, await lease_of(store, FOX))
    await submit_one(store, "cancelled")
    leased = await lease_one(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    database.clock.advance(31 * DAY)
    assert (await pruned(store, place)).jobs == 0


async def test_files_stay_if_asked_or_if_they_are_another_job_s(
    store: Store, database: Database, place: Workspace
) -> None:
    await done(store, place, "kept", "jobs/finished/image/kept.png")
    database.clock.advance(31 * DAY)
    assert (await pruned(store, place, Ages(jobs=DAY, keep_files=True))).files == 0
    assert left(place) == ["jobs/finished/image/kept.png"]
    await done(store, place, "first", "jobs/finished/image/same.png")
    database.clock.advance(31 * DAY)
    second = await submit_one(store, "second")
    database.by_hand(f"UPDATE files SET job_id = {second}")  # as if it had been given up and claimed again
    assert (await pruned(store, place)).jobs == 1
    assert left(place) == ["jobs/finished/image/kept.png", "jobs/finished/image/same.png"]


async def test_it_works_in_parts_and_a_run_that_broke_off_is_finished(
    store: Store, database: Database, place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "JOBS_AT_ONCE", 2)
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 3)
    await queue(store, 5, FOX)
    await land(store, await lease_of(store, FOX, most=5))
    for number in range(4):
        await done(store, place, f"old_{number}", f"jobs/finished/image/{number}.png")
    database.clock.advance(31 * DAY)
    parts = 0

    class Killed(Exception):
        pass

    async def kill_at(_: float) -> None:
        nonlocal parts
        parts += 1
        if parts == 3:
            raise Killed

    with pytest.raises(Killed):
        await prune(store, place, OLD, kill_at, 0)
    assert 0 < len(names(database)) < 9
    await pruned(store, place)
    assert (names(database), left(place)) == ([], [])
    assert await store.run(ops.find_batch, FOX) is None


async def test_a_file_that_went_before_its_row_does_not_matter(
    store: Store, database: Database, place: Workspace
) -> None:
    await done(store, place, "old", "jobs/finished/image/old.png")
    database.clock.advance(31 * DAY)
    before = await store.run(ops.moment_before, 30 * DAY)

    def die(_paths: Sequence[str], _sources: Sequence[str]) -> None:
        (place.root / "jobs/finished/image/old.png").unlink(missing_ok=True)  # the writer tries twice
        raise KeyError

    with pytest.raises(KeyError):
        await store.run(ops.remove_old_jobs, JobStatus.DONE, before, ops.EARLIEST, die)
    assert names(database) == ["old"]
    assert (await pruned(store, place)).jobs == 1


async def test_old_runs_of_jobs_that_stay_can_go(store: Store, database: Database, place: Workspace) -> None:
    await done(store, place, "old", "jobs/finished/image/old.png")
    await queue(store, 2, "open")
    await land(store, await lease_of(store, "open"))
    database.clock.advance(31 * DAY)
    assert (await pruned(store, place, Ages(attempts=DAY))).attempts == 1
    assert len(database.by_hand("SELECT * FROM attempts")) == 1
    assert names(database) == ["old", "open_0", "open_1"]


async def test_a_job_file_in_the_folder_is_not_taken_in_again(
    store: Store, database: Database, place: Workspace
) -> None:
    write(place, "jobs/processing/image/bad.yaml")
    await store.run(ops.cancel_jobs, [await submit_one(store, "bad.yaml", source="jobs/processing/image/bad.yaml")])
    database.clock.advance(31 * DAY)
    await pruned(store, place)
    assert left(place) == ["jobs/processing/image/bad.yaml.removed"]


async def test_one_process_at_a_time_has_its_turn(store: Store, database: Database) -> None:
    assert await store.run(ops.claim_retention, 3600)
    assert not await database.open().run(ops.claim_retention, 3600)
    database.clock.advance(3601)
    assert await database.open().run(ops.claim_retention, 3600)


async def test_agents_go_on_meanwhile(store: Store, database: Database, place: Workspace) -> None:
    other, rounds = database.open(), 12
    jobs = [await done(store, place, f"old_{number}") for number in range(rounds)]
    for job_id in jobs:
        await store.run(ops.cancel_jobs, [job_id])
    database.by_hand("UPDATE jobs SET status = 'failed'")
    database.clock.advance(31 * DAY)

    async def work() -> list[int]:
        """Retry old jobs, and render new ones with the same templates."""
        retried = []
        for number, job_id in enumerate(reversed(jobs)):
            retried += await other.run(ops.retry_jobs, [job_id])
            await done(other, place, f"old_{number}_again") if number % 3 == 0 else None
        return retried

    retried, removed = await asyncio.gather(work(), pruned(store, place))
    assert len(retried) + removed.jobs == rounds
    assert (await store.run(ops.count_jobs)).pending + (await store.run(ops.count_jobs)).done == len(names(database))
    lost = database.by_hand("SELECT id FROM jobs WHERE template_hash NOT IN (SELECT hash FROM templates)")
    assert lost == [], "no job is without its template"
    assert await store.run(ops.count_jobs) == await other.run(ops.count_jobs)
    counts = real_counts(database)
    assert {name: getattr(await store.run(ops.count_jobs), name) for name in counts} == counts


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[PostgresDatabase]:
    """A database in which transactions overlap."""
    database = PostgresDatabase(tmp_path)
    yield database
    await database.close()


async def test_what_somebody_is_about_to_retry_stays_and_nobody_waits(
    shared: PostgresDatabase, place: Workspace
) -> None:
    store = shared.open()
    ids = [await done(store, place, name, f"jobs/finished/image/{name}.png") for name in ("retried", "old", "claimed")]
    shared.clock.advance(31 * DAY)
    async with await psycopg.AsyncConnection.connect(shared.url) as somebody:
        await somebody.execute(f"UPDATE jobs SET status = 'pending' WHERE id = {ids[0]}".encode())
        assert (await pruned(store, place)).jobs == 2
    assert names(shared) == ["retried"]
    assert left(place) == ["jobs/finished/image/retried.png"]


async def test_a_batch_that_is_opened_anew_at_that_moment_stays(shared: PostgresDatabase, place: Workspace) -> None:
    store = shared.open()
    await queue(store, 2, FOX)
    await land(store, await lease_of(store, FOX, most=2))
    shared.clock.advance(31 * DAY)
    async with await psycopg.AsyncConnection.connect(shared.url) as somebody:
        await somebody.execute(b"UPDATE jobs SET status = 'pending' WHERE batch_index = 0")
        pruning = asyncio.ensure_future(pruned(store, place))
        await a_lock_is_awaited(shared)
    assert await pruning == Pruned()
    assert await status_of(store, FOX) == "active"


async def test_the_template_of_a_job_that_is_being_submitted_stays(shared: PostgresDatabase, place: Workspace) -> None:
    store = shared.open()
    await done(store, place, "old")
    await store.run(ops.remove_jobs, [JobId(1)])
    [template] = shared.by_hand("SELECT hash FROM templates")
    with psycopg.connect(shared.url) as somebody:
        session = PostgresSession(somebody)
        session.begin(b"BEGIN")
        session.run("keep_workflows", templates=[{**template, "graph": "{}"}], needs=[])
        somebody.execute(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status, template_hash) "
            "VALUES ('new', 'T2I', 'w', 'pending', %s)",
            [template["hash"]],
        )
        removing = asyncio.ensure_future(store.run(ops.remove_unused_templates))
        await a_lock_is_awaited(shared)
    assert await removing == 0
    shared.by_hand("DELETE FROM jobs")
    assert await store.run(ops.remove_unused_templates) == 1


async def a_lock_is_awaited(shared: PostgresDatabase) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    await asyncio.to_thread(wait_until, lambda: shared.by_hand(waiting), "somebody waits for a lock")
