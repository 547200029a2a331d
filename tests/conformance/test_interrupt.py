"""Stopping what runs, and not stopping what does not."""

from __future__ import annotations

from typing import Any

import pytest

from support.graphs import picture, slow_graph
from support.wire import Graph, Recorder, Wire


async def sampling(wire: Wire, recorder: Recorder, graph: Graph | None = None) -> str:
    """The id of a prompt whose sampler has begun."""
    prompt_id = await wire.submit(graph or await slow_graph(wire))
    await recorder.event("progress", prompt_id)
    return prompt_id


@pytest.mark.parametrize("options", [{}, {"json": {}}, {"data": b"not json"}, {"json": {"prompt_id": ""}}])
async def test_an_interrupt_that_names_nothing_stops_what_runs(slow_wire: Wire, options: dict[str, Any]) -> None:
    async with slow_wire.socket() as recorder:
        prompt_id = await sampling(slow_wire, recorder)
        answer = await slow_wire.post("/interrupt", **options)
        assert (answer.status, answer.body) == (200, b"")
        await recorder.event("execution_interrupted", prompt_id)


async def test_an_interrupted_prompt_counts_as_an_error_and_is_remembered(slow_wire: Wire) -> None:
    async with slow_wire.socket() as recorder:
        prompt_id = await sampling(slow_wire, recorder)
        await slow_wire.interrupt(prompt_id)
    entry = await slow_wire.finished(prompt_id)
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    event, data = entry["status"]["messages"][-1]
    assert event == "execution_interrupted"
    assert data.keys() == {"prompt_id", "node_id", "node_type", "executed", "timestamp"}
    assert (data["node_id"], data["node_type"]) == ("5", "KSampler")
    assert (entry["outputs"], entry["meta"]) == ({}, {})


async def test_outputs_made_before_the_interrupt_are_kept(slow_wire: Wire) -> None:
    graph = await slow_graph(slow_wire)
    early = picture()
    graph["8"], graph["9"] = early["1"], early["2"]
    graph["9"]["inputs"]["images"] = ["8", 0]
    async with slow_wire.socket() as recorder:
        prompt_id = await sampling(slow_wire, recorder, graph)
        await slow_wire.interrupt(prompt_id)
    entry = await slow_wire.finished(prompt_id)
    assert entry["status"]["messages"][-1][0] == "execution_interrupted"
    assert entry["outputs"].keys() == {"9"}
    assert "9" in entry["status"]["messages"][-1][1]["executed"]


async def test_an_interrupt_while_idle_does_not_touch_the_next_prompt(wire: Wire) -> None:
    assert (await wire.post("/interrupt")).status == 200
    await wire.run(picture())


async def test_an_interrupt_for_another_prompt_does_nothing(slow_wire: Wire) -> None:
    async with slow_wire.socket() as recorder:
        running = await sampling(slow_wire, recorder)
        waiting = await slow_wire.submit(picture())
        for prompt_id in ("no-such-prompt", waiting):
            await slow_wire.interrupt(prompt_id)
        assert [item[1] for item in (await slow_wire.queue())[1]] == [waiting]
        step = recorder.events("progress")[-1]["value"]
        await recorder.until(lambda _: recorder.events("progress")[-1]["value"] > step)
        await slow_wire.interrupt(running)
    assert (await slow_wire.finished(waiting))["status"]["status_str"] == "success"


async def test_the_next_prompt_runs_after_an_interrupted_one(slow_wire: Wire) -> None:
    async with slow_wire.socket() as recorder:
        running = await sampling(slow_wire, recorder)
        waiting = await slow_wire.submit(picture())
        await slow_wire.post("/interrupt")
        await recorder.event("execution_success", waiting)
        ends = [data["prompt_id"] for data in recorder.events("executing") if data["node"] is None]
        assert ends[0] == running


async def test_an_interrupt_whose_body_is_no_object_fails_the_request(wire: Wire) -> None:
    assert (await wire.post("/interrupt", [])).status == 500
