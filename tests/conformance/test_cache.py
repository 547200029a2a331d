"""When a node runs again and when its earlier result stands in for it."""

from __future__ import annotations

from typing import Any

import pytest

from support.graphs import checkpoint_name, failing, fresh_prefix, node, picture
from support.pictures import form, png
from support.wire import Graph, Wire


def cached(entry: dict[str, Any]) -> list[str]:
    """The nodes a run did not have to execute."""
    event, data = entry["status"]["messages"][1]
    assert event == "execution_cached"
    nodes: list[str] = data["nodes"]
    return nodes


def file_name(entry: dict[str, Any], node_id: str = "2") -> str:
    name: str = entry["outputs"][node_id]["images"][0]["filename"]
    return name


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_an_identical_prompt_writes_nothing_and_lists_the_old_file(wire: Wire) -> None:
    graph = picture()
    first, second = await wire.run(graph), await wire.run(graph)
    assert cached(second) == ["1", "2"]
    assert second["outputs"] == first["outputs"]
    assert second["meta"] == first["meta"]


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_a_cached_run_without_a_client_lists_nothing_until_0_28(wire: Wire) -> None:
    graph = picture()
    first = await wire.run(graph)
    anonymous = await wire.run(graph, client_id=None)
    assert cached(anonymous) == ["1", "2"]
    listed = (first["outputs"], first["meta"]) if wire.since("0.28") else ({}, {})
    assert (anonymous["outputs"], anonymous["meta"]) == listed


async def test_a_first_run_without_a_client_lists_its_files(wire: Wire) -> None:
    assert file_name(await wire.run(picture("anonymous"), client_id=None)).startswith("anonymous_")


async def test_only_the_last_prompt_is_remembered(wire: Wire) -> None:
    graph = picture()
    first = await wire.run(graph)
    await wire.run(picture())
    again = await wire.run(graph)
    assert cached(again) == []
    assert file_name(first).endswith("_00001_.png")
    assert file_name(again).endswith("_00002_.png")


async def test_a_model_is_loaded_again_after_a_prompt_that_does_not_use_it(wire: Wire) -> None:
    loader = node("CheckpointLoaderSimple", ckpt_name=await checkpoint_name(wire))
    graph: Graph = {"1": loader, "2": node("PreviewAny", source=["1", 0])}
    await wire.run(graph)
    assert "1" in cached(await wire.run(graph))
    await wire.run(picture())
    assert cached(await wire.run(graph)) == []


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_node_ids_and_titles_do_not_matter(wire: Wire) -> None:
    graph = picture()
    first = await wire.run(graph)
    renamed: Graph = {"10": graph["1"], "20": graph["2"] | {"_meta": {"title": "Another title"}}}
    renamed["20"]["inputs"] = graph["2"]["inputs"] | {"images": ["10", 0]}
    second = await wire.run(renamed)
    assert cached(second) == ["10", "20"]
    assert second["outputs"] == {"20": first["outputs"]["2"]}
    assert second["meta"] == {"20": first["meta"]["2"]}
    assert second["meta"]["20"]["node_id"] == "2"


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_extra_png_information_does_not_matter(wire: Wire) -> None:
    graph = picture()
    await wire.run(graph, extra_data={"extra_pnginfo": {"take": 1}})
    assert cached(await wire.run(graph, extra_data={"extra_pnginfo": {"take": 2}})) == ["1", "2"]


async def test_an_unknown_input_makes_its_node_run_again(wire: Wire) -> None:
    graph = picture()
    await wire.run(graph)
    graph["2"]["inputs"]["anything"] = "else"
    again = await wire.run(graph)
    assert cached(again) == ["1"]
    assert file_name(again).endswith("_00002_.png")


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_identical_save_nodes_write_one_file(wire: Wire) -> None:
    graph = picture()
    graph["3"] = graph["2"]
    entry = await wire.run(graph)
    assert file_name(entry, "2") == file_name(entry, "3")
    assert entry["meta"]["2"] == entry["meta"]["3"]
    second_name = file_name(entry).replace("_00001_", "_00002_")
    assert (await wire.get(f"/view?filename={second_name}")).status == 404


async def test_what_succeeded_in_a_failed_run_is_remembered(wire: Wire) -> None:
    graph = failing()
    await wire.finished(await wire.submit(graph))
    graph["2"]["inputs"]["filename_prefix"] = "inside"
    assert cached(await wire.run(graph)) == ["1"]


async def loading(wire: Wire, shade: int) -> Graph:
    """A prompt that loads an uploaded file and saves it."""
    name = (await wire.post("/upload/image", data=form(png((shade, 0, 0)), f"{fresh_prefix()}.png"))).body["name"]
    return {
        "1": node("LoadImage", image=name),
        "2": node("SaveImage", images=["1", 0], filename_prefix=fresh_prefix()),
    }


async def replace(wire: Wire, graph: Graph, shade: int) -> None:
    name = graph["1"]["inputs"]["image"]
    await wire.post("/upload/image", data=form(png((shade, 0, 0)), name, overwrite="true"))


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_a_loaded_file_is_known_by_its_content(wire: Wire) -> None:
    graph = await loading(wire, 10)
    await wire.run(graph)
    assert cached(await wire.run(graph)) == ["1", "2"]
    await replace(wire, graph, 20)
    assert cached(await wire.run(graph)) == []


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_a_fingerprint_in_the_prompt_stands_for_the_content(wire: Wire) -> None:
    graph = await loading(wire, 30)
    graph["1"]["is_changed"] = ["as it was"]
    await wire.run(graph)
    await replace(wire, graph, 40)
    assert cached(await wire.run(graph)) == ["1", "2"]


async def test_freeing_memory_forgets_the_results(wire: Wire) -> None:
    """The worker obeys when it is idle, or after the next prompt if that one came first."""
    graph = picture()
    await wire.run(graph)
    answer = await wire.post("/free", {"free_memory": True})
    assert (answer.status, answer.body) == (200, b"")
    assert [] in [cached(await wire.run(graph)) for _ in range(2)]


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_unloading_models_keeps_the_results(wire: Wire) -> None:
    graph = picture()
    await wire.run(graph)
    assert (await wire.post("/free", {"unload_models": True})).status == 200
    assert [cached(await wire.run(graph)) for _ in range(2)] == [["1", "2"], ["1", "2"]]
