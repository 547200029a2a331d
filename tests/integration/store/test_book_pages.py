"""The view `book_pages`: a batch of the kind `book` as its pages."""

from __future__ import annotations

import contextlib
import json

import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.store_batches import FOX, fall, job_of, land, queue
from support.stores import SERVER, Database, Rows, broken, lease, lease_one, open_attempt, submit_and_lease, wish

COLUMNS = [
    "book_id",
    "page",
    "status",
    "retry_count",
    "last_attempted_at",
    "needs_regeneration",
    "image_error",
    "job_metadata",
]


@pytest.fixture
async def book(store: Store, database: Database) -> str:
    """Five pages that wait, and a batch of another kind beside them."""
    database.by_hand(
        "INSERT INTO batches (id, name, kind, status) VALUES ('fox_1', 'fox', 'book', 'active');"
        "INSERT INTO batches (id, name, kind, status) VALUES ('sweep_1', 'sweep', 'sweep', 'active')"
    )
    await store.run(
        ops.submit_jobs,
        [
            wish(f"page_{index}", batch_id="fox_1", batch_index=index, inputs={"6.text": f"fox {index}"})
            for index in range(5)
        ],
    )
    await store.run(ops.submit_jobs, [wish("cell", batch_id="sweep_1", batch_index=0), wish("single")])
    return "fox_1"


def pages(database: Database) -> Rows:
    return database.by_hand("SELECT * FROM book_pages ORDER BY book_id, page")


async def test_pages_of_books_and_nothing_else_are_shown_and_count_from_one(book: str, database: Database) -> None:
    found = pages(database)
    assert list(found[0]) == COLUMNS
    assert [(page["book_id"], page["page"]) for page in found] == [(book, number) for number in (1, 2, 3, 4, 5)]


async def test_a_page_has_the_words_of_its_badge(book: str, store: Store, database: Database) -> None:
    done, failed, _, cancelled = await lease(store, most=4)
    await store.run(ops.complete_job, done.lease, ["1.png"], None)
    await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.INVALID, needs_regeneration=True))
    await store.run(ops.cancel_jobs, [cancelled.lease.job_id])
    found = pages(database)
    badges = ["Done", "Needs attention", "Rendering", "Cancelled", "Pending"]
    assert [page["status"] for page in found] == badges
    assert [page["needs_regeneration"] for page in found] == [0, 1, 0, 0, 0]
    assert found[4]["last_attempted_at"] is None
    assert found[0]["last_attempted_at"] == database.clock.text()


async def test_all_failures_of_a_page_are_listed_oldest_first(book: str, store: Store, database: Database) -> None:
    prompts = []
    for message, again in (("first", True), ("second", True), ("third", False)):
        leased = await lease_one(store)
        prompts.append(leased.prompt_id)
        if again:
            await store.run(ops.requeue_job, leased.lease, broken(message=message), Retry(0.0, charged=True))
        else:
            await store.run(ops.fail_job, leased.lease, broken(message=message), GiveUp(FailureClass.EXECUTION))
    first, second, *_ = pages(database)
    assert [error["message"] for error in json.loads(first["image_error"])] == ["first", "second", "third"]
    assert {error["kind"] for error in json.loads(first["image_error"])} == {"execution"}
    assert (first["retry_count"], first["status"]) == (2, "Needs attention")
    assert json.loads(first["job_metadata"]) == {
        "prompt_ids": prompts,
        "overrides": {"6.text": "fox 0"},
        "retry_counts": [],
    }
    assert json.loads(second["image_error"]) == []
    assert json.loads(second["job_metadata"])["overrides"] == {"6.text": "fox 1"}


async def test_a_page_made_by_hand_is_a_page(book: str, store: Store, database: Database) -> None:
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index, retries_attempted) "
        "VALUES ('extra', 'T2I', 'w', 'pending', 'fox_1', 5, NULL)"
    )
    last = pages(database)[-1]
    assert (last["page"], last["status"], last["retry_count"]) == (6, "Pending", 0)
    assert json.loads(last["job_metadata"]) == {"prompt_ids": [], "overrides": {}, "retry_counts": []}


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
async def test_a_number_that_is_none_in_one_job_does_not_hide_every_page(
    book: str, store: Store, database: Database, value: float
) -> None:
    with contextlib.suppress(ValueError):
        await store.run(ops.submit_jobs, [wish("odd", batch_id="fox_1", batch_index=9, inputs={"3.cfg": value})])
    assert len(pages(database)) >= 5


