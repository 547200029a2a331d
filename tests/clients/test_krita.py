"""Krita's plugin: it chooses the ids of its prompts, and knows nothing but what its websocket tells."""

from __future__ import annotations

from typing import Any

import pytest

from support.clients import Client, required
from support.fronts import Front
from support.graphs import node
from support.painted import colors, painted, was_interrupted
from support.wire import Graph

CLIENT = required("krita-ai-diffusion")


async def played(client: Client, scenario: str, graph: Graph, canvas: int = 0) -> Any:
    """What became of a job that is such a graph, on a canvas of this colour."""
    found = await client.drive(scenario, graph=graph, canvas=canvas)
    assert found["device"]
    assert found["is_idle"]
    return found


async def test_pictures_come_over_the_websocket(front: Front, client: Client) -> None:
    wanted = painted()
    wanted.graph["2"] = node("SaveImageWebsocket", images=["1", 0])
    found = await played(client, "nothing", wanted.graph)
    assert (found["told"][0], found["told"][-1], found["error"]) == ("progress", "finished", None)
    assert colors(*found["images"]) == [wanted.color]


async def test_an_interrupt_stops_what_runs(front: Front, client: Client) -> None:
    found = await played(client, "interrupt", painted(seconds=600).graph)
    assert (found["told"][0], found["told"][-1]) == ("progress", "interrupted")
    assert was_interrupted(await front.finished(found["prompt_id"]))


async def test_cancelling_takes_back_a_prompt_that_waits_and_no_other(front: Front, client: Client) -> None:
    async with front.busy():
        found = await played(client, "cancel", painted().graph)
        assert found["told"] == ["interrupted"]
        assert (await front.queue())[1] == []
    assert (await front.get(f"/history/{found['prompt_id']}")).body == {}


async def test_a_failure_is_told(front: Front, client: Client) -> None:
    graph = painted().graph
    graph["2"]["inputs"]["filename_prefix"] = "../outside"
    found = await played(client, "nothing", graph)
    assert found["told"][-1] == "error"
    assert "outside the output folder" in found["error"]


async def test_the_canvas_goes_to_the_server_and_comes_back(front: Front, client: Client) -> None:
    if "ETN_LoadImageCache" not in (await front.get("/object_info")).body:
        pytest.skip("the server has no comfyui-tooling-nodes, or cannot load them")
    canvas = painted()
    sent = {"1": node("ETN_KritaCanvas"), "2": node("ETN_SaveImageCache", images=["1", 0], format="PNG")}
    found = await played(client, "nothing", sent, canvas.color)
    assert found["told"][-1] == "finished", found["error"]
    assert colors(*found["images"]) == [canvas.color]
