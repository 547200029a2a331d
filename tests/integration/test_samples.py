"""The sample payloads: three pages of a picture book that every ComfyUI can render."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from comfyui_agent.domain.prompts import class_of, inputs_of
from comfyui_agent.lab.payloads import MODEL, read_payload
from support.shared_servers import Servers
from support.wire import Wire

FOLDER = Path(__file__).parents[2] / "infra" / "comfyui"
SIZES = {"book_small": (512, [12], 512), "book_medium": (768, [20], 768), "book_large": (1024, [30, 15], 1536)}
"""Sample → the side it begins with, the steps of each pass, the side of the picture."""
samples = pytest.mark.parametrize("name", SIZES)


def body_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "samples" / f"{name}.json").read_text(encoding="utf-8"))
    return found


@samples
def test_a_sample_is_the_body_of_a_post(name: str) -> None:
    assert list(body_of(name)) == ["prompt"]


@samples
def test_a_sample_asks_for_what_its_name_says(name: str) -> None:
    graph = read_payload(FOLDER / "samples" / f"{name}.json").graph
    (begin,) = (node for node in graph if class_of(graph, node) == "EmptyLatentImage")
    passes = [inputs_of(graph, node)["steps"] for node in graph if class_of(graph, node) == "KSampler"]
    side, steps, _ = SIZES[name]
    assert inputs_of(graph, begin) == {"width": side, "height": side, "batch_size": 1}
    assert passes == steps


@samples
def test_every_pass_has_a_seed_that_a_load_test_can_vary(name: str) -> None:
    assert len(read_payload(FOLDER / "samples" / f"{name}.json").seed_places) == len(SIZES[name][1])


@samples
def test_every_node_says_what_it_is_for(name: str) -> None:
    titles = [node["_meta"]["title"] for node in body_of(name)["prompt"].values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)


@samples
async def test_a_server_with_the_model_takes_it_as_it_is(name: str, wire: Wire) -> None:
    """As `curl --data @infra/comfyui/samples/book_small.json` posts it."""
    (loader,) = (await wire.get("/object_info/CheckpointLoaderSimple")).body.values()
    if MODEL not in loader["input"]["required"]["ckpt_name"][0]:
        pytest.skip(f"{wire.url} has no model {MODEL}")
    data = (FOLDER / "samples" / f"{name}.json").read_bytes()
    answer = await wire.post("/prompt", data=data, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.body["node_errors"]) == (200, {})
    wire.submitted.append(answer.body["prompt_id"])


@samples
async def test_the_simulator_renders_one_page_of_that_size(name: str, servers: Servers) -> None:
    async with aiohttp.ClientSession() as session:
        wire = Wire(session, servers.url("sim"))
        entry = await wire.run(body_of(name)["prompt"])
        (picture,) = (each for node in entry["outputs"].values() for each in node["images"])
        assert picture["filename"].startswith(name)
        page = (await wire.get("/view", params=picture)).body
    side = SIZES[name][2]
    assert Image.open(BytesIO(page)).size == (side, side)


async def test_the_workflow_for_the_editor_is_the_medium_page(servers: Servers) -> None:
    document = json.loads((FOLDER / "workflows" / "book_page.json").read_text(encoding="utf-8"))
    async with aiohttp.ClientSession() as session:
        known = (await Wire(session, servers.url("sim")).get("/object_info")).body
    assert exported(document, known) == body_of("book_medium")["prompt"]


def exported(document: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What the editor's “Export (API)” makes of a workflow."""
    links = {link: [str(node), slot] for link, node, slot, *_ in document["links"]}
    graph = {}
    for node in document["nodes"]:
        values = iter(node["widgets_values"])
        wired = {each["name"]: links[each["link"]] for each in node["inputs"]}
        inputs: dict[str, Any] = {}
        for name, (kind, *options) in known[node["type"]]["input"]["required"].items():
            is_widget = isinstance(kind, list) or kind in ("INT", "FLOAT", "STRING")
            inputs[name] = next(values) if is_widget else wired[name]
            if any(each.get("control_after_generate") for each in options):
                assert next(values) == "randomize"
        assert list(values) == []
        graph[str(node["id"])] = {"inputs": inputs, "class_type": node["type"], "_meta": {"title": node["title"]}}
    return graph
