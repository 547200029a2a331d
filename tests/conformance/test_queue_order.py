"""Which prompt runs next, and what the queue shows meanwhile."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from support.graphs import picture, slow_graph
from support.wire import Wire


@pytest.fixture
async def busy(slow_wire: Wire) -> str:
    """The id of a prompt that runs while the test queues others behind it."""
    prompt_id = await slow_wire.submit(await slow_graph(slow_wire))
    await slow_wire.running(prompt_id)
    return prompt_id


async def run_order(wire: Wire, busy: str, prompt_ids: list[str]) -> list[str]:
    """The order in which these prompts ended, once the busy one is interrupted. Equal ones come from the cache."""
    await wire.stop([busy])
    for prompt_id in prompt_ids:
        await wire.finished(prompt_id)
    history = (await wire.get("/history")).body
    return [prompt_id for prompt_id in history if prompt_id in prompt_ids]


async def test_prompts_without_a_number_run_in_the_order_of_arrival(slow_wire: Wire, busy: str) -> None:
    graph = picture()
    prompt_ids = [await slow_wire.submit(graph) for _ in range(3)]
    assert await run_order(slow_wire, busy, prompt_ids) == prompt_ids


@pytest.mark.not_at_gateway("up to two prompts for each server are beyond reordering")
async def test_a_later_front_prompt_overtakes_an_earlier_one(slow_wire: Wire, busy: str) -> None:
    graph = picture()
    usual = await slow_wire.submit(graph)
    first_front = await slow_wire.submit(graph, front=True)
    second_front = await slow_wire.submit(graph, front=True)
    order = await run_order(slow_wire, busy, [usual, first_front, second_front])
    assert order == [second_front, first_front, usual]


@pytest.mark.not_at_gateway("equal numbers run in the order of arrival")
async def test_equal_numbers_run_by_prompt_id(slow_wire: Wire, busy: str) -> None:
    graph = picture()
    low, middle, high = sorted(str(uuid.uuid4()) for _ in range(3))
    for prompt_id in (high, low, middle):
        await slow_wire.submit(graph, prompt_id=prompt_id, number=0.5)
    assert await run_order(slow_wire, busy, [low, middle, high]) == [low, middle, high]


@pytest.mark.not_at_gateway("up to two prompts for each server are beyond reordering")
async def test_lower_numbers_run_first_and_may_be_negative(slow_wire: Wire, busy: str) -> None:
    graph = picture()
    high = await slow_wire.submit(graph, number=9_000_000)
    negative = await slow_wire.submit(graph, number=-9_000_000)
    low = await slow_wire.submit(graph, number=-0.5)
    assert await run_order(slow_wire, busy, [high, negative, low]) == [negative, low, high]


async def test_nothing_preempts_a_running_prompt(slow_wire: Wire, busy: str) -> None:
    await slow_wire.submit(picture(), number=-9_000_000)
    running, pending = await slow_wire.queue()
    assert ([item[1] for item in running], len(pending)) == ([busy], 1)


@pytest.mark.not_at_gateway("up to two prompts for each server are beyond reordering")
async def test_pending_items_come_in_heap_order(slow_wire: Wire, busy: str) -> None:
    for number in (8_000_300, 8_000_200, 8_000_100):
        await slow_wire.submit(picture(), number=number)
    _, pending = await slow_wire.queue()
    assert [item[0] for item in pending] == [8_000_100, 8_000_300, 8_000_200]


async def test_queue_items_have_five_elements(slow_wire: Wire, busy: str) -> None:
    graph = picture()
    prompt_id = await slow_wire.submit(graph, extra_data={"note": "kept"}, number=7)
    running, pending = await slow_wire.queue()
    assert [len(item) for item in running + pending] == [5, 5]
    number, shown_id, shown_graph, extra_data, outputs = pending[0]
    assert (number, shown_id, shown_graph, outputs) == (7, prompt_id, graph, ["2"])
    assert extra_data.keys() == {"note", "client_id", "create_time"}
    assert extra_data["client_id"] == slow_wire.client_id
    assert isinstance(extra_data["create_time"], int)


async def test_the_remaining_count_includes_the_running_prompt(slow_wire: Wire, busy: str) -> None:
    await slow_wire.submit(picture())
    answer = await slow_wire.get("/prompt")
    assert (answer.status, answer.body) == (200, {"exec_info": {"queue_remaining": 2}})


async def test_a_deleted_prompt_leaves_no_trace(slow_wire: Wire, busy: str) -> None:
    kept, deleted = await slow_wire.submit(picture()), await slow_wire.submit(picture())
    async with slow_wire.socket() as recorder:
        answer = await slow_wire.post("/queue", {"delete": [deleted]})
        assert (answer.status, answer.body) == (200, b"")
        assert [item[1] for item in (await slow_wire.queue())[1]] == [kept]
        await slow_wire.interrupt(busy)
        await recorder.last_frame_of(kept)
        assert [data for data in recorder.events("execution_start") if data["prompt_id"] == deleted] == []
        assert recorder.events("status")[1]["status"]["exec_info"]["queue_remaining"] == 2
    assert (await slow_wire.get(f"/history/{deleted}")).body == {}


@pytest.mark.not_at_gateway("the same id is the same job")
async def test_deleting_takes_one_item_per_listed_id(slow_wire: Wire, busy: str) -> None:
    prompt_id = str(uuid.uuid4())
    for number in (1, 2, 3):
        await slow_wire.submit(picture(), prompt_id=prompt_id, number=number)
    await slow_wire.post("/queue", {"delete": [prompt_id]})
    assert len((await slow_wire.queue())[1]) == 2
    await slow_wire.post("/queue", {"delete": [prompt_id, prompt_id]})
    assert (await slow_wire.queue())[1] == []


@pytest.mark.parametrize("body", [{"delete": ["no-such-prompt"]}, {"clear": False}, {}])
async def test_queue_changes_that_name_nothing_are_accepted(slow_wire: Wire, busy: str, body: dict[str, Any]) -> None:
    waiting = await slow_wire.submit(picture())
    assert (await slow_wire.post("/queue", body)).status == 200
    assert [item[1] for item in (await slow_wire.queue())[1]] == [waiting]


async def test_a_running_prompt_cannot_be_deleted(slow_wire: Wire, busy: str) -> None:
    assert (await slow_wire.post("/queue", {"delete": [busy]})).status == 200
    assert [item[1] for item in (await slow_wire.queue())[0]] == [busy]


async def test_clearing_empties_what_waits_and_leaves_what_runs(slow_wire: Wire, busy: str) -> None:
    await slow_wire.submit(picture())
    await slow_wire.submit(picture())
    answer = await slow_wire.post("/queue", {"clear": True})
    assert (answer.status, answer.body) == (200, b"")
    running, pending = await slow_wire.queue()
    assert ([item[1] for item in running], pending) == ([busy], [])
