"""`…/wait`: one request stays open until something has ended, or its time is over; nobody asks in circles."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.store import operations as ops
from comfyui_agent.web import event_feed
from comfyui_agent.web.event_feed import EventFeed
from support.web import Served, check_problem, eventually, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

SWEEP = {"workflow": "picture", "set": {"color": "1..2"}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": 1}}]}


def waiting(house: Served, subject: int | str) -> bool:
    return subject in house.context.event_feed._waiting


async def test_a_job_is_answered_as_it_ends_with_all_that_a_get_says(house: Served) -> None:
    job = await house.job("awaited", priority=-300)
    asked = asyncio.create_task(house.get("/api/v1/jobs/awaited/wait?seconds=50"))
    await eventually(lambda: waiting(house, job.id), "somebody who waits")
    [leased] = await house.lease()
    began = time.monotonic()
    await house.finish(leased)
    answer = (await asked).value
    assert time.monotonic() - began < 20
    assert answer == (await house.get("/api/v1/jobs/awaited")).value | {"is_ended": True}
    assert answer["status"] == "done"
    assert (await house.get("/api/v1/jobs/awaited/wait")).value["is_ended"]


@pytest.mark.parametrize(("route", "body"), [("batches", SWEEP), ("books", BOOK)])
async def test_a_batch_is_answered_when_all_of_it_has_ended(house: Served, route: str, body: dict[str, Any]) -> None:
    made = (await house.post(f"/api/v1/{route}", body)).value
    address = f"/api/v1/{route}/{made['id']}"
    first = (await house.get(f"{address}/wait?seconds=0")).value
    assert (first["is_ended"], first["pending"]) == (False, made["total"])
    asked = asyncio.create_task(house.get(f"{address}/wait?seconds=50"))
    await eventually(lambda: waiting(house, made["id"]), "somebody who waits")
    for leased in await house.lease(made["total"], made["id"]):
        assert not asked.done()
        await house.finish(leased)
    answer = (await asked).value
    assert (answer["is_ended"], answer["status"], answer["done"]) == (True, "complete", made["total"])
    assert answer.keys() == (await house.get(address)).value.keys() | {"is_ended"}


async def test_those_who_wait_do_not_keep_their_address_from_being_answered(house: Served) -> None:
    job = await house.job("long")
    asked = [asyncio.create_task(house.get("/api/v1/jobs/long/wait?seconds=50")) for _ in range(12)]
    feed = house.context.event_feed
    await eventually(lambda: len(feed._waiting.get(job.id, ())) == 12, "twelve who wait")
    assert (await house.get("/api/v1/jobs/long")).value["status"] == "pending"
    await house.store.run(ops.cancel_jobs, [job.id])
    assert {(await each).value["status"] for each in asked} == {"failed"}
    assert not feed._waiting


@pytest.mark.parametrize("seconds", ["51", "-1", "x"])
async def test_nobody_waits_for_longer_than_is_said(house: Served, seconds: str) -> None:
    await house.job("bounded") if seconds == "51" else None
    check_problem(await house.get(f"/api/v1/jobs/bounded/wait?seconds={seconds}"), 422)


async def test_a_page_that_stops_ends_all_waiting_with_how_it_stands(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with served(tmp_path_factory.mktemp("stopping")) as house:
        job = await house.job("unended")
        asked = asyncio.create_task(house.get("/api/v1/jobs/unended/wait?seconds=50"))
        await eventually(lambda: waiting(house, job.id), "somebody who waits")
        await house.context.event_feed.close()
        answer = await asyncio.wait_for(asked, 20)
        assert (answer.status, answer.value["is_ended"]) == (200, False)


async def test_no_more_wait_than_fit_and_one_caller_has_a_share(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MOST_WAITING", 4)
    feed = EventFeed(house.store)
    with feed.waiting_for(JobId(1), "token 1"):
        with pytest.raises(Problem, match="too many"), feed.waiting_for(JobId(2), "token 1"):
            pass
        with (
            feed.waiting_for("a", "token 2"),
            feed.waiting_for("a", "token 3"),
            feed.waiting_for("a", "token 4"),
            pytest.raises(Problem, match="too many"),
            feed.waiting_for(JobId(1), "token 5"),
        ):
            pass
    assert not feed._waiting
