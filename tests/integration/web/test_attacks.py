"""Callers who ask for too much, leave early, or never read, at a page that is served in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import sweeps
from comfyui_agent.web import connections
from comfyui_agent.web.api import batches, jobs
from comfyui_agent.web.connections import MOST_AHEAD, Connection
from comfyui_agent.web.problems import JsonAnswer
from support.attacks import ANSWER, blank_axes, connected, post
from support.stores import intercept
from support.web import Served, check_problem, eventually, served

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROBE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    ("count", "values", "words"),
    [
        (40, "1..1000000", "the sweep has 40 axes, and 20 is the most"),
        (20, "1..1000000", "1..1000000 has 1,000,000 values, and 100,000 is the most"),
        (20, "1..100000", "color is given twice"),
    ],
)
async def test_axes_that_differ_by_blanks_are_refused(house: Served, count: int, values: str, words: str) -> None:
    said = check_problem(await house.post("/api/v1/batches", blank_axes("picture", "color", count, values)), 409)
    assert words in said["detail"]
    assert "e3 sweep" not in said["remedy"]


async def test_a_dry_run_has_the_bounds_of_the_real_one(house: Served) -> None:
    sets = {"color": "1..1000", "width": "16..1000"}
    said = check_problem(
        await house.post("/api/v1/batches", {"workflow": "picture", "set": sets, "dry_run": True}), 409
    )
    assert "985,000 combinations; 100,000 is the most" in said["detail"]
    assert said["remedy"] == "Queue it with e3 sweep, or in parts."


async def test_one_long_value_does_not_fill_the_answer_again_and_again(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_LETTERS", 5_000)
    sets = {"filename_prefix": ["x" * 1_000], "color": "1..1000"}
    answer = await house.post("/api/v1/batches", {"workflow": "picture", "set": sets, "dry_run": True})
    assert (answer.status, answer.value["total"], len(answer.value["combinations"])) == (200, 1000, 5)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_planning_ends_when_its_caller_is_gone(
    house: Served, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    began, ended = threading.Event(), threading.Event()

    def define(*_: Any, check_cancelled: Callable[[], None], **__: Any) -> None:
        began.set()
        try:
            while not ended.wait(0.001):
                check_cancelled()
        finally:
            ended.set()

    monkeypatch.setattr(sweeps, "define", define)
    batches_before = (await house.get("/api/v1/batches")).value
    with connected(house.url) as client:
        client.sendall(post("/api/v1/batches", {"workflow": "picture", "set": {"color": "1..9"}, "dry_run": dry_run}))
        await eventually(began.is_set, "the plan")
    await eventually(ended.is_set, "the end of the plan")
    await eventually(lambda: not house.context.planning._waiting.total(), "the end of the request")
    assert (await house.get("/api/v1/batches")).value == batches_before


LIST = b"GET /api/v1/jobs?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def test_a_long_list_has_a_share_of_the_time_and_short_ones_do_not_wait_for_it(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    async def job_page(really: Any, wanted: Any, cursor: Any, limit: int, **more: Any) -> Any:
        read.append(limit)
        return await really(wanted, cursor, limit, **more)

    intercept(monkeypatch, house.store, ops.job_page, job_page)
    async with house.context.long_lists.turn():
        long = asyncio.ensure_future(house.get("/api/v1/jobs?limit=101"))
        with connected(house.url) as client:
            client.sendall(LIST)
            await eventually(lambda: len(house.context.long_lists._busy._waiters or ()) == 2, "both")
        assert (await house.get("/api/v1/jobs?limit=100")).status == 200
        assert read == [100]
    assert (await long).status == 200
    assert (await house.get("/api/v1/jobs?limit=102")).status == 200
    assert read == [100, 101, 102], "a list was read for who was gone"


async def test_a_list_whose_reader_left_meanwhile_is_not_encoded(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, left, pages = asyncio.Event(), asyncio.Event(), list[Any]()

    async def job_page(really: Any, *given: Any, **more: Any) -> Any:
        reading.set()
        await left.wait()
        return await really(*given, **more)

    intercept(monkeypatch, house.store, ops.job_page, job_page)
    monkeypatch.setattr(jobs, "JsonAnswer", lambda page: pages.append(page) or JsonAnswer({}))
    with connected(house.url) as client:
        client.sendall(LIST)
        await asyncio.wait_for(reading.wait(), 10)
    await asyncio.sleep(0.05)
    left.set()
    assert (await house.get("/api/v1/jobs?limit=1000")).status == 200
    assert len(pages) == 1


async def test_who_sends_very_many_requests_ahead_is_answered_some_of_them(house: Served) -> None:
    reader, writer = await asyncio.open_connection(*connected_to(house))
    writer.write(PROBE * 100)
    said = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert 1 <= said.count(b"HTTP/1.1 200") <= MOST_AHEAD + 1


async def test_who_reads_what_it_asked_for_is_answered_in_its_order(house: Served) -> None:
    reader, writer = await asyncio.open_connection(*connected_to(house))
    writer.write(PROBE * 3)
    for _ in range(3):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(15) == b'{"status":"ok"}'
    writer.close()


async def test_who_never_reads_is_cut(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.1)
    cut: list[Connection] = []
    really = Connection.cut
    monkeypatch.setattr(Connection, "cut", lambda self: cut.append(self) or really(self))
    with connected(house.url) as client:
        client.sendall(ANSWER * 100)
        await eventually(lambda: cut, "the cut")


async def test_above_the_bounds_probes_are_answered_and_others_told_what_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 16)
    async with served(tmp_path / "full") as house:
        held = [connected(house.url) for _ in range(12)]
        try:
            for _ in range(3):
                probe = await house.raw(PROBE)
                assert (probe.status, probe.value) == (200, {"status": "ok"})
            refused = await house.raw(b"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        finally:
            for each in held:
                each.close()
    said = check_problem(refused, 503)
    assert said["detail"] == "too many connections from 127.0.0.1: 12 are open"
    assert said["title"] == "Not possible at the moment"
    assert refused.headers["Retry-After"] == "5"
    assert refused.headers["X-Content-Type-Options"] == "nosniff"


def connected_to(house: Served) -> tuple[str, int]:
    host, _, port = house.url.removeprefix("http://").partition(":")
    return host, int(port)
