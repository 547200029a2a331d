"""comfy_api_simplified: a wrapper for Python programs. It opens its websocket after it has posted."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.clients import Client, required
from support.fronts import Front
from support.graphs import failing, node
from support.painted import colors, painted, png_of, was_interrupted

CLIENT = required("comfy_api_simplified")


@pytest.mark.parametrize("seconds", [0, 1])
async def test_the_picture_comes_however_long_it_takes(front: Front, client: Client, seconds: float) -> None:
    wanted = painted(seconds=seconds)
    found = await client.drive("render", graph=wanted.graph, output="2")
    assert colors(*found["images"]) == [wanted.color]


async def test_a_prompt_that_waits_behind_another_is_waited_for(front: Front, client: Client) -> None:
    wanted = painted(seconds=1)
    _, found = await front.behind_others(client.drive("render", graph=wanted.graph, output="2"))
    assert colors(found["images"][0]) == [wanted.color]


async def test_an_uploaded_picture_is_loaded(front: Front, client: Client, tmp_path: Path) -> None:
    wanted = painted()
    (tmp_path / "mine.png").write_bytes(png_of(wanted.color))
    wanted.graph["1"] = node("LoadImage", image="of_clients/mine.png")
    found = await client.drive("render", graph=wanted.graph, output="2", upload=str(tmp_path / "mine.png"))
    assert colors(found["images"][0]) == [wanted.color]


async def test_an_interrupt_stops_what_runs(front: Front, client: Client) -> None:
    found = await client.drive("interrupt", graph=painted(seconds=600).graph, output="2")
    assert found["error"] == "KeyError: '2'", "the client looks for outputs that are not there"
    assert was_interrupted(await front.finished(found["prompt_id"]))


async def test_a_failure_is_told(front: Front, client: Client) -> None:
    graph = painted(seconds=1, **{"2": {**failing()["2"]}}).graph
    graph["2"]["inputs"]["images"] = ["3", 0]
    found = await client.drive("render", graph=graph, output="2")
    assert found["error"] == "ComfyApiError: Execution error occurred."


async def test_a_rejected_prompt_is_told(front: Front, client: Client) -> None:
    found = await client.drive("render", graph=painted(**{"1": node("NoSuchNode")}).graph, output="2")
    assert found["error"] == "ComfyApiError: Request failed with status code 400: Bad Request"


async def test_pictures_come_over_the_websocket(front: Front, client: Client) -> None:
    wanted = painted(seconds=1)
    wanted.graph["2"] = node("SaveImageWebsocket", images=["3", 0])
    found = await client.drive("render", graph=wanted.graph, output="2")
    assert colors(*found["images"]) == [wanted.color]