# What is told of pages, and what the view says of them.


async def test_a_page_that_fails_is_reported_in_the_words_of_books(store: Store) -> None:
    (job_id,) = await queue(store, 1, kind=BatchKind.BOOK)
    first = await lease_one(store)
    await store.run(ops.requeue_job, first.lease, broken(message="once"), Retry(0.0, charged=True))
    second = await lease_one(store)
    before = await store.run(ops.newest_event)
    await store.run(ops.fail_job, second.lease, broken(message="twice"), GiveUp(FailureClass.EXECUTION))
    events = await store.run(ops.events_after, 0)
    names = [event.name for event in events if event.id > before]
    assert names == ["job.failed", "book.page.failed", "batch.completed"]
    (retried,) = [event for event in events if event.name == "book.page.retry"]
    (failed,) = [event for event in events if event.name == "book.page.failed"]
    assert (retried.job_id, retried.book_id, retried.page, retried.message) == (job_id, FOX, 1, "once")
    assert (failed.server, failed.prompt_id, failed.failure_class) == (SERVER, second.prompt_id, "execution")
    assert (failed.book_id, failed.page, failed.batch_id, failed.message) == (FOX, 1, FOX, "twice")
    assert await store.run(ops.failures_since, 0) == 1


async def test_events_of_a_book_name_it_and_those_of_pages_their_page(store: Store) -> None:
    await queue(store, 2, kind=BatchKind.BOOK)
    events = await store.run(ops.events_after, 0)
    assert [(event.name, event.book_id, event.page) for event in events] == [
        ("job.submitted", FOX, 1),
        ("job.submitted", FOX, 2),
        ("batch.created", FOX, None),
    ]


@pytest.mark.parametrize("kind", [BatchKind.SWEEP, BatchKind.BURST, BatchKind.FILES])
async def test_nothing_else_is_reported_in_the_words_of_books(store: Store, kind: BatchKind) -> None:
    await queue(store, 2, kind=kind)
    again, over = await lease(store, most=2)
    await store.run(ops.requeue_job, again.lease, broken(), Retry(60.0, charged=True))
    await store.run(ops.fail_job, over.lease, broken(), GiveUp(FailureClass.EXECUTION))
    single = await submit_and_lease(store)
    await store.run(ops.fail_job, single.lease, broken(), GiveUp(FailureClass.EXECUTION))
    assert not [event for event in await store.run(ops.events_after, 0) if event.name.startswith("book.")]


@pytest.mark.parametrize("kind", [BatchKind.BOOK, BatchKind.SWEEP])
async def test_a_page_whose_retries_are_spent_needs_regeneration(store: Store, kind: BatchKind) -> None:
    (job_id,) = await queue(store, 1, kind=kind)
    await fall(store, await lease(store))
    assert (await job_of(store, job_id)).needs_regeneration is (kind is BatchKind.BOOK)
    await store.run(ops.retry_jobs, [job_id])
    assert not (await job_of(store, job_id)).needs_regeneration
    await land(store, await lease(store))
    assert not (await job_of(store, job_id)).needs_regeneration


async def test_a_page_of_a_book_that_was_cancelled_needs_no_regeneration_and_one_that_has_expired_does(
    store: Store, database: Database
) -> None:
    await queue(store, 1, kind=BatchKind.BOOK)
    await ops.cancel_batch(store, FOX)
    assert [page["needs_regeneration"] for page in await store.run(ops.book_pages, FOX)] == [False]
    await queue(store, 1, "bear", kind=BatchKind.BOOK)
    await store.run(ops.tick_batches, ["bear"], 10.0, 5.0)
    database.clock.advance(6)
    before = await store.run(ops.newest_event)
    assert await store.run(ops.tick_batches, ["bear"], 10.0, 5.0) == ["bear"]
    assert [page["needs_regeneration"] for page in await store.run(ops.book_pages, "bear")] == [True]
    told = [event.name for event in await store.run(ops.events_after, before)]
    assert told == ["job.failed", "book.page.failed", "batch.expired"]


