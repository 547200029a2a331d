"""The four nodes: what ComfyUI shows of them, what they save, and when the grid comes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS, WEB_DIRECTORY
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.core.parameter_parser import TYPES
from comfyui_agent.nodes.node_classes import (
    Membership,
    Parameters,
    WIGridCompositor,
    WIIterator,
    WIParameter,
    WISaveImage,
)
from support.comfyui_inside import ComfyUIInside
from support.packs import joined, owner_of, until

NODES = [pytest.param(node, id=name) for name, node in NODE_CLASS_MAPPINGS.items()]
PATIENCE_SECONDS = 15.0
COLOURS = (0xFF0000, 0x00FF00, 0x0000FF)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComfyUIInside]:
    """A ComfyUI with the nodes in it, whose queue is held."""
    with joined(tmp_path, monkeypatch) as comfyui:
        yield comfyui


def graph(saver: bool = True, grid: bool = True, painter: str = "Colour", **inputs: Any) -> dict[str, Any]:
    """A picture in each of three colours."""
    colours = ",".join(map(str, COLOURS))
    parameter = {"name": "colour", "type": "INT", "values": colours, "node_id": "1", "input_name": "colour"}
    iterator = {"enabled": True, "mode": "matrix", "batch_name": "cats", "param_1": ["5", 0]}
    prompt: dict[str, Any] = {
        "1": {"class_type": painter, "inputs": {"colour": 0, "width": 6, "height": 4, **inputs}},
        "5": {"class_type": "WIParameter", "inputs": parameter},
        "20": {"class_type": "WIIterator", "inputs": iterator},
    }
    if saver:
        saving = {"images": ["1", 0], "filename_prefix": "E3/image", "iterator": ["20", 0]}
        prompt["30"] = {"class_type": "WISaveImage", "inputs": saving}
    if grid:
        prompt["40"] = {"class_type": "WIGridCompositor", "inputs": {"images": ["1", 0], "iterator": ["20", 0]}}
    return prompt


def begun(inside: ComfyUIInside, prompt: dict[str, Any], **body: Any) -> str:
    """Queue a prompt: its batch, as soon as all members stand in the queue."""
    status, answer = inside.post({"prompt": prompt, **body})
    assert status == 200, answer
    found = owner_of(IterationStateManager.instance(), answer["prompt_id"])
    assert found is not None
    until(lambda: len(inside.waiting()) == len(COLOURS))
    return found[0]


def ended(batch_id: str) -> dict[str, Any]:
    manager = IterationStateManager.instance()
    until(lambda: not manager.is_active(batch_id))
    found = manager.describe(batch_id)
    assert found is not None
    return found


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def picture(colour: Any = "red", mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (6, 4), colour)


def shown(inside: ComfyUIInside, prompt_id: str, node_id: str) -> Any:
    return inside.queue.history[prompt_id]["outputs"].get(node_id, {}).get("images")


# What ComfyUI shows.


def test_there_are_four_nodes_with_names_for_people() -> None:
    assert set(NODE_CLASS_MAPPINGS) == {"WIIterator", "WIParameter", "WISaveImage", "WIGridCompositor"}
    assert NODE_DISPLAY_NAME_MAPPINGS == {
        "WIIterator": "E3 Iterator",
        "WIParameter": "E3 Parameter",
        "WISaveImage": "E3 Save Image",
        "WIGridCompositor": "E3 Grid",
    }
    assert WEB_DIRECTORY == "./web"


@pytest.mark.parametrize("node", NODES)
def test_a_node_says_what_it_is_for(node: Any) -> None:
    assert node.CATEGORY == "E3"
    assert node.DESCRIPTION.endswith(".")
    assert callable(getattr(node(), node.FUNCTION))
    assert len(getattr(node, "RETURN_NAMES", ())) == len(node.RETURN_TYPES)
    assert len(getattr(node, "OUTPUT_TOOLTIPS", ())) == len(node.RETURN_TYPES)


@pytest.mark.parametrize("node", NODES)
def test_every_input_has_a_tooltip_and_every_widget_a_default(node: Any) -> None:
    declared = node.INPUT_TYPES()
    assert set(declared) <= {"required", "optional", "hidden"}
    for name, (kind, options) in [*declared["required"].items(), *declared.get("optional", {}).items()]:
        assert len(options["tooltip"]) > 10, name
        assert "\n" not in options["tooltip"]
        if isinstance(kind, list):
            assert options["default"] in kind
        elif not kind.startswith("WI_") and kind != "IMAGE":
            assert "default" in options, name


@pytest.mark.parametrize("node", NODES)
def test_the_inputs_are_json_and_new_each_time(node: Any) -> None:
    declared = json.loads(json.dumps(node.INPUT_TYPES()))
    assert declared["required"]
    node.INPUT_TYPES()["required"].clear()
    assert json.loads(json.dumps(node.INPUT_TYPES())) == declared


def test_the_inputs_are_those_that_prompts_are_written_with() -> None:
    classes: dict[str, Any] = dict(NODE_CLASS_MAPPINGS)
    declared = {name: node.INPUT_TYPES() for name, node in classes.items()}
    assert list(declared["WIIterator"]["required"]) == ["enabled", "mode", "batch_name"]
    assert declared["WIIterator"]["required"]["mode"][0] == ["matrix", "linear"]
    assert list(declared["WIParameter"]["required"]) == ["name", "type", "values", "node_id", "input_name"]
    assert declared["WIParameter"]["required"]["type"][0] == list(TYPES)
    assert declared["WIParameter"]["required"]["values"][1]["multiline"] is True
    assert list(declared["WISaveImage"]["required"]) == ["images", "filename_prefix"]
    assert list(declared["WISaveImage"]["optional"]) == ["iterator"]
    assert list(declared["WIGridCompositor"]["required"]) == ["images", "iterator"]
    layout = ["columns", "rows", "cell_pixels", "title", "filename_prefix"]
    assert list(declared["WIGridCompositor"]["optional"]) == layout


def test_an_iterator_takes_any_number_of_parameters_and_nothing_else() -> None:
    optional = WIIterator.INPUT_TYPES()["optional"]
    assert isinstance(optional, Parameters)
    assert list(optional) == ["param_1"]
    for name in ("param_1", "param_2", "param_10", "param_123456"):
        assert name in optional
        assert optional[name][0] == "WI_PARAMETER"
        assert optional[name][1]["tooltip"]
    others: list[Any] = ["param_", "param_x", "param_1x", "xparam_1", "param_-1", "param_1\n", "PARAM_1", "seed", "", 1]
    for other in others:
        assert other not in optional
        with pytest.raises(KeyError):
            optional[other]


def test_importing_the_nodes_loads_nothing_heavy() -> None:
    """ComfyUI has all of these; the pack is to come up without them, and fast."""
    script = "import sys, comfyui_agent.nodes; print(sorted({n.partition('.')[0] for n in sys.modules}))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(answer.stdout.strip("[]\n").replace("'", "").split(", "))
    assert "comfyui_agent" in loaded
    assert not loaded & {"PIL", "numpy", "torch", "aiohttp", "pydantic", "typer", "yaml", "apsw", "server", "nodes"}


# Iterator and parameter.


def test_an_iterator_gives_the_membership_of_its_prompt(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph())
    prompt = {"20": {"class_type": "WIIterator", "inputs": marks(batch_id, 1)}}
    found = WIIterator().membership(prompt=prompt, unique_id="20", mode="matrix", batch_name="x", param_7="y")
    assert found == (Membership(batch_id, 1, 3, {"colour": 7}),)
    assert WIIterator().membership(prompt=prompt, unique_id="20", enabled=False) == (None,)
    unknown = {"20": {"class_type": "WIIterator", "inputs": marks("cats_0a1b2c3d", 1)}}
    assert WIIterator().membership(prompt=unknown, unique_id="20") == (None,)


def marks(batch_id: str, index: int) -> dict[str, Any]:
    return {"e3_batch": batch_id, "e3_index": index, "e3_total": 3, "e3_values": {"colour": 7}}


def test_marks_that_come_back_out_of_a_file_are_not_counted(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph())
    again = graph()
    again["20"]["inputs"] |= {**marks(batch_id, 2), "enabled": False}
    status, answer = inside.post({"prompt": again, "front": True})
    assert status == 200
    inside.release()
    assert ended(batch_id)["completed_count"] == 3
    inside.wait_ended(answer["prompt_id"])
    assert len([name for name in files_in(inside.folders["output"]) if batch_id in name and "grid" not in name]) == 3


@pytest.mark.parametrize(
    "prompt", [None, {}, {"20": {"inputs": {}}}, {"20": {"inputs": {"e3_batch": "../x"}}}, {"20": 5}]
)
def test_an_iterator_without_marks_gives_none(prompt: Any) -> None:
    assert WIIterator().membership(prompt=prompt, unique_id="20") == (None,)
    assert WIIterator().membership(prompt=prompt) == (None,)


def test_a_parameter_gives_its_name() -> None:
    assert WIParameter().name(name="a", input_name="seed", type="INT", values="1", node_id="3") == ("a",)
    assert WIParameter().name(name="", input_name="seed") == ("seed",)


# Saving.


def test_outside_of_a_batch_pictures_are_saved_as_comfyui_saves_them(inside: ComfyUIInside) -> None:
    images = [picture(), picture("blue")]
    prompt, workflow = {"1": {"class_type": "Colour"}}, {"nodes": [{"id": 1}]}
    answer = WISaveImage().save(images, "E3/image", prompt=prompt, extra_pnginfo={"workflow": workflow})
    assert answer["result"] == (images,)
    assert answer["ui"]["images"] == [
        {"filename": f"image_0000{number}_.png", "subfolder": "E3", "type": "output"} for number in (1, 2)
    ]
    assert files_in(inside.folders["output"]) == ["E3/image_00001_.png", "E3/image_00002_.png"]
    with Image.open(inside.folders["output"] / "E3/image_00002_.png") as saved:
        assert saved.getpixel((0, 0)) == (0, 0, 255)
        assert {key: json.loads(text) for key, text in saved.info.items()} == {"prompt": prompt, "workflow": workflow}


def test_the_number_of_a_picture_can_stand_in_its_name(inside: ComfyUIInside) -> None:
    for _ in range(2):
        images = WISaveImage().save([picture(), picture()], "a%batch_num%")["ui"]["images"]
        assert [image["filename"].partition("_")[0] for image in images] == ["a0", "a1"]
    assert len(files_in(inside.folders["output"])) == 4


@pytest.mark.parametrize("extra", [None, {}])
def test_a_prompt_from_a_script_has_no_workflow(inside: ComfyUIInside, extra: Any) -> None:
    WISaveImage().save([picture()], "a", prompt={"1": {}}, extra_pnginfo=extra)
    WISaveImage().save([picture()], "a", extra_pnginfo=extra)
    with Image.open(inside.folders["output"] / "a_00001_.png") as saved:
        assert saved.info == {"prompt": '{"1": {}}'}
    with Image.open(inside.folders["output"] / "a_00002_.png") as saved:
        assert saved.info == {}


def test_in_a_batch_pictures_have_a_folder_and_their_values_in_their_names(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph(grid=False), extra_data={"extra_pnginfo": {"workflow": {"nodes": []}}})
    first = inside.run_one()
    folder = f"E3/image/{batch_id}"
    name = f"0001_colour-{COLOURS[0]}_00001_.png"
    assert files_in(inside.folders["output"]) == [f"{folder}/{name}"]
    assert shown(inside, first, "30") == [{"filename": name, "subfolder": folder, "type": "output"}]
    with Image.open(inside.folders["output"] / folder / name) as saved:
        assert saved.getpixel((0, 0)) == (255, 0, 0)
        prompt = json.loads(saved.info["prompt"])
        assert (prompt["1"]["inputs"]["colour"], prompt["20"]["inputs"]["e3_index"]) == (COLOURS[0], 0)
        assert "workflow" in saved.info
    described = IterationStateManager.instance().describe(batch_id)
    assert described is not None
    assert described["results"] == {
        "0": {
            "images": [{"filename": name, "subfolder": folder, "type": "output"}],
            "metadata": {"values": {"colour": COLOURS[0]}},
        }
    }
    inside.release()
    assert ended(batch_id)["state"] == "complete"
    assert len(files_in(inside.folders["output"])) == 3


@pytest.mark.parametrize("batch", ["../../evil", "/evil", "..", 5])
def test_marks_of_strangers_lead_nowhere(inside: ComfyUIInside, tmp_path: Path, batch: Any) -> None:
    """A prompt whose iterator is off and that brings marks of its own."""
    prompt = graph()
    marks = {"e3_batch": batch, "e3_index": 0, "e3_total": 3, "e3_values": {"../../x": "/y"}}
    prompt["20"]["inputs"].update(enabled=False, **marks)
    status, answer = inside.post({"prompt": prompt})
    assert status == 200, answer
    inside.run_one()
    assert inside.queue.history[answer["prompt_id"]]["status"]["completed"] is True
    assert files_in(tmp_path) == ["output/E3/image_00001_.png"]


# The grid.


@pytest.mark.parametrize("member", [None, Membership("cats_0a1b2c3d", 0, 3, {"colour": 7})])
def test_without_a_batch_pictures_are_saved_and_there_is_no_grid(
    inside: ComfyUIInside, member: Membership | None
) -> None:
    assert len(WISaveImage().save([picture()], "E3/image", member)["ui"]["images"]) == 1
    assert WIGridCompositor().compose([picture()], member, unique_id="40") == {"ui": {"images": []}}
    assert len(files_in(inside.folders["output"])) == 1
    assert IterationStateManager.instance().summaries() == []


def test_the_grid_comes_once_with_the_last_member(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph())
    members = [inside.run_one() for _ in COLOURS]
    batch = ended(batch_id)
    assert (batch["state"], batch["completed_count"], batch["failed"]) == ("complete", 3, 0)
    assert [shown(inside, each, "40") or [] for each in members[:2]] == [[], []]
    assert shown(inside, members[-1], "40") == [batch["grid"]]
    grids = [name for name in files_in(inside.folders["output"]) if name.startswith("E3/grid")]
    assert grids == [f"{batch['grid']['subfolder']}/{batch['grid']['filename']}"]
    with Image.open(inside.folders["output"] / grids[0]) as saved:
        seen = {colour for _, colour in saved.convert("RGB").getcolors(1 << 24)}
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255)} <= seen
    assert files_in(inside.folders["temp"]) == [], "the files that were saved are enough"


def test_a_grid_alone_keeps_what_it_was_given_for_the_moment(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph(saver=False))
    first = inside.run_one()
    (kept,) = files_in(inside.folders["temp"])
    assert kept == f"e3_grid/40/{batch_id}/0001_colour-{COLOURS[0]}_00001_.png"
    assert not shown(inside, first, "40")
    inside.release()
    batch = ended(batch_id)
    assert {image["type"] for result in batch["results"].values() for image in result["images"]} == {"temp"}
    assert len(files_in(inside.folders["temp"])) == 3
    assert len(files_in(inside.folders["output"])) == 1
    assert batch["grid"]["type"] == "output"


def test_a_member_that_failed_has_its_place_and_the_grid_comes_without_it(inside: ComfyUIInside) -> None:
    batch_id = begun(inside, graph(painter="Fails", at=COLOURS[-1]), client_id="page")
    inside.release()
    batch = ended(batch_id)
    assert (batch["state"], batch["completed_count"], batch["failed"]) == ("complete", 2, 1)
    assert f"the colour is {COLOURS[-1]}" in batch["members"][2]["reason"]
    assert batch["grid"] is not None
    until(lambda: any(each["node"] == "40" and each["output"]["images"] for each in inside.sent("executed")))
    events = [each for each in inside.sent("executed") if each["node"] == "40" and each["output"]["images"]]
    assert [each["output"]["images"] for each in events] == [[batch["grid"]]]
