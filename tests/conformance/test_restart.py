"""What survives the death of the server process, and what dies with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from support.graphs import fresh_prefix, picture, saved_with, slow_graph
from support.pictures import form, png
from support.servers import ServerProcess
from support.wire import Answer, Wire

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.not_at_gateway("it forgets nothing: tests/faults/agent/test_gateway.py"),
]


@dataclass
class Lives:
    """What was seen of one server before it was told to end and after it was started again."""

    first_number: float
    lost: list[str]
    close_code: int | None
    queue: Answer
    history: Answer
    lost_histories: list[Any]
    next_number: float
    saved_again: str
    statuses: dict[str, int]


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(session, server.url)


def first_file(entry: dict[str, Any]) -> str:
    name: str = entry["outputs"]["2"]["images"][0]["filename"]
    return name


async def live_twice(server: ServerProcess) -> Lives:
    prefix = fresh_prefix()
    await asyncio.to_thread(server.start)
    async with connected(server) as wire:
        first = await wire.offer(picture(prefix), front=True)
        saved = first_file(await wire.finished(first.body["prompt_id"]))
        shown = first_file(await wire.run(saved_with("PreviewImage")))
        uploaded = (await wire.post("/upload/image", data=form(png(), "kept.png"))).body["name"]
        running = await wire.submit(await slow_graph(wire))
        await wire.running(running)
        lost = [running, await wire.submit(picture()), first.body["prompt_id"]]
        async with wire.socket() as recorder:
            await asyncio.to_thread(server.stop)
            close_code = await recorder.lost()
    await asyncio.to_thread(server.start)
    async with connected(server) as wire:
        queue, history = await wire.get("/queue"), await wire.get("/history")
        lost_histories = [(await wire.get(f"/history/{prompt_id}")).body for prompt_id in lost]
        again = await wire.offer(picture(prefix))
        return Lives(
            first_number=first.body["number"],
            lost=lost,
            close_code=close_code,
            queue=queue,
            history=history,
            lost_histories=lost_histories,
            next_number=again.body["number"],
            saved_again=first_file(await wire.finished(again.body["prompt_id"])).removeprefix(prefix),
            statuses={
                "output": (await wire.get(f"/view?filename={saved}")).status,
                "input": (await wire.get(f"/view?filename={uploaded}&type=input")).status,
                "temp": (await wire.get(f"/view?filename={shown}&type=temp")).status,
            },
        )


@pytest.fixture(scope="module")
def lives(own_server: ServerProcess) -> Lives:
    return asyncio.run(live_twice(own_server))


@pytest.mark.slow
def test_numbers_begin_at_zero_in_every_life(lives: Lives) -> None:
    assert (lives.first_number, lives.next_number) == (0, 0)


def test_a_terminated_server_drops_its_sockets_without_a_word(lives: Lives) -> None:
    assert lives.close_code == 1006


def test_the_queue_is_lost_with_the_process(lives: Lives) -> None:
    assert lives.queue.body == {"queue_running": [], "queue_pending": []}


def test_the_history_is_lost_with_the_process(lives: Lives) -> None:
    assert lives.history.body == {}
    assert lives.lost_histories == [{}, {}, {}]


def test_saved_and_uploaded_files_survive_and_temporary_ones_do_not(lives: Lives) -> None:
    assert lives.statuses == {"output": 200, "input": 200, "temp": 404}


def test_file_counters_go_on_after_a_restart(lives: Lives) -> None:
    assert lives.saved_again == "_00002_.png"


async def test_a_node_without_inputs_that_nothing_uses_ends_all_work(own_server: ServerProcess, lives: Lives) -> None:
    """The server still answers and still takes prompts, but runs none of them."""
    async with connected(own_server) as wire:
        fatal = await wire.submit({**picture(), "9": {"class_type": "EmptyImage"}})
        await wire.running(fatal)
        waiting = await wire.submit(picture())
        with pytest.raises(AssertionError):
            await wire.finished(waiting, timeout=1)
        running, pending = await wire.queue()
        assert ([item[1] for item in running], [item[1] for item in pending]) == ([fatal], [waiting])
        assert (await wire.post("/interrupt")).status == 200
        async with wire.socket() as recorder:
            assert recorder.events("status")[0]["status"]["exec_info"]["queue_remaining"] == 2
