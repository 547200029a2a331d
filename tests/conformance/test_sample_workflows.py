"""The workflows that come with E3 render on every server, and each place that they name is there."""

from __future__ import annotations

import json
import random
from importlib import resources
from typing import Any

import pytest
import yaml

from comfyui_agent.domain.prompts import place, split_place
from support.graphs import checkpoint_name, fresh_prefix
from support.pictures import form, opened, png
from support.wire import Graph, Wire

SAMPLES = resources.files("comfyui_agent.config") / "samples"
WORKFLOWS: dict[str, dict[str, Any]] = yaml.safe_load((SAMPLES / "workflows.yaml").read_text("utf-8"))
SMALL: dict[str, dict[str, Any]] = {
    "wf_realistic_portrait": {"4.width": 64, "4.height": 64, "5.steps": 2},
    "wf_image_to_image": {"5.megapixels": 0.01, "7.steps": 2},
    "wf_text_to_video": {"4.width": 64, "4.height": 64, "4.batch_size": 3, "5.steps": 2},
}
CASTLE = (SAMPLES / "pictures" / "castle.png").read_bytes()
PNG, MATROSKA = b"\x89PNG", b"\x1a\x45\xdf\xa3"


def template(name: str) -> Graph:
    graph: Graph = json.loads((SAMPLES / WORKFLOWS[name]["template_path"]).read_text("utf-8"))
    return graph


def places(name: str) -> dict[str, list[str]]:
    """The places of each input, whether one or many are written."""
    inputs: dict[str, str | list[str]] = WORKFLOWS[name]["inputs"]
    return {key: [where] if isinstance(where, str) else where for key, where in inputs.items()}


async def rendered(wire: Wire, name: str, picture: bytes = CASTLE) -> tuple[str, bytes]:
    """The name and the bytes of the one file that a workflow leaves, made small, with inputs given as by a job."""
    values: dict[str, Any] = {"prompt": "a lighthouse", "seed": random.randrange(2**48)}
    values["checkpoint"] = await checkpoint_name(wire)
    if "image" in places(name):
        upload = await wire.post("/upload/image", data=form(picture, f"{fresh_prefix()}.png"))
        values["image"] = upload.body["name"]
    spread = {where: value for key, value in values.items() for where in places(name)[key]}
    entry = await wire.run(place(template(name), spread | SMALL[name]))
    (output,) = entry["outputs"].values()
    (listed,) = output["images"]
    answer = await wire.get("/view", params=listed)
    assert answer.status == 200
    return listed["filename"], answer.body


@pytest.mark.parametrize("name", SMALL)
def test_every_place_is_in_the_template(name: str) -> None:
    graph = template(name)
    for key, wheres in places(name).items():
        for where in wheres:
            node_id, input_name = split_place(where)
            assert input_name in graph[node_id]["inputs"], f"{key}: {where}"


@pytest.mark.parametrize("name", SMALL)
def test_required_inputs_and_defaults_have_a_place(name: str) -> None:
    entry = WORKFLOWS[name]
    assert {*entry["required_inputs"], *entry["defaults"]} <= entry["inputs"].keys()


def test_every_template_has_an_entry_and_is_rendered_here() -> None:
    files = {file.name.removesuffix(".json") for file in (SAMPLES / "workflows").iterdir()}
    assert files == WORKFLOWS.keys() == SMALL.keys()


@pytest.mark.parametrize("path", sorted(file.name for file in (SAMPLES / "jobs").iterdir()))
def test_a_sample_job_gives_what_its_workflow_requires(path: str) -> None:
    job = yaml.safe_load((SAMPLES / "jobs" / path).read_text("utf-8"))
    entry = WORKFLOWS[job["workflow_id"]]
    assert {*entry["required_inputs"]} <= job["inputs"].keys() <= entry["inputs"].keys()


@pytest.mark.parametrize(
    ("name", "extension", "start"),
    [
        ("wf_realistic_portrait", ".png", PNG),
        ("wf_image_to_image", ".png", PNG),
        ("wf_text_to_video", ".webm", MATROSKA),
    ],
)
async def test_a_sample_renders_to_one_file_of_its_kind(wire: Wire, name: str, extension: str, start: bytes) -> None:
    filename, content = await rendered(wire, name)
    assert (filename.endswith(extension), content[:4]) == (True, start)


@pytest.mark.parametrize(("size", "scaled"), [((512, 512), (104, 104)), ((37, 61), (80, 128)), ((900, 301), (176, 56))])
async def test_a_picture_of_any_size_is_taken_and_keeps_its_shape(
    wire: Wire, size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    _, content = await rendered(wire, "wf_image_to_image", png(size=size))
    assert opened(content).size == scaled
