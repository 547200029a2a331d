"""A job whose server stopped answering waits for it or another, uncharged, and can be taken over when it returns."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.domain.server_states import LostServer, StuckPrompt
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.store_batches import FOX, queue
from support.stores import (
    LEASE_SECONDS,
    SERVER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    submit_and_lease,
    submit_one,
    take_over,
)

OTHER = "http://other:8188"
AWAY = 61.5


async def lose(store: Store, leased: Leased, *, executed: float = 0.0, is_held: bool = False) -> None:
    failure = broken(FailureClass.SERVER_LOST, "it waits for a server: gpu does not answer")
    await store.run(ops.wait_for_server, leased.lease, failure, AWAY, executed, is_held=is_held)


async def lost(store: Store, *, executed: float = 0.0, is_held: bool = False) -> Leased:
    """A job that was leased and whose server stopped answering."""
    leased = await submit_and_lease(store)
    await lose(store, leased, executed=executed, is_held=is_held)
    return leased


async def job_of(store: Store, leased: Leased) -> Job:
    job = await store.run(ops.find_job_by_id, leased.lease.job_id)
    assert job is not None
    return job


async def test_it_is_pending_again_uncharged_and_says_which_server_it_waits_for(
    store: Store, database: Database
) -> None:
    leased = await lost(store, executed=5.0)
    job = await job_of(store, leased)
    assert (job.status, job.failure_class, job.hold) == ("pending", "server_lost", None)
    assert (job.run_count, job.retries_attempted, job.strikes) == (1, 0, 0)
    assert job.lost_at is not None
    assert job.lost_at < database.clock.text()
    assert job.waiting_words.startswith(f"waits for gpu:8188, which has not answered since {job.lost_at[:19]} UTC")
    assert await store.run(ops.lost_servers) == [LostServer(SERVER, 1, job.lost_at)]
    assert await store.run(ops.lost_servers, "another") == []
    assert not await store.run(ops.is_queue_idle)
    last = (await store.run(ops.events_after, 0))[-1]
    assert (last.name, last.failure_class, last.server) == ("job.retry", "server_lost", SERVER)
    assert "waits for a server" in (last.message or "")


async def test_who_had_it_can_change_nothing_any_more(store: Store) -> None:
    leased = await lost(store)
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, leased.lease, ["a.png"], None)
    with pytest.raises(LeaseLost):
        await lose(store, leased)
    assert await store.run(ops.held_leases, "first-agent") == frozenset()


async def test_its_server_gets_no_second_prompt_of_it_and_has_the_first_taken_over(store: Store) -> None:
    before = await lost(store, executed=5.0)
    assert await lease(store) == []
    attempt = await open_attempt(store)
    assert (attempt.is_lost, attempt.is_wanted, attempt.prompt_id) == (True, True, before.prompt_id)
    again = await take_over(store)
    assert (again.prompt_id, again.running_seconds, again.tally.strikes) == (before.prompt_id, 5.0, 0)
    job = await job_of(store, again)
    assert (job.status, job.lost_at, job.failure_class, job.error_trace) == ("processing", None, None, None)
    await store.run(ops.complete_job, again.lease, ["a.png"], None)
    job = await job_of(store, again)
    assert (job.status, job.run_count, job.retries_attempted) == ("done", 1, 0)


@pytest.mark.parametrize(("executed", "strikes"), [(0.0, 0), (0.001, 1)])
async def test_another_server_may_take_it_and_only_what_was_executed_is_suspect(
    store: Store, executed: float, strikes: int
) -> None:
    before = await lost(store, executed=executed)
    seen = await open_attempt(store)
    elsewhere = await lease_one(store, server=OTHER)
    assert elsewhere.prompt_id != before.prompt_id
    assert (elsewhere.tally.strikes, elsewhere.tally.retries_attempted) == (strikes, 0)
    first, second = await store.run(ops.list_attempts, before.lease.job_id)
    assert (first.outcome, second.outcome) == ("server_lost", None)
    assert await store.run(ops.owned_prompts) == {elsewhere.prompt_id}, "the copy that was left is deleted on sight"
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    job = await job_of(store, elsewhere)
    assert (job.lost_at, job.run_count, job.server) == (None, 2, OTHER)


async def test_what_was_executed_is_taken_by_a_server_that_has_nothing_else(store: Store) -> None:
    await lost(store, executed=5.0)
    await submit_one(store, "second.yaml", priority=1)
    await lease_one(store, server=OTHER)
    assert await lease(store, server=OTHER) == [], "a suspect runs alone"


async def test_what_was_taken_over_is_not_taken_by_another(store: Store) -> None:
    await lost(store)
    await take_over(store)
    assert await lease(store, server=OTHER) == []


async def test_one_that_is_held_waits_for_its_own_server(store: Store) -> None:
    leased = await lost(store, executed=5.0, is_held=True)
    assert await lease(store, server=OTHER) == []
    assert not await store.run(ops.is_queue_idle)
    assert "another" not in (await job_of(store, leased)).waiting_words
    assert (await take_over(store)).prompt_id == leased.prompt_id
    assert (await job_of(store, leased)).hold is None


async def test_cancelled_while_it_waits_it_is_taken_back(store: Store) -> None:
    leased = await lost(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    attempt = await open_attempt(store)
    assert (attempt.is_lost, attempt.is_wanted) == (True, False)
    assert await store.run(ops.withdraw_attempt, attempt, "its server is away") == []
    job = await job_of(store, leased)
    assert (job.status, job.failure_class, job.lost_at) == ("failed", "cancelled", None)
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    assert (await lease_one(store)).config_name == leased.config_name


async def test_set_to_processing_by_hand_it_is_taken_over_as_any_other(store: Store, database: Database) -> None:
    leased = await lost(store)
    database.by_hand(f"UPDATE jobs SET status = 'processing' WHERE id = {leased.lease.job_id}")
    attempt = await open_attempt(store)
    assert (attempt.status, attempt.has_expired) == ("processing", True)
    again = await take_over(store)
    await lose(store, again)
    assert (await job_of(store, leased)).waits_for_server


async def test_a_lost_page_does_not_hold_up_the_book_elsewhere_and_has_its_turn_at_its_own_server(store: Store) -> None:
    pages = await queue(store, 3, FOX, kind=BatchKind.BOOK, is_serial=True)
    first = await lease_one(store)
    await lose(store, first)
    assert await lease(store, most=3) == [], "the first page may still be there"
    await store.run(ops.free_turns)
    moved = await lease(store, most=3, server=OTHER)
    assert [each.lease.job_id for each in moved] == [pages[0]]
    await store.run(ops.complete_job, moved[0].lease, ["a.png"], None)
    second = await lease_one(store, server=OTHER)
    await lose(store, second)
    await store.run(ops.free_turns)
    third = await lease(store, most=3, server="http://third:8188")
    assert [each.lease.job_id for each in third] == [pages[1]], "it goes first, and alone"


async def test_two_lost_pages_wait_for_their_turn_when_another_is_at_a_server(store: Store) -> None:
    await queue(store, 3, FOX, kind=BatchKind.BOOK, is_serial=True)
    await lose(store, await lease_one(store))
    await store.run(ops.set_priority, (await store.run(ops.list_jobs, batch_id=FOX))[0].id, 90)
    await store.run(ops.free_turns)
    (second,) = await lease(store, most=3, server=OTHER)
    assert await lease(store, most=3, server="http://third:8188") == []
    await store.run(ops.complete_job, second.lease, ["a.png"], None)
    assert len(await lease(store, most=3, server=OTHER)) == 1


# Servers that are stuck.


async def test_a_stuck_prompt_is_noted_and_reported_once(store: Store, database: Database) -> None:
    assert await store.run(ops.note_stuck, SERVER, "p1", "no sign of life")
    assert not await database.open().run(ops.note_stuck, SERVER, "p1", "it does not stop")
    (noted,) = await store.run(ops.stuck_prompts)
    assert noted == StuckPrompt("p1", SERVER, "no sign of life", noted.since)
    alerts = [event for event in await store.run(ops.events_after, 0) if event.name == "alert.server"]
    assert len(alerts) == 1
    assert "stuck" in (alerts[0].message or "")
    assert "restart" in (alerts[0].message or "")
    await store.run(ops.forget_stuck, "p1")
    assert await store.run(ops.stuck_prompts) == []


async def test_nothing_can_go_on_if_all_that_is_left_waits_for_stuck_servers(store: Store, database: Database) -> None:
    at_stuck = await submit_and_lease(store)
    await submit_one(store, "waits.yaml")
    assert await store.run(ops.is_blocked, {SERVER})
    assert not await store.run(ops.is_blocked, {OTHER}), "it runs at a server that works"
    await store.run(ops.requeue_job, at_stuck.lease, broken(), Retry(60.0, charged=True))
    assert not await store.run(ops.is_blocked, {SERVER}), "a job in backoff is waited for"
    database.clock.advance(61)
    assert await store.run(ops.is_blocked, {SERVER}), "it could run now, and nobody takes it"


async def test_of_one_batch_nothing_else_counts(store: Store) -> None:
    await queue(store, 1, FOX)
    await submit_one(store, "other.yaml", priority=1)
    await lease_one(store, server=OTHER)
    assert await store.run(ops.is_blocked, {SERVER}, FOX)
    assert not await store.run(ops.is_blocked, {SERVER})