async def test_the_pages_of_one_book_are_read_with_their_types(store: Store, database: Database) -> None:
    await queue(store, 2, "bear", kind=BatchKind.BOOK)
    facts = {"metadata": {"overrides": {"seed": 7, "text": "ein Füchslein"}}, "inputs": {"6.text": "bound"}}
    await queue(store, 2, kind=BatchKind.BOOK, **facts)
    _, _, first, _ = await lease(store, most=4)
    await store.run(ops.fail_job, first.lease, broken(message="boom"), GiveUp(FailureClass.EXECUTION))
    found = await store.run(ops.book_pages, FOX)
    assert found == [
        {
            "book_id": FOX,
            "page": 1,
            "status": "Needs attention",
            "retry_count": 0,
            "last_attempted_at": database.clock.text(),
            "needs_regeneration": True,
            "image_error": [
                {"kind": "execution", "message": "boom", "at": database.clock.text(), "attempt": 1},
            ],
            "job_metadata": {
                "prompt_ids": [first.prompt_id],
                "overrides": {"seed": 7, "text": "ein Füchslein"},
                "retry_counts": [],
            },
        },
        found[1],
    ]
    assert (found[1]["status"], found[1]["page"], found[1]["image_error"]) == ("Rendering", 2, [])
    assert isinstance(found[1]["job_metadata"]["prompt_ids"], list)
    assert await store.run(ops.book_pages, "never") == []


@pytest.mark.parametrize("text", ["'no json'", "x'00ff'", "'[1]'", "5", "''", "NULL", "'{\"overrides\": [1]}'"])
async def test_what_someone_wrote_into_one_page_hides_no_page(store: Store, database: Database, text: str) -> None:
    await queue(store, 2, kind=BatchKind.BOOK, inputs={"6.text": "a fox"})
    database.by_hand(f"UPDATE jobs SET metadata = {text} WHERE batch_index = 0")
    first, second = await store.run(ops.book_pages, FOX)
    untouched = {"prompt_ids": [], "overrides": {"6.text": "a fox"}, "retry_counts": []}
    assert first["job_metadata"] == second["job_metadata"] == untouched


async def test_a_page_that_never_ran_says_what_is_wrong_with_it(store: Store) -> None:
    await queue(store, 1, kind=BatchKind.BOOK)
    await store.run(
        ops.refuse_job, (await lease_one(store)).lease, broken(FailureClass.INVALID, "no such place 6.text")
    )
    (page,) = await store.run(ops.book_pages, FOX)
    (error,) = page["image_error"]
    assert error["kind"] == "invalid"
    assert "no such place 6.text" in error["message"]


async def test_what_ended_a_page_is_among_its_failures_also_when_it_ended_without_a_run(store: Store) -> None:
    await queue(store, 1, kind=BatchKind.BOOK)
    await store.run(ops.requeue_job, (await lease_one(store)).lease, broken(message="first"), Retry(0.0, charged=True))
    await store.run(ops.refuse_job, (await lease_one(store)).lease, broken(FailureClass.INVALID, "second"))
    (page,) = await store.run(ops.book_pages, FOX)
    assert [error["kind"] for error in page["image_error"]] == ["execution", "invalid"]
    assert "second" in page["image_error"][1]["message"]


async def test_that_a_page_has_expired_is_said_also_when_its_prompt_was_taken_back(
    store: Store, database: Database
) -> None:
    await queue(store, 1, kind=BatchKind.BOOK)
    await lease_one(store)
    await store.run(ops.tick_batches, [FOX], 10.0, 5.0)
    database.clock.advance(6)
    await store.run(ops.tick_batches, [FOX], 10.0, 5.0)
    (before,) = await store.run(ops.book_pages, FOX)
    await store.run(ops.withdraw_attempt, await open_attempt(store), "interrupted")
    (after,) = await store.run(ops.book_pages, FOX)
    assert [error["kind"] for error in before["image_error"]] == ["timeout"]
    assert "timeout" in [error["kind"] for error in after["image_error"]]


# The view can be written.

AGAIN = "UPDATE book_pages SET needs_regeneration = 1 WHERE"


