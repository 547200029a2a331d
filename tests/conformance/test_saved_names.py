"""How saved files are named and numbered."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.graphs import fresh_color, fresh_prefix, picture
from support.pictures import form, png
from support.wire import Graph, Wire


def listed(entry: dict[str, Any]) -> list[str]:
    return [image["filename"] for image in entry["outputs"]["2"]["images"]]


def recoloured(graph: Graph) -> Graph:
    """The same save of another picture, so that it runs again."""
    image = {**graph["1"], "inputs": graph["1"]["inputs"] | {"color": fresh_color()}}
    return {**graph, "1": image}


async def test_the_pictures_of_a_batch_are_counted_on(wire: Wire) -> None:
    prefix = fresh_prefix()
    graph = picture(prefix, batch_size=2)
    assert listed(await wire.run(graph)) == [f"{prefix}_00001_.png", f"{prefix}_00002_.png"]
    assert listed(await wire.run(recoloured(graph))) == [f"{prefix}_00003_.png", f"{prefix}_00004_.png"]


async def test_counters_of_different_prefixes_are_apart(wire: Wire) -> None:
    prefix = fresh_prefix()
    await wire.run(picture(prefix))
    assert listed(await wire.run(picture(prefix + "x"))) == [f"{prefix}x_00001_.png"]
    assert listed(await wire.run(picture(prefix + "_x"))) == [f"{prefix}_x_00001_.png"]


@pytest.mark.not_at_gateway("names count results, not what was uploaded there")
async def test_the_counter_goes_on_from_the_highest_file_there_is(wire: Wire) -> None:
    prefix = fresh_prefix()
    await wire.post("/upload/image", data=form(png(), f"{prefix}_00041_.png", type="output"))
    assert listed(await wire.run(picture(prefix))) == [f"{prefix}_00042_.png"]


@pytest.mark.since("0.21")
@pytest.mark.not_at_gateway("names count results, not what was uploaded there")
async def test_a_number_without_an_underscore_behind_it_counts(wire: Wire) -> None:
    prefix = fresh_prefix()
    await wire.post("/upload/image", data=form(png(), f"{prefix}_00041.png", type="output"))
    assert listed(await wire.run(picture(prefix))) == [f"{prefix}_00042_.png"]


@pytest.mark.not_at_gateway("names are given without looking into files")
async def test_the_server_fills_in_size_and_date(wire: Wire) -> None:
    prefix = fresh_prefix()
    days = [time.strftime("%Y-%m-%d")]
    entry = await wire.run(picture(prefix + "_%width%x%height%_%year%-%month%-%day%", width=24, height=8))
    days.append(time.strftime("%Y-%m-%d"))
    assert listed(entry)[0] in [f"{prefix}_24x8_{day}_00001_.png" for day in days]


async def test_the_server_fills_in_the_time(wire: Wire) -> None:
    prefix = fresh_prefix()
    before = int(time.time())
    entry = await wire.run(picture(prefix + "_%hour%.%minute%.%second%"))
    moments = [time.strftime("%H.%M.%S", time.localtime(moment)) for moment in range(before, int(time.time()) + 1)]
    assert listed(entry)[0] in [f"{prefix}_{moment}_00001_.png" for moment in moments]


@pytest.mark.parametrize("placeholder", ["%date:yyyy%", "%EmptyImage.width%", "%unknown%"])
async def test_other_placeholders_are_left_to_the_frontend(wire: Wire, placeholder: str) -> None:
    prefix = fresh_prefix() + placeholder
    assert listed(await wire.run(picture(prefix))) == [f"{prefix}_00001_.png"]


@pytest.mark.not_at_gateway("names are given without looking into files")
async def test_a_batch_number_in_the_prefix_defeats_the_counter(wire: Wire) -> None:
    prefix = fresh_prefix()
    graph = picture(prefix + "_%batch_num%", batch_size=2)
    expected = [f"{prefix}_0_00001_.png", f"{prefix}_1_00002_.png"]
    assert listed(await wire.run(graph)) == expected
    assert listed(await wire.run(recoloured(graph))) == expected


@pytest.mark.parametrize("prefix", ["../outside", "/outside/of/everything", "inner/../../outside"])
async def test_a_prefix_that_leaves_the_output_folder_fails_the_node(wire: Wire, prefix: str) -> None:
    entry = await wire.finished(await wire.submit(picture(prefix)))
    event, error = entry["status"]["messages"][-1]
    assert (event, error["node_id"], error["exception_type"]) == ("execution_error", "2", "Exception")


async def test_a_prefix_may_wander_inside_the_output_folder(wire: Wire) -> None:
    folder = fresh_prefix()
    entry = await wire.run(picture(f"{folder}/a/../b/name"))
    assert entry["outputs"]["2"]["images"] == [
        {"filename": "name_00001_.png", "subfolder": f"{folder}/b", "type": "output"}
    ]
