"""Who runs next: by priority, then by age, within the window of a server, and only what may run."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import Retry, Tally
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from support.stores import (
    LEASE_SECONDS,
    SERVER,
    WORKER,
    Database,
    broken,
    everything,
    lease,
    lease_one,
    submit_and_lease,
    submit_one,
    wish,
)

HOUR = 3600.0


def names(leased: list[Leased]) -> list[str]:
    return [each.config_name for each in leased]


async def test_the_order_is_priority_then_age(store: Store) -> None:
    await store.run(
        ops.submit_jobs,
        [wish("c", priority=50), wish("a", priority=10), wish("d", priority=50), wish("b", priority=10)],
    )
    assert names(await lease(store, most=4)) == ["a", "b", "c", "d"]


async def test_a_bump_is_honoured_by_the_next_lease(store: Store) -> None:
    ids = await store.run(ops.submit_jobs, [wish("a"), wish("b"), wish("c")])
    assert names(await lease(store)) == ["a"]
    assert await store.run(ops.set_priority, ids[2], 1)
    assert names(await lease(store, most=2)) == ["c", "b"]


async def test_nobody_can_be_bumped_who_is_not_there(store: Store) -> None:
    assert not await store.run(ops.set_priority, 7, 1)


async def test_a_lease_says_all_that_is_needed_to_run_the_job(store: Store, database: Database) -> None:
    job_id = await submit_one(
        store, inputs={"6.text": "x"}, retry_limit=5, file_path="a.png", output_node="9", timeout_seconds=7.0
    )
    leased = await lease_one(store)
    assert (leased.lease.job_id, leased.config_name, leased.job_type) == (job_id, "knight.yaml", "T2I")
    assert (leased.inputs, leased.server, leased.tally) == ('{"6.text":"x"}', SERVER, Tally(0, 0, 5))
    assert (leased.file_path, leased.output_node, leased.timeout_seconds) == ("a.png", "9", 7.0)
    assert not leased.is_taken_over
    assert not leased.is_suspect


async def test_the_run_is_noted_before_anything_is_sent(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    now = database.clock.text()
    job = await store.run(ops.find_job, "knight.yaml")
    (attempt,) = await store.run(ops.list_attempts, leased.lease.job_id)
    assert job is not None
    assert (job.status, job.worker_id, job.server, job.run_count) == ("processing", WORKER, SERVER, 1)
    assert job.prompt_id == attempt.prompt_id == leased.prompt_id
    assert (job.start_time, job.end_time) == (now, None)
    assert (attempt.id, attempt.number, attempt.server) == (leased.lease.attempt_id, 1, SERVER)
    assert (attempt.started_at, attempt.running_seconds, attempt.outcome) == (now, None, None)
    assert await store.run(ops.owned_prompts) == {leased.prompt_id}
    database.clock.advance(LEASE_SECONDS)
    assert job.lease_expires_at == database.clock.text()


async def test_no_more_is_leased_than_prompt_ids_were_given(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(str(number)) for number in range(5)])
    assert len(await lease(store, most=3)) == 3
    assert await lease(store, most=0) == []


async def test_a_prompt_id_is_never_used_twice(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    prompt_id = mint_prompt_id()
    await store.run(ops.lease_jobs, WORKER, Window(SERVER, 2), [prompt_id], LEASE_SECONDS)
    before = everything(database)
    with pytest.raises(StoreError, match=r"UNIQUE|unique"):
        await store.run(ops.lease_jobs, WORKER, Window(SERVER, 2), [prompt_id], LEASE_SECONDS)
    assert everything(database) == before


async def test_the_window_of_a_server_holds_for_all_agents_together(store: Store, database: Database) -> None:
    other = database.open()
    await store.run(ops.submit_jobs, [wish(str(number)) for number in range(6)])
    assert names(await lease(store, most=2, size=3)) == ["0", "1"]
    assert names(await lease(other, most=2, size=3, worker="second-agent")) == ["2"]
    assert await lease(store, most=2, size=3) == []
    assert names(await lease(store, most=1, server="http://other:8188", size=3)) == ["3"]


async def test_a_window_has_room_again_when_a_run_ends(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    first = await lease_one(store, size=1)
    assert await lease(store, size=1) == []
    await store.run(ops.complete_job, first.lease, ["a.png"], None)
    assert names(await lease(store, size=1)) == ["b"]


async def test_a_prompt_that_is_still_at_the_server_fills_its_window_whatever_the_job_says(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    first = await lease_one(store, size=1)
    await store.run(ops.cancel_jobs, [first.lease.job_id])
    assert await lease(store, size=1) == []
    assert await store.run(ops.withdraw_attempt, (await store.run(ops.open_attempts))[0]) == []
    assert names(await lease(store, size=1)) == ["b"]


async def test_a_job_in_backoff_waits_for_its_time_and_others_go_ahead(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store, "a", priority=1)
    await submit_one(store, "b")
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    assert await store.run(ops.seconds_until_next) == pytest.approx(15.0, abs=0.01)
    assert names(await lease(store, most=2)) == ["b"]
    database.clock.advance(14.999)
    assert await lease(store) == []
    database.clock.advance(0.001)
    assert names(await lease(store)) == ["a"]
    assert await store.run(ops.seconds_until_next) is None


async def test_a_job_without_a_wait_may_run_at_once(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(FailureClass.INTERRUPTED), Retry(0.0, charged=False))
    assert await store.run(ops.seconds_until_next) is None
    again = await lease_one(store)
    assert again.last_failure == "interrupted"
    assert again.lease.fence > leased.lease.fence


async def test_a_job_that_is_held_is_not_leased(store: Store, database: Database) -> None:
    await submit_one(store, "a")
    database.by_hand("UPDATE jobs SET hold = 'pause'")
    database.clock.advance(30 * 24 * HOUR)
    assert await lease(store) == []
    database.by_hand("UPDATE jobs SET hold = NULL")
    assert names(await lease(store)) == ["a"]


async def test_a_suspect_waits_until_its_server_has_nothing_else(store: Store) -> None:
    await _suspect(store, "killer", priority=1)
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    other = await lease_one_of(store, "a", server="http://other:8188")
    assert await lease(store, most=2, server="http://other:8188") == []
    await store.run(ops.complete_job, other.lease, [], None)
    (alone,) = await lease(store, most=2, server="http://other:8188")
    assert alone.config_name == "killer"
    assert alone.is_suspect


async def test_while_a_suspect_runs_its_server_gets_nothing_else(store: Store, database: Database) -> None:
    await _suspect(store, "killer", priority=1)
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    (alone,) = await lease(store, most=3)
    assert alone.config_name == "killer"
    assert await lease(store, most=3) == []
    assert await lease(database.open(), most=3, worker="second-agent") == []
    assert names(await lease(store, most=1, server="http://other:8188")) == ["a"]
    await store.run(ops.complete_job, alone.lease, ["k.png"], None)
    assert names(await lease(store, most=3)) == ["b"]


async def test_a_suspect_further_back_ends_the_lease_and_runs_alone_later(store: Store) -> None:
    await _suspect(store, "killer", priority=60)
    await store.run(ops.submit_jobs, [wish("a"), wish("b", priority=70)])
    (first,) = await lease(store, most=3)
    assert first.config_name == "a"
    assert await lease(store, most=3) == []
    await store.run(ops.complete_job, first.lease, [], None)
    assert names(await lease(store, most=3)) == ["killer"]


async def test_a_job_avoids_the_server_that_lacks_something_and_no_other(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(
        ops.requeue_job, leased.lease, broken(FailureClass.MISSING), Retry(0.0, charged=True), avoid_server=True
    )
    assert await lease(store, server=SERVER) == []
    again = await lease_one(store, server="http://other:8188")
    await store.run(
        ops.requeue_job, again.lease, broken(FailureClass.MISSING), Retry(0.0, charged=True), avoid_server=True
    )
    assert await lease(store, server=SERVER) == []
    assert await lease(store, server="http://other:8188") == []
    assert names(await lease(store, server="http://third:8188")) == ["knight.yaml"]


@pytest.mark.parametrize(
    ("avoided", "other"), [("big-gpu", "gpu"), ("gpu", "big-gpu"), ("gpu", "gpu2"), ("gpu2", "gpu")]
)
async def test_a_server_with_a_like_name_is_not_avoided(store: Store, avoided: str, other: str) -> None:
    await submit_one(store)
    leased = await lease_one(store, server=avoided)
    await store.run(
        ops.requeue_job, leased.lease, broken(FailureClass.MISSING), Retry(0.0, charged=True), avoid_server=True
    )
    assert await lease(store, server=avoided) == []
    assert names(await lease(store, server=other)) == ["knight.yaml"]


async def test_a_heartbeat_prolongs_every_lease_of_its_worker_and_no_other(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b"), wish("c")])
    ours = await lease(store, most=2)
    theirs = await lease_one(store, worker="second-agent")
    database.clock.advance(20)
    assert await store.run(ops.renew_leases, WORKER, LEASE_SECONDS) == {
        (each.lease.job_id, each.lease.fence) for each in ours
    }
    database.clock.advance(20)
    expired = {attempt.job_id: attempt.has_expired for attempt in await store.run(ops.open_attempts)}
    assert expired == {ours[0].lease.job_id: False, ours[1].lease.job_id: False, theirs.lease.job_id: True}


async def test_what_a_worker_holds_is_seen_without_a_heartbeat(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    before = everything(database)
    assert await store.run(ops.held_leases, WORKER) == {(leased.lease.job_id, leased.lease.fence)}
    assert await store.run(ops.held_leases, "second-agent") == frozenset()
    assert everything(database) == before
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    assert (
        await store.run(ops.held_leases, WORKER)
        == await store.run(ops.renew_leases, WORKER, LEASE_SECONDS)
        == frozenset()
    )


async def test_a_released_job_waits_and_its_prompt_stays(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b"), wish("c")])
    ours = await lease(store, most=2)
    await lease_one(store, worker="second-agent")
    assert await store.run(ops.release_jobs, WORKER) == 2
    counts = await store.run(ops.count_jobs)
    assert (counts.pending, counts.processing) == (2, 1)
    assert {each.prompt_id for each in ours} < await store.run(ops.owned_prompts)
    assert await lease(store, most=5) == []


async def test_how_long_the_prompt_has_run_is_remembered_whatever_the_clock_does(
    store: Store, database: Database
) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.note_running, leased.lease, 5.0)
    database.clock.advance(-HOUR)
    await store.run(ops.note_running, leased.lease, 9.0)
    (attempt,) = await store.run(ops.list_attempts, leased.lease.job_id)
    assert attempt.running_seconds == 9.0


async def _suspect(store: Store, name: str, **facts: int) -> None:
    """A job during which a server died."""
    leased = await submit_and_lease(store, name, **facts)
    await store.run(
        ops.requeue_job, leased.lease, broken(FailureClass.SERVER_LOST), Retry(0.0, charged=False, strike=True)
    )


async def lease_one_of(store: Store, name: str, server: str) -> Leased:
    """Lease a job out of turn, as if it had been leased before the others came."""
    job = await store.run(ops.find_job, name)
    assert job is not None
    assert job.priority is not None
    await store.run(ops.set_priority, job.id, -1)
    leased = await lease_one(store, server=server)
    assert leased.config_name == name
    await store.run(ops.set_priority, job.id, job.priority)
    return leased