async def test_pages_are_queued_anew_by_an_update_of_the_view_as_the_command_does(
    store: Store, database: Database
) -> None:
    """One book by SQL, one by the store's own transition: row by row the same."""
    for book_id in (FOX, "bear"):
        await queue(store, 3, book_id, kind=BatchKind.BOOK)
        done, failed, cancelled = await lease(store, most=3)
        await store.run(ops.complete_job, done.lease, ["a.png"], 1.0)
        await store.run(ops.requeue_job, failed.lease, broken(), Retry(0.0, charged=True))
        (failed,) = await lease(store)
        await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.EXECUTION))
        await store.run(ops.cancel_jobs, [cancelled.lease.job_id])
    database.by_hand(f"{AGAIN} book_id = '{FOX}'")
    bears = [job.id async for job in ops.batch_members(store, "bear")]
    assert await store.run(ops.resubmit_jobs, [(job_id, None) for job_id in bears], avoid_cache=True) == bears
    own = ("id", "config_name", "batch_id", "prompt_id", "start_time", "created_at")
    foxes, bears_now = [
        [{key: value for key, value in vars(job).items() if key not in own} for job in found]
        for found in (await store.run(ops.list_jobs, batch_id=FOX), await store.run(ops.list_jobs, batch_id="bear"))
    ]
    assert foxes == bears_now
    assert {(row["status"], row["retries_attempted"], row["needs_regeneration"]) for row in foxes} == {
        ("pending", 0, False)
    }
    assert await store.run(ops.open_attempts) == []
    for book_id in (FOX, "bear"):
        batch = await store.run(ops.find_batch, book_id)
        assert batch is not None
        assert (batch.status, batch.generation, batch.pending) == ("active", 2, 3)
    assert [page["needs_regeneration"] for page in pages(database)] == [0] * 6
    assert (await store.run(ops.count_jobs)).pending == 6
    assert len(await lease(store, most=6)) == 6


async def test_pages_that_wait_or_render_are_left_alone_by_an_update_of_the_view(
    store: Store, database: Database
) -> None:
    await queue(store, 3, kind=BatchKind.BOOK)
    rendering, failed = await lease(store, most=2)
    await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.EXECUTION))
    before = [job async for job in ops.batch_members(store, FOX)]
    database.by_hand(f"{AGAIN} status IN ('Pending', 'Rendering')")
    assert [job async for job in ops.batch_members(store, FOX)] == before
    await store.run(ops.complete_job, rendering.lease, [], None)


async def test_the_mark_can_be_taken_off_and_nothing_else_can_be_set(store: Store, database: Database) -> None:
    (job_id,) = await queue(store, 1, kind=BatchKind.BOOK)
    await fall(store, await lease(store))
    database.by_hand("UPDATE book_pages SET needs_regeneration = 0")
    job = await job_of(store, job_id)
    assert (job.status.value, job.needs_regeneration) == ("failed", False)
    with pytest.raises(AssertionError, match="because it is a view"):
        database.by_hand("UPDATE book_pages SET status = 'Done'")


async def test_failures_have_their_time_and_attempt_and_earlier_retries_are_kept(
    store: Store, database: Database
) -> None:
    await queue(store, 1, kind=BatchKind.BOOK)
    times = []
    for number in range(4):
        if number == 2:
            database.by_hand(f"{AGAIN} page = 1")
        leased = await lease_one(store)
        database.clock.advance(1)
        times.append(database.clock.text())
        if number % 2:
            await store.run(ops.fail_job, leased.lease, broken(message=str(number)), GiveUp(FailureClass.EXECUTION))
        else:
            await store.run(ops.requeue_job, leased.lease, broken(message=str(number)), Retry(0.0, charged=True))
    (page,) = await store.run(ops.book_pages, FOX)
    told = [(error["message"], error["at"], error["attempt"]) for error in page["image_error"]]
    assert told == [(str(number), times[number], number + 1) for number in range(4)]
    assert (page["retry_count"], page["job_metadata"]["retry_counts"]) == (1, [1])
    await store.run(ops.retry_batch, FOX)
    (page,) = await store.run(ops.book_pages, FOX)
    assert (page["retry_count"], page["job_metadata"]["retry_counts"]) == (0, [1, 1])
    database.by_hand(
        "UPDATE jobs SET status = 'failed', error_trace = 'by hand', failure_class = 'invalid', end_time = NULL"
    )
    database.by_hand("UPDATE attempts SET error = '\"no object\"' WHERE number = 1")
    (page,) = await store.run(ops.book_pages, FOX)
    assert page["image_error"][0] == {"message": "no object", "at": times[0], "attempt": 1}
    assert page["image_error"][-1] == {"kind": "invalid", "message": "by hand", "at": None, "attempt": 4}
