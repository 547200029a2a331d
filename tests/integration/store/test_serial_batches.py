"""Batches whose members go one by one: one prompt at a server at a time, over all servers and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from support.store_batches import FOX, batch_of, completions, holds_of, job_of, land, lease_of, queue, status_of
from support.stores import LEASE_SECONDS, SERVER, WORKER, Database, broken, lease, open_attempt, submit_one, take_over

OTHER_SERVER = "http://other:8188"


@pytest.fixture
async def pages(store: Store) -> list[JobId]:
    return await queue(store, 4, kind=BatchKind.BOOK, is_serial=True)


async def next_page(store: Store, server: str = SERVER) -> JobId | None:
    """What is leased when everything may be."""
    leased = await lease(store, most=9, server=server)
    assert len(leased) <= 1
    return leased[0].lease.job_id if leased else None


async def take_first(store: Store) -> Leased:
    """The first member at a server, and the others told to wait."""
    (leased,) = await lease(store, most=9)
    return leased


async def test_one_member_is_at_a_server_at_a_time(store: Store, database: Database, pages: list[JobId]) -> None:
    leased = await take_first(store)
    assert leased.lease.job_id == pages[0]
    for server in (SERVER, OTHER_SERVER):
        for other in (store, database.open()):
            assert await lease(other, most=9, worker="other-agent", server=server) == []
            assert await lease_of(other, FOX, most=9, server=server) == []
    assert await holds_of(store) == [None, "turn", "turn", "turn"]


async def test_members_go_one_after_the_other_until_all_have_gone(store: Store, pages: list[JobId]) -> None:
    gone = []
    for _ in pages:
        leased = await take_first(store)
        gone.append(leased.lease.job_id)
        await land(store, [leased])
    assert gone == pages
    assert (await status_of(store), await completions(store)) == ("complete", 1)


async def test_many_agents_that_ask_at_once_get_one_member(
    store: Store, database: Database, pages: list[JobId]
) -> None:
    stores = [store, database.open(), database.open()]
    asked = [
        lease(each, most=3, worker=f"agent-{place}", server=f"http://{place}-{number}:8188")
        for number in range(4)
        for place, each in enumerate(stores)
    ]
    assert sum(len(found) for found in await asyncio.gather(*asked)) == 1
    assert len(await store.run(ops.open_attempts)) == 1


async def test_the_others_in_the_queue_are_not_held_up(store: Store, pages: list[JobId]) -> None:
    single = await submit_one(store, "single")
    sweep = await queue(store, 2, "sweep")
    leased = [each.lease.job_id for each in await lease(store, most=4)]
    assert leased == [pages[0], single, *sweep]


async def test_two_books_go_side_by_side(store: Store, pages: list[JobId]) -> None:
    other = await queue(store, 2, "bear_1", kind=BatchKind.BOOK, is_serial=True)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [pages[0], other[0]]


async def test_a_book_without_turns_goes_one_by_one_where_an_agent_wants_that(store: Store) -> None:
    ids = await queue(store, 3, kind=BatchKind.BOOK)
    await queue(store, 2, "sweep")
    window = Window(SERVER, 16, one_page=True)
    leased = await store.run(ops.lease_jobs, WORKER, window, [mint_prompt_id() for _ in range(9)], LEASE_SECONDS)
    assert [each.batch_id for each in leased] == [FOX, "sweep", "sweep"]
    await land(store, leased)
    (second,) = await store.run(ops.lease_jobs, WORKER, window, [mint_prompt_id() for _ in range(9)], LEASE_SECONDS)
    assert second.lease.job_id == ids[1]


async def test_pages_go_side_by_side_otherwise(store: Store) -> None:
    await queue(store, 3, kind=BatchKind.BOOK)
    assert len(await lease(store, most=9)) == 3


# How a turn ends.


async def _complete(store: Store, leased: Leased) -> None:
    await store.run(ops.complete_job, leased.lease, ["a.png"], None)


async def _fail(store: Store, leased: Leased) -> None:
    await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))


async def _wait(store: Store, leased: Leased) -> None:
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(60.0, charged=True))


async def _refuse(store: Store, leased: Leased) -> None:
    await store.run(ops.refuse_job, leased.lease, broken())


async def _take_back(store: Store, leased: Leased) -> None:
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    assert await next_page(store) is None
    await store.run(ops.withdraw_attempt, await open_attempt(store), "interrupted")


async def _wish_again_and_put_off(store: Store, leased: Leased) -> None:
    """A wish lets go of the prompt that is at the server."""
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    await store.run(ops.resubmit_jobs, [(leased.lease.job_id, None)])
    await store.run(ops.set_priority, leased.lease.job_id, 99)


ENDS: dict[str, Callable[[Store, Leased], Awaitable[None]]] = {
    "complete": _complete,
    "fail": _fail,
    "backoff": _wait,
    "refuse": _refuse,
    "take-back": _take_back,
    "wish": _wish_again_and_put_off,
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_next_member_goes_when_the_prompt_is_at_the_server_no_more(
    store: Store, pages: list[JobId], end: str
) -> None:
    await ENDS[end](store, await take_first(store))
    assert (await holds_of(store))[1:] == [None, "turn", "turn"]
    assert await next_page(store) == pages[1]
    assert await next_page(store, OTHER_SERVER) is None


async def test_a_run_that_was_never_sent_goes_first_again(store: Store, pages: list[JobId]) -> None:
    await store.run(ops.return_unsent, (await take_first(store)).lease)
    assert await next_page(store) == pages[0]
    assert await next_page(store, OTHER_SERVER) is None


async def test_a_run_that_is_tried_again_at_once_goes_first_again(store: Store, pages: list[JobId]) -> None:
    await store.run(ops.requeue_job, (await take_first(store)).lease, broken(), Retry(0.0, charged=True))
    assert await next_page(store) == pages[0]


async def test_a_page_in_backoff_does_not_hold_up_the_next_and_takes_its_turn_after_it(
    store: Store, database: Database, pages: list[JobId]
) -> None:
    await store.run(ops.requeue_job, (await take_first(store)).lease, broken(), Retry(15.0, charged=True))
    second = await take_first(store)
    assert second.lease.job_id == pages[1]
    database.clock.advance(20)
    assert await next_page(store) is None
    assert await holds_of(store) == ["turn", None, "turn", "turn"]
    await land(store, [second])
    assert await next_page(store) == pages[0]


async def test_turns_go_by_priority_and_then_by_age(store: Store, database: Database, pages: list[JobId]) -> None:
    first = await take_first(store)
    database.by_hand(f"UPDATE jobs SET priority = 1 WHERE id = {pages[3]}")
    await store.run(ops.set_priority, pages[1], 90)
    gone = []
    for _ in range(3):
        await land(store, [first])
        first = await take_first(store)
        gone.append(first.lease.job_id)
    assert gone == [pages[3], pages[2], pages[1]]


async def test_a_cancelled_member_keeps_its_turn_until_its_prompt_is_gone(store: Store, pages: list[JobId]) -> None:
    leased = await take_first(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    assert await store.run(ops.free_turns) == 0
    assert await next_page(store) is None


async def test_a_run_that_is_taken_over_keeps_its_turn(store: Store, pages: list[JobId]) -> None:
    await take_first(store)
    await store.run(ops.release_jobs, WORKER)
    assert await next_page(store) is None
    taken = await take_over(store)
    assert await next_page(store) is None
    await land(store, [taken])
    assert await next_page(store) == pages[1]


async def test_the_end_of_another_batchs_run_passes_no_turn(store: Store, pages: list[JobId]) -> None:
    await submit_one(store, "single")
    await queue(store, 2, "bear_1", kind=BatchKind.BOOK, is_serial=True)
    _, single, bear = await lease(store, most=9)
    await land(store, [single, bear])
    assert await holds_of(store) == [None, "turn", "turn", "turn"]
    assert await holds_of(store, "bear_1") == [None, None]


@pytest.mark.parametrize("what", ["job", "attempt", "both"])
async def test_what_is_deleted_by_hand_passes_its_turn(
    store: Store, database: Database, pages: list[JobId], what: str
) -> None:
    await take_first(store)
    if what != "job":
        database.by_hand("DELETE FROM attempts")
        assert await holds_of(store) == [None, None, "turn", "turn"]
        database.by_hand("UPDATE jobs SET status = 'failed' WHERE status = 'processing'")
    if what != "attempt":
        database.by_hand(f"DELETE FROM jobs WHERE id = {pages[0]}")
    await store.run(ops.free_turns)
    assert await next_page(store) == pages[1]
    assert await next_page(store, OTHER_SERVER) is None


async def test_a_turn_that_nobody_has_is_free(store: Store, database: Database, pages: list[JobId]) -> None:
    """The one whose turn it was is gone; the others had been told to wait."""
    await land(store, [await take_first(store)])
    await store.run(ops.cancel_jobs, [pages[1]])
    assert await lease(store, most=9) == []
    other = await queue(store, 2, "bear_1", kind=BatchKind.BOOK, is_serial=True)
    assert await next_page(store) == other[0]
    assert await store.run(ops.free_turns) == 2
    assert await next_page(store) == pages[2]
    assert await store.run(ops.free_turns) == 0


async def test_a_member_that_cannot_go_yet_does_not_hold_up_the_others(store: Store, pages: list[JobId]) -> None:
    first = await take_first(store)
    await store.run(ops.requeue_job, first.lease, broken(), Retry(0.0, charged=False), avoid_server=True)
    assert await next_page(store) == pages[1]


async def test_pausing_and_resuming_keeps_the_order_and_the_turn(store: Store, pages: list[JobId]) -> None:
    first = await take_first(store)
    await store.run(ops.pause_batch, FOX)
    assert await holds_of(store) == [None, "paused", "paused", "paused"]
    await store.run(ops.resume_batch, FOX)
    assert await next_page(store) is None
    await store.run(ops.pause_batch, FOX)
    await land(store, [first])
    assert await next_page(store) is None
    assert await store.run(ops.free_turns) == 0
    await store.run(ops.resume_batch, FOX)
    assert await next_page(store) == pages[1]
    assert await next_page(store, OTHER_SERVER) is None


async def test_a_book_that_is_cancelled_and_retried_waits_for_the_prompt_that_is_still_there(
    store: Store, pages: list[JobId]
) -> None:
    await take_first(store)
    await ops.cancel_batch(store, FOX)
    await store.run(ops.retry_batch, FOX, with_cancelled=True)
    assert await next_page(store) is None
    await land(store, [await take_over(store)])
    assert await next_page(store) == pages[1]
    assert (await batch_of(store)).generation == 2


async def test_a_suspect_waits_for_its_turn_too(store: Store, pages: list[JobId]) -> None:
    first = await take_first(store)
    await store.run(ops.requeue_job, first.lease, broken(), Retry(0.0, charged=False, strike=True))
    assert await next_page(store) == pages[0]
    assert (await job_of(store, pages[0])).strikes == 1
    assert await next_page(store, OTHER_SERVER) is None
