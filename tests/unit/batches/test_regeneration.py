"""Which pages of a book are rendered again, and with what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import pytest

from comfyui_agent.batches.regeneration import (
    BadPage,
    NoSuchPage,
    NotRegenerated,
    PageUnderWay,
    choose,
    page_of,
    regenerate,
)
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.binding import Places, Recipe
from comfyui_agent.domain.jobs import Job, JobId, NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.store import Store
from support.stores import ScriptedStore

GRAPH: dict[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 7, "steps": 20}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a knight"}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
}
PAINTING = Workflow(
    Recipe("painting", "workflows/painting.json", inputs={"prompt": ("6.text",)}),
    Template.of(GRAPH),
    GRAPH,
    Places(GRAPH),
)
PENDING, PROCESSING, DONE, FAILED = JobStatus


def find(name: str) -> Workflow:
    assert name == "painting"
    return PAINTING


def page(number: int, status: JobStatus, failure_class: str | None = None) -> Job:
    facts: dict[str, Any] = {field.name: None for field in fields(Job)}
    facts |= {"id": 100 + number, "config_name": f"winter_page_{number:03d}", "workflow_id": "painting"}
    facts |= {"status": status, "failure_class": failure_class, "batch_index": number - 1}
    facts["metadata"] = json.dumps({"page": number, "workflow": "painting", "inputs": {"prompt": "a fox"}})
    return Job(**facts)


SHELF = [
    page(1, DONE),
    page(2, FAILED, "execution"),
    page(3, FAILED, "cancelled"),
    page(4, PENDING),
    page(5, PROCESSING),
    page(6, FAILED, "invalid"),
]


class Shelf(ScriptedStore):
    """As much of a store as pages need: it remembers what is wished for."""

    def __init__(self, jobs: Sequence[Job] = SHELF, too_late: Sequence[int] = ()) -> None:
        self.jobs = jobs
        self.too_late = too_late
        self.wishes: list[tuple[JobId, NewJob | None]] = []
        self.avoids_cache: bool | None = None

    async def members_after(self, batch_id: str, after: Job | None, _most: int, **_: Any) -> Sequence[Job]:
        assert batch_id == "winter"
        return self.jobs if after is None else []

    async def find_job_by_id(self, job_id: JobId) -> Job | None:
        return next((job for job in self.jobs if job.id == job_id), None)

    async def resubmit_jobs(
        self, wishes: Sequence[tuple[JobId, NewJob | None]], *, avoid_cache: bool = False
    ) -> list[JobId]:
        self.wishes, self.avoids_cache = list(wishes), avoid_cache
        return [job_id for job_id, _ in wishes if job_id - 100 not in self.too_late]


def book() -> Batch:
    facts: dict[str, Any] = {field.name: None for field in fields(Batch)}
    return Batch(**{**facts, "id": "winter", "metadata": {}})


async def again(shelf: Shelf, pages: Sequence[int] | None = None, **how: Any) -> list[int]:
    changes, new_seed = how.pop("changes", {}), how.pop("new_seed", False)
    return await regenerate(
        cast("Store", shelf), find, lambda *_: {}, book(), pages, changes, new_seed, limit_kb=64, **how
    )


# Which pages.


def test_without_a_page_it_is_all_that_failed_but_not_what_was_cancelled() -> None:
    assert [page_of(job) for job in choose(SHELF, None, "winter")] == [2, 6]


def test_pages_that_are_named_are_taken_once_and_in_that_order() -> None:
    assert [page_of(job) for job in choose(SHELF, [6, 1, 3, 6], "winter")] == [6, 1, 3]


def test_no_page_is_none() -> None:
    assert choose(SHELF, [], "winter") == []


def test_a_page_that_the_book_does_not_have_is_refused() -> None:
    for number in [0, 7, -1]:
        with pytest.raises(NoSuchPage, match=f"^winter has no page {number}: it has 6 pages$"):
            choose(SHELF, [2, number], "winter")


@pytest.mark.parametrize(("number", "state"), [(4, "waits already"), (5, "is rendering")])
@pytest.mark.parametrize("only_failed", [False, True])
def test_a_page_that_is_under_way_is_refused(number: int, state: str, only_failed: bool) -> None:
    with pytest.raises(PageUnderWay) as caught:
        choose(SHELF, [number], "winter", only_failed=only_failed)
    assert caught.value.message == f"page {number} of winter {state}"
    assert str(caught.value) == f"{caught.value.message}: cancel it first with e3 cancel winter_page_{number:03d}"


def test_where_only_failed_pages_may_be_named_one_that_is_done_is_refused() -> None:
    assert [page_of(job) for job in choose(SHELF, [1], "winter")] == [1]
    with pytest.raises(NotRegenerated, match=r"^page 1 of winter has not failed: "):
        choose(SHELF, [2, 1], "winter", only_failed=True)


def test_a_page_that_was_cancelled_can_be_named_also_where_only_failed_ones_may() -> None:
    assert [page_of(job) for job in choose(SHELF, [2, 3], "winter", only_failed=True)] == [2, 3]


# Submitting them.


async def test_pages_go_again_as_they_were_with_the_cache_avoided() -> None:
    shelf = Shelf()
    assert await again(shelf) == [2, 6]
    assert (shelf.wishes, shelf.avoids_cache) == ([(102, None), (106, None)], True)


async def test_a_page_that_someone_else_was_quicker_with_is_not_said_to_be_submitted() -> None:
    assert await again(Shelf(too_late=[2])) == [6]


async def test_new_inputs_go_to_every_page_that_was_chosen() -> None:
    for steps in [30, "30"]:
        shelf = Shelf()
        assert await again(shelf, [1, 2], changes={"prompt": "a wolf", "3.steps": steps}) == [1, 2], steps
        changed = [new for _, new in shelf.wishes]
        assert [new.inputs["6.text"] for new in changed if new] == ["a wolf", "a wolf"], steps
        assert [new.inputs["3.steps"] for new in changed if new] == [30, 30], steps
        assert shelf.avoids_cache is False, steps


async def test_every_page_gets_a_new_seed_of_its_own() -> None:
    shelf = Shelf()
    await again(shelf, [1, 2, 6], new_seed=True)
    assert len({new.inputs["3.seed"] for _, new in shelf.wishes if new} - {7}) == 3


async def test_json_that_is_no_value_for_its_place_is_refused_and_nothing_is_submitted() -> None:
    for value in [{"deep": [1]}, [1, 2], None, True]:
        shelf = Shelf()
        with pytest.raises(BadPage, match=r"winter_page_002: 3\.steps: "):
            await again(shelf, None, changes={"3.steps": value})
        assert (shelf.wishes, shelf.avoids_cache) == ([], None), value


async def test_a_page_that_cannot_be_had_leaves_the_others_alone() -> None:
    for pages in ([2, 1], [2, 4], [2, 9]):
        shelf = Shelf()
        with pytest.raises(NotRegenerated):
            await again(shelf, pages, only_failed=True)
        assert shelf.avoids_cache is None
