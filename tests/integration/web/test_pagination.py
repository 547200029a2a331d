"""Lists come in pages: whoever follows the cursor to the end has seen each thing once, in one order."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.store import operations as ops
from support.store_batches import queue
from support.stores import wish
from support.web import Served, check_problem, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITING, FINISHED, FAILED, RENDERING = 23, 11, 7, 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Jobs in every state, some of which share all that they are ordered by; batches and books."""
    async with served(tmp_path_factory.mktemp("full")) as house:
        for name, count in (("finished", FINISHED), ("failed", FAILED), ("rendering", RENDERING)):
            await house.store.run(ops.submit_jobs, [wish(f"{name}-{number:02}", priority=1) for number in range(count)])
            for leased in await house.lease(count):
                if name == "finished":
                    await house.finish(leased)
                elif name == "failed":
                    await house.fail(leased)
        await house.store.run(
            ops.submit_jobs, [wish(f"waiting-{number:02}", priority=50 + number % 3) for number in range(WAITING)]
        )
        for number in range(9):
            kind = BatchKind.BOOK if number % 3 == 0 else BatchKind.SWEEP
            await queue(house.store, 5, f"batch_{number}", kind=kind, priority=90)
        yield house


async def pages(house: Served, address: str, noun: str, limit: int) -> list[list[dict[str, Any]]]:
    """Every page up to the end."""
    found: list[list[dict[str, Any]]] = []
    cursor = ""
    while True:
        answer = await house.get(f"{address}{'&' if '?' in address else '?'}limit={limit}{cursor}")
        assert answer.status == 200, answer.text
        found.append(answer.value[noun])
        assert len(found[-1]) <= limit
        if answer.value["next"] is None:
            return found
        assert len(found) < 1000
        cursor = f"&cursor={answer.value['next']}"


@pytest.mark.parametrize(
    "question",
    [
        "",
        "?status=pending",
        "?status=processing",
        "?status=failed",
        "?status=done",
        "?q=a",
        "?q=ing-",
        "?q=finished-0",
        "?batch=batch_1",
        "?workflow=wf_realistic_portrait",
        "?server=http://gpu:8188",
        "?type=T2I",
        "?failure_class=execution",
        "?status=pending&q=waiting",
        "?status=pending&batch=batch_2",
        "?q=WAITING",
    ],
)
async def test_jobs_are_all_there_once_whatever_the_size_of_a_page(full: Served, question: str) -> None:
    whole = [job["id"] for page in await pages(full, f"/api/v1/jobs{question}", "jobs", 1000) for job in page]
    assert whole
    assert len(set(whole)) == len(whole)
    for limit in (1, 4, len(whole)):
        found = await pages(full, f"/api/v1/jobs{question}", "jobs", limit)
        assert [job["id"] for page in found for job in page] == whole


async def test_what_renders_comes_first_then_what_waits_in_its_order_then_what_failed_then_what_is_done(
    full: Served,
) -> None:
    found = [job for page in await pages(full, "/api/v1/jobs", "jobs", 10) for job in page]
    states = [job["status"] for job in found]
    assert states == sorted(states, key=["processing", "pending", "failed", "done"].index)
    assert {state: states.count(state) for state in set(states)} == {
        "processing": RENDERING,
        "pending": WAITING + 45,
        "failed": FAILED,
        "done": FINISHED,
    }
    waiting = [(job["priority"], job["id"]) for job in found if job["status"] == "pending"]
    assert waiting == sorted(waiting)


async def test_filters_leave_only_what_was_asked_for(full: Served) -> None:
    async def found(question: str) -> set[str]:
        jobs = (await full.get(f"/api/v1/jobs?limit=1000&{question}")).value["jobs"]
        return {job["config_name"] for job in jobs}

    assert len(await found("status=failed&failure_class=execution")) == FAILED
    assert await found("failure_class=oom") == set()
    assert await found("q=finished-07") == {"finished-07"}
    assert len(await found("batch=batch_4")) == 5
    assert await found("batch=nobody") == set()
    assert await found("workflow=nobody") == set()
    assert len(await found("server=http://gpu:8188")) == FINISHED + FAILED + RENDERING
    assert await found("type=T2V") == set()
    assert await found("q=%25") == await found("q=_x_") == set()


@pytest.mark.parametrize(("address", "noun"), [("/api/v1/batches", "batches"), ("/api/v1/books", "books")])
async def test_batches_and_books_are_all_there_once_the_newest_first(full: Served, address: str, noun: str) -> None:
    whole = [each["id"] for page in await pages(full, address, noun, 1000) for each in page]
    assert whole == [f"batch_{number}" for number in reversed(range(9)) if noun == "batches" or number % 3 == 0]
    for limit in (1, 2, 3):
        assert [each["id"] for page in await pages(full, address, noun, limit) for each in page] == whole


async def test_results_are_all_there_once(full: Served) -> None:
    for limit in (1, 2, 5):
        found = await pages(full, "/api/v1/batches/batch_3/results", "results", limit)
        assert [each["index"] for page in found for each in page] == [0, 1, 2, 3, 4]


LISTS = [
    "/api/v1/jobs",
    "/api/v1/jobs?status=done",
    "/api/v1/jobs?q=fin",
    "/api/v1/jobs?batch=batch_1",
    "/api/v1/batches",
    "/api/v1/books",
    "/api/v1/batches/batch_1/results",
]


@pytest.mark.parametrize("address", LISTS)
async def test_a_cursor_that_no_page_ended_with_is_not_found(full: Served, address: str) -> None:
    said = [
        "x",
        "%00",
        "..%2F..%2Fetc%2Fpasswd",
        "%C3%A9",
        *map(_encoded, ([], {}, None, [1, 2, 3], ["x", 1, 1], ["pending", [], 1], ["pending", 1, 2**70], [["a"] * 9])),
    ]
    for cursor in said:
        answer = await full.get(f"{address}{'&' if '?' in address else '?'}cursor={cursor}")
        assert "cursor" in check_problem(answer, 404)["remedy"]


@pytest.mark.parametrize("address", LISTS)
async def test_a_limit_out_of_bounds_or_a_cursor_out_of_size_is_refused(full: Served, address: str) -> None:
    for question in ("limit=0", "limit=-1", "limit=1001", "limit=many", "limit=1e3", f"cursor={'A' * 1001}"):
        check_problem(await full.get(f"{address}{'&' if '?' in address else '?'}{question}"), 422)


@pytest.mark.parametrize("question", ["status=lost", "failure_class=bad-luck", f"q={'x' * 201}", f"batch={'x' * 301}"])
async def test_a_filter_that_does_not_follow_the_description_is_refused(full: Served, question: str) -> None:
    check_problem(await full.get(f"/api/v1/jobs?{question}"), 422)


async def test_jobs_that_move_while_someone_turns_pages_are_not_reported_twice_in_one_state(full: Served) -> None:
    first = (await full.get("/api/v1/jobs?status=pending&limit=5")).value
    [leased] = await full.lease()
    assert leased.config_name == first["jobs"][0]["config_name"]
    rest = await pages(full, f"/api/v1/jobs?status=pending&cursor={first['next']}", "jobs", 5)
    seen = [job["id"] for job in first["jobs"]] + [job["id"] for page in rest for job in page]
    assert len(seen) == len(set(seen)) == WAITING + 45
    await full.finish(leased)


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
