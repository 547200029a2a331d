"""The view `book_pages`: a batch of the kind `book` as its pages."""

from __future__ import annotations

import contextlib
import json

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retrying import Again, Over
from comfyui_agent.store.store import Store
from support.stores import Database, Rows, broken, lease, lease_one, wish

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
    await store.submit(
        [
            wish(f"page_{index}", batch_id="fox_1", batch_index=index, inputs={"6.text": f"fox {index}"})
            for index in range(5)
        ]
    )
    await store.submit([wish("cell", batch_id="sweep_1", batch_index=0), wish("single")])
    return "fox_1"


def pages(database: Database) -> Rows:
    return database.by_hand("SELECT * FROM book_pages ORDER BY book_id, page")


async def test_pages_of_books_and_nothing_else_are_shown_and_count_from_one(book: str, database: Database) -> None:
    found = pages(database)
    assert list(found[0]) == COLUMNS
    assert [(page["book_id"], page["page"]) for page in found] == [(book, number) for number in (1, 2, 3, 4, 5)]


async def test_a_page_has_the_words_of_its_badge(book: str, store: Store, database: Database) -> None:
    done, failed, _, cancelled = await lease(store, most=4)
    await store.complete(done.lease, ["1.png"], None)
    await store.fail(failed.lease, broken(), Over(FailureClass.INVALID, needs_regeneration=True))
    await store.cancel([cancelled.lease.job_id])
    found = pages(database)
    badges = ["Done", "Needs attention", "Rendering", "Needs attention", "Pending"]
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
            await store.requeue(leased.lease, broken(message=message), Again(0.0, charged=True))
        else:
            await store.fail(leased.lease, broken(message=message), Over(FailureClass.EXECUTION))
    first, second, *_ = pages(database)
    assert [error["message"] for error in json.loads(first["image_error"])] == ["first", "second", "third"]
    assert {error["kind"] for error in json.loads(first["image_error"])} == {"execution"}
    assert (first["retry_count"], first["status"]) == (2, "Needs attention")
    assert json.loads(first["job_metadata"]) == {"prompt_ids": prompts, "overrides": {"6.text": "fox 0"}}
    assert json.loads(second["image_error"]) == []
    assert json.loads(second["job_metadata"]) == {"prompt_ids": [], "overrides": {"6.text": "fox 1"}}


async def test_a_page_made_by_hand_is_a_page(book: str, store: Store, database: Database) -> None:
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index, retries_attempted) "
        "VALUES ('extra', 'T2I', 'w', 'pending', 'fox_1', 5, NULL)"
    )
    last = pages(database)[-1]
    assert (last["page"], last["status"], last["retry_count"]) == (6, "Pending", 0)
    assert json.loads(last["job_metadata"]) == {"prompt_ids": [], "overrides": {}}


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
async def test_a_number_that_is_none_in_one_job_does_not_hide_every_page(
    book: str, store: Store, database: Database, value: float
) -> None:
    with contextlib.suppress(ValueError):
        await store.submit([wish("odd", batch_id="fox_1", batch_index=9, inputs={"3.cfg": value})])
    assert len(pages(database)) >= 5
