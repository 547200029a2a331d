"""Thousands of jobs in one request: each line is answered alone, and a request that is repeated makes nothing twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.store import operations as ops
from comfyui_agent.web.api import bulk
from support import postgres
from support.web import Answer, Keys, Served, bearer, check_problem, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = {"job_type": "T2I", "workflow_id": "picture"}
BULK = "/api/v1/jobs/bulk"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    environment = {} if request.param == "sqlite" else {"E3_DATABASE__URL": postgres.new_database()}
    async with served(tmp_path_factory.mktemp("bulk"), environment=environment) as house:
        yield house


def job(color: int, **said: Any) -> dict[str, Any]:
    return {**JOB, "inputs": {"color": color}, **said}


async def send(house: Served, *lines: Any, headers: Mapping[str, str] | None = None) -> Answer:
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return await house.post(BULK, data=body, headers={"Content-Type": "application/x-ndjson", **(headers or {})})


def told(answer: Answer) -> list[tuple[int, int, str]]:
    """Line, status and what kind of problem."""
    assert answer.status == 200, answer.text
    return [(each["line"], each["status"], each.get("type", "").rpartition("#")[2]) for each in answer.value]


async def test_each_line_is_a_job_or_says_what_is_wrong_with_it(place: Served) -> None:
    await place.job("there")
    answer = await send(
        place,
        job(1, name="one", external_id="a", priority=7),
        b"{no json",
        job(1, colour=2),
        job("no number"),  # type: ignore[arg-type]
        b"",
        {**JOB, "workflow_id": "nowhere"},
        job(2, name="there"),
        job(3, external_id="b"),
        job(4, external_id="b"),
        b'{"job_type": NaN}',
        job(5, outputs={"file_path": "/etc/passwd"}),
    )
    assert told(answer) == [
        (1, 201, ""),
        (2, 400, "unreadable"),
        (3, 422, "invalid"),
        (4, 409, "bad-values"),
        (6, 409, "bad-values"),
        (7, 409, "name-taken"),
        (8, 201, ""),
        (9, 409, "external-id-taken"),
        (10, 400, "unreadable"),
        (11, 409, "bad-values"),
    ]
    assert str(place.workspace.root) not in answer.text
    found = (await place.get("/api/v1/jobs?external_id=a")).value["jobs"][0]
    assert (found["id"], found["config_name"], found["priority"]) == (answer.value[0]["id"], "one", 7)


async def test_a_request_that_is_repeated_is_answered_with_the_same_jobs(
    place: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 4)
    lines = [job(n, external_id=f"r{n}") if n % 2 else job(n, name=f"r-{n}") for n in range(10)]
    await send(place, *lines[:6])  # the answer was lost, and the rest never came
    first = await send(place, *lines)
    again = await send(place, *lines)
    assert [status for _, status, _ in told(first)] == [200] * 6 + [201] * 4
    assert [status for _, status, _ in told(again)] == [200] * 10
    assert [each["id"] for each in again.value] == [each["id"] for each in first.value]
    changed = [{**line, "inputs": {"color": 99}} for line in lines]
    assert {kind for _, _, kind in told(await send(place, *changed))} == {"name-taken", "external-id-taken"}


async def test_what_it_queues_is_as_if_each_were_queued_alone(place: Served) -> None:
    before = await place.store.run(ops.newest_event)
    await send(place, job(7, name="bulked", metadata={"a": 1}, retry_limit=2))
    events = await place.store.run(ops.events_after, before)
    assert [(event.name, event.message) for event in events] == [("job.submitted", None), ("audit.job.submit", "1 job")]
    await place.post("/api/v1/jobs", job(7, name="single", metadata={"a": 1}, retry_limit=2))
    rows = [(await place.get(f"/api/v1/jobs/{name}")).value for name in ("bulked", "single")]
    unlike = {"id", "config_name", "created_at"}
    assert {key: rows[0][key] for key in rows[0].keys() - unlike} == {
        key: rows[1][key] for key in rows[1].keys() - unlike
    }


async def test_a_slice_that_fails_does_not_keep_the_others_out(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    submit = bulk.submit_jobs

    async def fail_once(*given: Any) -> Any:
        if given[-1][0].name == "f-2":
            raise RuntimeError("the disk is on fire")
        return await submit(*given)

    monkeypatch.setattr(bulk, "submit_jobs", fail_once)
    answer = await send(place, *(job(n, name=f"f-{n}") for n in range(6)))
    assert [status for _, status, _ in told(answer)] == [201, 201, 500, 500, 201, 201]


async def test_what_is_no_such_request_is_refused_as_a_whole(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    check_problem(await house.post(BULK, JOB), 415)
    monkeypatch.setattr(bulk, "MOST_LINES", 2)
    assert "lines" in check_problem(await send(house, *[job(1)] * 3), 413)["detail"]
    assert told(await send(house)) == []


async def test_a_user_has_a_quota_a_floor_and_keys_of_their_own(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    user = bearer(keys.user)
    check_problem(await send(house, job(1), headers=bearer(keys.read)), 403)
    answer = await send(house, job(1, priority=-5), job(2, external_id="mine"), headers=user)
    assert told(answer) == [(1, 409, "bad-values"), (2, 201, "")]
    assert told(await send(house, job(2, external_id="mine"), headers=bearer(keys.admin))) == [(1, 201, "")]
    made = await house.store.run(ops.find_job_by_id, answer.value[1]["id"])
    assert made is not None
    assert made.created_by is not None
    await house.store.run(
        ops.submit_jobs,
        [
            NewJob(f"full-{n}", "T2I", "picture", created_by=made.created_by)
            for n in range(house.workspace.settings.ui.open_jobs_per_user)
        ],
    )
    assert told(await send(house, job(3), headers=user)) == [(1, 429, "quota")]
