"""What the memory knows of bursts: sizes after kills, wishes of the user, what belongs to a burst, what was written."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.batches import BatchKind, BatchStatus
from comfyui_agent.domain.bursts import ItemRequest, ItemStatus, Pick, size_of
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.store_batches import FOX, batch_of, completions, holds_of, job_of, land, lease_of, queue, told
from support.stores import Database, broken, lease, open_attempt, take_over, wish

GRAPH = Template.of({"98:6": {"class_type": "CLIPTextEncode", "inputs": {"text": ""}}})
LOWEST = 2
"""Steps of the ladder 15, 5, 1."""


@pytest.fixture
async def items(store: Store) -> list[JobId]:
    """Prompts of a folder, all for a later burst."""
    return await queue(store, 4, kind=BatchKind.BURST, reserved=True)


async def begin(store: Store, *wishes: tuple[JobId, ItemRequest], worker: str = "burst-1") -> int:
    return await store.run(ops.begin_burst, FOX, worker, wishes, LOWEST)


def pick_of(job_id: JobId, problem: str = "") -> Pick:
    return Pick(job_id, GRAPH, {"98:6.text": f"prompt {job_id}"}, f"/out/{job_id}.png", problem)


async def pick(store: Store, *ids: JobId) -> None:
    await store.run(ops.pick_items, FOX, [pick_of(each) for each in ids])


async def work(store: Store, most: int = 9) -> list[Leased]:
    return await lease_of(store, FOX, most=most)


# How large the next one is.


async def test_the_first_burst_is_the_largest_and_clean_ones_stay_so(store: Store, items: list[JobId]) -> None:
    for _ in range(3):
        assert await begin(store) == 0
        await store.run(ops.end_burst, FOX)


async def test_each_burst_that_is_killed_makes_the_next_smaller_and_clean_ones_grow_it_back(
    store: Store, items: list[JobId]
) -> None:
    seen = []
    for is_killed in (True, True, True, True, False, False, False, True, False, False):
        seen.append(size_of(15, await begin(store)))
        if not is_killed:
            await store.run(ops.end_burst, FOX)
    assert seen == [15, 5, 1, 1, 1, 5, 15, 15, 5, 15]


async def test_a_burst_with_nothing_to_do_does_not_make_the_next_one_larger(store: Store, items: list[JobId]) -> None:
    await begin(store)
    assert await begin(store) == 1
    await store.run(ops.end_burst, FOX, has_worked=False)
    assert await begin(store) == 1


async def test_another_burst_is_as_large_as_its_own_past_says(store: Store, items: list[JobId]) -> None:
    await queue(store, 1, "other", kind=BatchKind.BURST, reserved=True)
    await begin(store)
    assert await store.run(ops.begin_burst, "other", "burst-2", [], LOWEST) == 0
    assert await begin(store) == 1


async def test_a_lower_ceiling_has_fewer_steps(store: Store, items: list[JobId]) -> None:
    for _ in range(5):
        await begin(store)
    assert await store.run(ops.begin_burst, FOX, "burst-1", [], 0) == 0


async def test_what_else_is_known_of_the_batch_is_kept(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await store.run(ops.note_written, FOX, {}, ("before", "after"))
    metadata = (await batch_of(store)).metadata
    assert metadata == {
        "made": "in a test",
        "level": 0,
        "worker": "burst-1",
        "digest_before": "before",
        "digest": "after",
        "last": [],
    }
    await store.run(ops.end_burst, FOX)
    assert (await batch_of(store)).metadata["worker"] is None


# What belongs to a burst.


async def test_items_are_for_a_later_burst_until_they_are_picked(store: Store, items: list[JobId]) -> None:
    await begin(store)
    assert await holds_of(store) == ["burst"] * 4
    assert await work(store) == []
    await pick(store, items[1], items[2])
    assert [each.lease.job_id for each in await work(store)] == [items[1], items[2]]
    assert await lease(store, most=9) == []


async def test_a_picked_item_says_what_its_prompt_says_now(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, items[0])
    (leased,) = await work(store)
    assert leased.inputs == f'{{"98:6.text":"prompt {items[0]}"}}'
    assert (leased.template_hash, leased.file_path) == (GRAPH.hash, f"/out/{items[0]}.png")
    assert await store.run(ops.find_template, GRAPH.hash) == GRAPH


async def test_the_burst_waits_for_what_it_picked_and_for_nothing_else(
    store: Store, database: Database, items: list[JobId]
) -> None:
    await begin(store)
    assert await store.run(ops.is_batch_idle, FOX)
    await pick(store, items[0])
    assert not await store.run(ops.is_batch_idle, FOX)
    (leased,) = await work(store)
    assert not await store.run(ops.is_batch_idle, FOX)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    assert await store.run(ops.is_batch_idle, FOX)  # the next burst makes the retry
    assert [each.is_backing_off for each in await store.run(ops.burst_items, FOX)] == [True, False, False, False]
    database.clock.advance(15)
    assert not any(each.is_backing_off for each in await store.run(ops.burst_items, FOX))
    await land(store, await work(store))
    assert await store.run(ops.is_batch_idle, FOX)
    assert (await batch_of(store)).status is BatchStatus.COLLECTING


async def test_what_a_burst_did_not_begin_is_put_off_at_its_end(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, *items[:3])
    done, waiting = await work(store, 2)
    await land(store, [done])
    await store.run(ops.requeue_job, waiting.lease, broken(), Retry(15.0, charged=True))
    await store.run(ops.end_burst, FOX)
    assert await holds_of(store) == [None, "burst", "burst", "burst"]
    assert await work(store) == []


@pytest.mark.parametrize("goodbye", [True, False], ids=["ended", "killed"])
async def test_prompts_at_a_server_are_left_for_the_next_burst_to_take_over(
    store: Store, items: list[JobId], goodbye: bool
) -> None:
    await begin(store)
    await pick(store, items[0], items[1])
    (first,) = await work(store, 1)
    if goodbye:
        await store.run(ops.release_jobs, "first-agent")
        await store.run(ops.end_burst, FOX)
    await begin(store, worker="burst-2")
    assert [(item.is_at_server, item.word) for item in await store.run(ops.burst_items, FOX)] == [
        (True, ItemStatus.PENDING),
        *[(False, ItemStatus.PENDING)] * 3,
    ]
    assert await holds_of(store) == [None, "burst", "burst", "burst"]
    taken = await take_over(store)
    assert taken.prompt_id == first.prompt_id
    await land(store, [taken])
    assert (await job_of(store, items[0])).run_count == 1


async def test_an_item_that_cannot_be_rendered_has_failed_and_says_why(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await store.run(ops.pick_items, FOX, [pick_of(items[0], "EP01/ä.txt is not UTF-8: save it so"), pick_of(items[1])])
    job = await job_of(store, items[0])
    assert (job.status, job.failure_class, job.hold) == (JobStatus.FAILED, "invalid", None)
    assert "EP01/ä.txt is not UTF-8: save it so" in (job.error_trace or "")
    assert (await store.run(ops.burst_items, FOX))[0].error.endswith("EP01/ä.txt is not UTF-8: save it so")
    (event,) = [event for event in await store.run(ops.events_after, 0) if event.name == "job.failed"]
    assert (event.job_id, event.failure_class, event.batch_id) == (items[0], "invalid", FOX)
    assert [each.lease.job_id for each in await work(store)] == [items[1]]


async def test_a_burst_in_which_nothing_can_be_rendered_completes_once(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await store.run(ops.pick_items, FOX, [pick_of(each, "no prompt") for each in items])
    assert (await batch_of(store)).status is BatchStatus.COMPLETE
    *_, before, newest = await store.run(ops.events_after, 0)
    assert (before.name, newest.name) == ("job.failed", "batch.completed")
    assert await begin(store) == 1
    assert await completions(store) == 1


async def test_what_is_paused_meanwhile_is_not_picked(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await store.run(ops.pause_batch, FOX)
    await pick(store, *items)
    assert await work(store) == []


async def test_a_paused_burst_goes_on_with_a_later_one(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, items[0])
    await store.run(ops.pause_batch, FOX)
    assert await work(store) == []
    assert await store.run(ops.is_batch_idle, FOX)
    await store.run(ops.end_burst, FOX)
    await store.run(ops.resume_batch, FOX)
    assert await work(store) == []
    await begin(store)
    await pick(store, *items)
    await land(store, await work(store))
    assert (await batch_of(store)).done == 4


async def test_resuming_a_burst_starts_none(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await store.run(ops.end_burst, FOX)
    await store.run(ops.pause_batch, FOX)
    await store.run(ops.resume_batch, FOX)
    assert await holds_of(store) == ["burst"] * 4
    assert await work(store) == []


async def test_new_prompts_in_the_folder_are_a_new_generation(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, *items)
    await land(store, await work(store))
    assert await completions(store) == 1
    (late,) = await store.run(ops.fill_batch, [wish("fox_1/late.txt", batch_id=FOX, batch_index=4, reserved=True)])
    assert (await batch_of(store)).generation == 2
    assert await work(store) == []
    await pick(store, late)
    await land(store, await work(store))
    assert await told(store) == ["batch.created", "batch.completed", "batch.completed"]


async def test_items_come_in_their_order_with_the_names_of_their_files(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, *items[:2])
    done, failed = await work(store)
    await store.run(ops.complete_job, done.lease, ["/out/1.png"], None)
    await store.run(ops.fail_job, failed.lease, broken(message="boom\nsecond line"), GiveUp(FailureClass.EXECUTION))
    found = await store.run(ops.burst_items, FOX)
    assert [(item.job_id, item.key) for item in found] == [(each, f"_{at}") for at, each in enumerate(items)]
    assert [item.word for item in found] == [
        ItemStatus.COMPLETED,
        ItemStatus.FAILED,
        ItemStatus.PENDING,
        ItemStatus.PENDING,
    ]
    assert (found[0].outputs, found[0].error) == (("/out/1.png",), "")
    assert "boom" in found[1].error
    assert "\n" not in found[1].error


# What its user wants.


async def ended(store: Store, items: list[JobId]) -> None:
    """The first is done, the second has failed."""
    await begin(store)
    await pick(store, *items[:2])
    done, failed = await work(store)
    await land(store, [done])
    await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.end_burst, FOX)


async def test_a_regenerated_item_is_rendered_without_the_cache(store: Store, items: list[JobId]) -> None:
    await ended(store, items)
    await begin(store, (items[0], ItemRequest.AGAIN), (items[1], ItemRequest.AGAIN))
    found = await store.run(ops.burst_items, FOX)
    assert [item.word for item in found[:2]] == [ItemStatus.PENDING, ItemStatus.PENDING]
    assert await holds_of(store) == ["burst"] * 4
    await pick(store, items[0], items[1])
    assert [each.last_failure for each in await work(store)] == ["output", "output"]


async def test_a_request_after_the_end_is_one_new_generation(store: Store, items: list[JobId]) -> None:
    await begin(store)
    await pick(store, *items)
    await land(store, await work(store))
    await store.run(ops.end_burst, FOX)
    await begin(store, *[(each, ItemRequest.AGAIN) for each in items[:3]])
    found = await batch_of(store)
    assert (found.status, found.generation, found.pending) == (BatchStatus.ACTIVE, 2, 3)


async def test_what_the_user_calls_done_is_done(store: Store, items: list[JobId]) -> None:
    await ended(store, items)
    await begin(store, (items[1], ItemRequest.TRUST), (items[2], ItemRequest.TRUST))
    words = [item.word for item in await store.run(ops.burst_items, FOX)]
    assert words == [ItemStatus.COMPLETED, ItemStatus.COMPLETED, ItemStatus.COMPLETED, ItemStatus.PENDING]
    job = await job_of(store, items[1])
    assert (job.error_trace, job.failure_class, job.hold, job.outputs) == (None, None, None, ())


async def test_what_the_user_gives_up_has_failed(store: Store, items: list[JobId]) -> None:
    await ended(store, items)
    await begin(store, (items[0], ItemRequest.SKIP), (items[2], ItemRequest.SKIP), (items[3], ItemRequest.KEEP))
    words = [item.word for item in await store.run(ops.burst_items, FOX)]
    assert words == [ItemStatus.FAILED, ItemStatus.FAILED, ItemStatus.FAILED, ItemStatus.PENDING]
    assert (await job_of(store, items[2])).failure_class == "cancelled"
    assert await store.run(ops.retry_batch, FOX) == 1


@pytest.mark.parametrize("wanted", [ItemRequest.TRUST, ItemRequest.SKIP])
async def test_a_request_ends_what_a_dead_burst_had_at_a_server(
    store: Store, items: list[JobId], wanted: ItemRequest
) -> None:
    await begin(store)
    await pick(store, items[0])
    (stale,) = await work(store)
    await begin(store, (items[0], wanted), worker="burst-2")
    assert not (await open_attempt(store)).is_wanted
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, stale.lease, ["late.png"], None)
    assert (await job_of(store, items[0])).outputs == ()


@pytest.mark.parametrize("wanted", [ItemRequest.TRUST, ItemRequest.SKIP])
async def test_state_file_edits_that_leave_nothing_to_do_complete_the_burst_once(
    store: Store, items: list[JobId], wanted: ItemRequest
) -> None:
    await begin(store, *[(each, wanted) for each in items])
    assert (await batch_of(store)).status is BatchStatus.COMPLETE
    assert await completions(store) == 1


async def test_a_request_for_what_waits_changes_nothing(store: Store, items: list[JobId]) -> None:
    await begin(store)
    before = await store.run(ops.list_jobs, batch_id=FOX)
    await begin(store, (items[0], ItemRequest.AGAIN))
    assert await store.run(ops.list_jobs, batch_id=FOX) == before


async def test_all_regenerations_are_accepted_or_none(store: Store, items: list[JobId], database: Database) -> None:
    before = await store.run(ops.list_jobs, batch_id=FOX)
    database.refuse("jobs", "UPDATE OF status", "NEW.status = 'failed'")
    with pytest.raises(Exception, match="on purpose"):
        await begin(store, (items[0], ItemRequest.TRUST), (items[1], ItemRequest.SKIP))
    assert await store.run(ops.list_jobs, batch_id=FOX) == before
    assert "worker" not in (await batch_of(store)).metadata


# What the state file was told.


async def test_what_was_written_is_remembered_word_by_word(store: Store, items: list[JobId]) -> None:
    words = dict(zip(items, (ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.PENDING), strict=False))
    await store.run(ops.note_written, FOX, words, ("", "first"))
    found = await store.run(ops.burst_items, FOX)
    assert [item.written for item in found] == [ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.PENDING, None]
    await store.run(ops.note_written, FOX, {items[0]: ItemStatus.PENDING}, ("first", "second"))
    assert [item.written for item in await store.run(ops.burst_items, FOX)][:2] == [
        ItemStatus.PENDING,
        ItemStatus.FAILED,
    ]
    metadata = (await batch_of(store)).metadata
    assert (metadata["digest_before"], metadata["digest"]) == ("first", "second")


async def test_a_word_that_someone_made_up_by_hand_is_none(
    store: Store, database: Database, items: list[JobId]
) -> None:
    database.by_hand("UPDATE jobs SET written = 'rendering'")
    assert {item.written for item in await store.run(ops.burst_items, FOX)} == {None}
