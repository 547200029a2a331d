"""The node pack in a real ComfyUI: one prompt becomes a batch, and every other prompt stays what it is."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.nodes.core.batch_grid import Member, lay_out_grid
from comfyui_agent.nodes.core.batch_state import GridOptions
from support.node_pack import Graph, Inside, comfyui_with_nodes, iterating, parameter
from support.servers import REAL_DIR

pytestmark = [
    pytest.mark.real_comfyui,
    pytest.mark.skipif(not REAL_DIR, reason="set E3_COMFYUI_DIR to a ComfyUI checkout to start"),
    pytest.mark.timeout(300),
]

EXAMPLES = Path(__file__).parents[2] / "src" / "comfyui_agent" / "nodes" / "example_workflows" / "api"
PLAIN: Graph = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 0}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "plain"}},
}


@pytest.fixture(scope="module")
def comfyui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    inside = comfyui_with_nodes(tmp_path_factory.mktemp("inside"))
    yield inside
    inside.close()


@pytest.fixture(autouse=True)
def _everything_is_quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "comfyui" in request.fixturenames:
        inside: Inside = request.getfixturevalue("comfyui")
        for batch in inside.batches():
            inside.post(f"/wi/cancel_batch/{batch['batch_id']}")
        inside.post("/queue", {"clear": True})
        inside.post("/interrupt", {})
        inside.post("/history", {"clear": True})


def colour_at(picture: Image.Image, place: tuple[int, int]) -> int:
    red, green, blue = picture.convert("RGB").getpixel(place)  # type: ignore[misc]
    return int(red) << 16 | int(green) << 8 | int(blue)


def test_one_post_of_the_example_makes_ninety_executions_one_batch_and_one_grid(comfyui: Inside) -> None:
    example = json.loads((EXAMPLES / "matrix_of_colours.json").read_text(encoding="utf-8"))
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(example))["batch_id"], 120)
    assert (batch["state"], batch["total"], batch["completed_count"], batch["failed"]) == ("complete", 90, 90, 0)
    history = comfyui.history()
    assert set(history) == set(batch["prompt_ids"])
    assert all(entry["status"]["status_str"] == "success" for entry in history.values())
    assert len(comfyui.batches()) == 1
    combinations = [tuple(member["values"].values()) for member in batch["members"]]
    axes = [list(dict.fromkeys(values)) for values in zip(*combinations, strict=True)]
    assert sorted(map(len, axes)) == [9, 10]
    assert combinations == list(itertools.product(*axes))
    for index in range(90):
        _check_member(comfyui, batch, index)
    assert list((comfyui.folder / "output").rglob(f"{batch['batch_id']}/grid_*")) == [comfyui.file(batch["grid"])]
    _check_cells(comfyui, batch, example[batch["compositor"]]["inputs"])
    shown = [entry["outputs"] for entry in history.values()]
    images = [image for outputs in shown for image in outputs[batch["compositor"]].get("images", ())]
    assert images == [batch["grid"]]


def _check_member(comfyui: Inside, batch: dict[str, Any], index: int) -> None:
    """Its one file has its colour."""
    [image] = batch["results"][str(index)]["images"]
    with Image.open(comfyui.file(image)) as picture:
        prompt = json.loads(picture.info["prompt"])
        colours = {node["inputs"]["color"] for node in prompt.values() if node["class_type"] == "EmptyImage"}
        assert colours == {batch["members"][index]["values"]["colour"]}
        assert colours == {colour_at(picture, (picture.width // 2, picture.height // 2))}


def _check_cells(comfyui: Inside, batch: dict[str, Any], inputs: dict[str, Any]) -> None:
    """The grid has the colour of each member at the place of its values."""
    axes = [
        Axis(name, (), tuple(dict.fromkeys(member["values"][name] for member in batch["members"])))
        for name in batch["members"][0]["values"]
    ]
    results = (batch["results"][str(index)]["images"][0] for index in range(batch["total"]))
    members = [Member(comfyui.file(image)) for image in results]
    title, subtitle = inputs["title"] or batch["batch_id"], f"{batch['total']} of {batch['total']} done"
    options = GridOptions(inputs["columns"], inputs["rows"], inputs["cell_pixels"])
    made = lay_out_grid(Combinations(axes, Mode.MATRIX), members, options, title, subtitle)
    assert len(made.layout.pages) == 1
    with Image.open(comfyui.file(batch["grid"])) as grid:
        for index, place in enumerate(made.places):
            left, top, right, bottom = made.layout.box(*place)
            colour = colour_at(grid, ((left + right) // 2, (top + bottom) // 2))
            assert colour == batch["members"][index]["values"]["colour"]


def test_every_member_runs_although_the_same_prompt_ran_before(comfyui: Inside) -> None:
    prompt = iterating(parameter("1,2,3", "1.color", "colour"))
    first = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    again = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    assert first["batch_id"] != again["batch_id"]
    assert first["completed_count"] == again["completed_count"] == 3
    assert len({image["filename"] for batch in (first, again) for image in _files(batch)}) == 3
    assert len({image["subfolder"] for batch in (first, again) for image in _files(batch)}) == 2


def _files(batch: dict[str, Any]) -> list[dict[str, str]]:
    return [image for result in batch["results"].values() for image in result["images"]]


def slow(values: str = "0..19", seconds: float = 0.3, **more: Any) -> Graph:
    node = {"class_type": "TestSlow", "inputs": {"image": ["1", 0], "seconds": seconds}}
    return iterating(parameter(values, "1.color", "colour"), n2=node, **more)


def test_a_batch_is_cancelled_midway(comfyui: Inside) -> None:
    batch_id = comfyui.batch_of(comfyui.queue(slow()))["batch_id"]
    comfyui.until(batch_id, lambda batch: batch["completed_count"] >= 3)
    done = comfyui.post(f"/wi/cancel_batch/{batch_id}").json()
    batch = comfyui.get(f"/wi/batch/{batch_id}")
    assert (done["state"], batch["state"], done["not_stopped"]) == ("cancelled", "cancelled", [])
    assert len(done["interrupted"]) == 1
    assert len(done["deleted"]) + 1 + batch["completed_count"] == 20
    assert set(done["deleted"] + done["interrupted"]) < set(batch["prompt_ids"])
    queue = comfyui.get("/queue")
    assert queue["queue_running"] == queue["queue_pending"] == []
    done = len(comfyui.history())
    assert done == batch["completed_count"] + 1
    assert not (comfyui.folder / "output" / "E3" / "grid" / batch_id).exists()
    again = comfyui.post(f"/wi/cancel_batch/{batch_id}").json()
    assert (again["state"], again["deleted"], again["interrupted"]) == ("cancelled", [], [])


def test_what_does_not_stop_is_reported(comfyui: Inside) -> None:
    node = {"class_type": "TestDeaf", "inputs": {"image": ["1", 0], "seconds": 6.0}}
    prompt = iterating(parameter("1,2,3", "1.color"), n2=node)
    first = comfyui.queue(prompt)
    batch_id = comfyui.batch_of(first)["batch_id"]
    comfyui.until(batch_id, lambda batch: batch["running"] == 0)
    done = comfyui.post(f"/wi/cancel_batch/{batch_id}").json()
    assert [each["prompt_id"] for each in done["not_stopped"]] == [first]
    assert "still runs" in done["not_stopped"][0]["reason"]
    assert len(done["deleted"]) == 2


def test_a_prompt_of_someone_else_is_not_interrupted(comfyui: Inside) -> None:
    theirs = {**PLAIN, "3": {"class_type": "TestSlow", "inputs": {"image": ["1", 0], "seconds": 2.0}}}
    theirs["2"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "theirs"}}
    other = comfyui.queue(theirs)
    batch_id = comfyui.batch_of(comfyui.queue(slow()))["batch_id"]
    comfyui.until(batch_id, lambda _: len(comfyui.get("/queue")["queue_pending"]) == 20)
    done = comfyui.post(f"/wi/cancel_batch/{batch_id}").json()
    assert (done["interrupted"], done["not_stopped"], len(done["deleted"])) == ([], [], 20)
    deadline = time.monotonic() + 20
    while other not in comfyui.history() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert comfyui.history()[other]["status"]["status_str"] == "success"


@pytest.mark.parametrize("fails_at", ["1", "3 5", "6"], ids=["the first", "two in the middle", "the last"])
def test_members_that_fail_leave_a_placeholder_and_the_batch_ends(comfyui: Inside, fails_at: str) -> None:
    node = {"class_type": "TestFails", "inputs": {"image": ["1", 0], "number": 0, "fails_at": fails_at}}
    prompt = iterating(parameter("1..6", "2.number", "number"), n2=node)
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    failing = [int(word) for word in fails_at.split()]
    assert (batch["state"], batch["failed"], batch["completed_count"]) == ("complete", len(failing), 6 - len(failing))
    reasons = {member["values"]["number"]: member["reason"] for member in batch["members"] if member["reason"]}
    assert reasons == {number: f"TestFails (node 2): number {number} cannot be rendered" for number in failing}
    assert comfyui.file(batch["grid"]).is_file()


def test_a_member_with_a_value_that_its_node_does_not_take_fails_and_the_others_run(comfyui: Inside) -> None:
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(iterating(parameter("32,99999,64", "1.width"))))["batch_id"])
    assert (batch["completed_count"], batch["failed"]) == (2, 1)
    assert "EmptyImage (node 1)" in batch["members"][1]["reason"]
    assert "width" in batch["members"][1]["reason"]


def test_a_first_combination_that_is_refused_queues_nothing(comfyui: Inside) -> None:
    answer = comfyui.post("/prompt", {"prompt": iterating(parameter("99999,32,64", "1.width"))})
    assert answer.status_code == 400
    assert "width" in answer.text
    [summary] = [each for each in comfyui.batches() if each["total"] == 3 and each["completed_count"] == 0][:1]
    batch = comfyui.ended(summary["batch_id"])
    assert batch["state"] == "cancelled"
    assert "refused" in batch["reason"]
    assert comfyui.history() == {}


def test_a_member_that_someone_interrupts_or_deletes_does_not_keep_the_batch_from_ending(comfyui: Inside) -> None:
    first = comfyui.queue(slow("0..4", 0.5))
    batch_id = comfyui.batch_of(first)["batch_id"]
    batch = comfyui.until(batch_id, lambda batch: batch["running"] is not None)
    comfyui.post("/queue", {"delete": [batch["prompt_ids"][4]]})
    comfyui.post("/interrupt", {"prompt_id": batch["prompt_ids"][batch["running"]]})
    batch = comfyui.ended(batch_id)
    reasons = sorted(member["reason"] for member in batch["members"] if member["reason"])
    assert (batch["state"], batch["completed_count"]) == ("complete", 3)
    assert reasons == ["interrupted", "taken out of the queue before it ran"]
    assert comfyui.file(batch["grid"]).is_file()


def test_two_batches_at_once_and_plain_prompts_between_them(comfyui: Inside) -> None:
    one = comfyui.batch_of(comfyui.queue(iterating(parameter("1..30", "1.color", "colour"), name="one")))["batch_id"]
    plain = comfyui.queue({**PLAIN, "1": {**PLAIN["1"], "inputs": {**PLAIN["1"]["inputs"], "color": 77}}})
    two = comfyui.batch_of(comfyui.queue(iterating(parameter("101..120", "1.color", "colour"), name="two")))["batch_id"]
    ended = {name: comfyui.ended(name) for name in (one, two)}
    history = comfyui.history()
    assert [batch["completed_count"] for batch in ended.values()] == [30, 20]
    assert len(history) == 51
    posted = {**PLAIN, "1": {**PLAIN["1"], "inputs": {**PLAIN["1"]["inputs"], "color": 77}}}
    assert history[plain]["prompt"][2] == posted
    assert [image["filename"] for image in history[plain]["outputs"]["2"]["images"]] == ["plain_00001_.png"]
    order = list(history)
    assert order == [*ended[one]["prompt_ids"], plain, *ended[two]["prompt_ids"]]
    for batch, first in ((ended[one], 1), (ended[two], 101)):
        for index in range(batch["total"]):
            [image] = batch["results"][str(index)]["images"]
            with Image.open(comfyui.file(image)) as picture:
                assert colour_at(picture, (5, 5)) == first + index


def test_pictures_that_nobody_saves_with_e3_are_results_too(comfyui: Inside) -> None:
    prompt = iterating(parameter("1,2", "1.color"), grid=False)
    prompt["30"] = {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}
    # ComfyUI runs what leads to an output: the iterator need not.
    first = comfyui.queue(prompt)
    batch = comfyui.ended(comfyui.batch_of(first)["batch_id"])
    assert [image["filename"] for image in _files(batch)] == ["own_00001_.png", "own_00002_.png"]


def test_a_grid_shows_the_pictures_that_it_is_connected_to(comfyui: Inside) -> None:
    inverted = {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}}
    prompt = iterating(parameter("1,2,3", "1.color"), n2=inverted)
    prompt["30"]["inputs"]["images"] = ["1", 0]
    prompt["41"] = {"class_type": "WIGridCompositor", "inputs": {"images": ["1", 0], "iterator": ["20", 0]}}
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    assert (batch["completed_count"], len(batch["grids"])) == (3, 2)
    shown = []
    for image in batch["grids"]:
        with Image.open(comfyui.file(image)) as grid:
            shown.append({colour for _, colour in grid.convert("RGB").getcolors(1 << 24) or []})
    assert [(255, 255, 254) in colours for colours in shown] == [True, False]
    assert [(0, 0, 1) in colours for colours in shown] == [False, True]


def test_a_member_whose_own_part_is_refused_fails_although_another_part_would_run(comfyui: Inside) -> None:
    prompt = iterating(parameter("32,99999,64", "1.width"))
    prompt |= {"5": {**PLAIN["1"]}, "6": {"class_type": "PreviewImage", "inputs": {"images": ["5", 0]}}}
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    assert (batch["completed_count"], batch["failed"]) == (2, 1)
    assert "EmptyImage (node 1)" in batch["members"][1]["reason"]


def test_a_member_fails_when_one_of_two_branches_does(comfyui: Inside) -> None:
    node = {"class_type": "TestFails", "inputs": {"image": ["1", 0], "number": 0, "fails_at": "2"}}
    prompt = iterating(parameter("1,2,3", "2.number", "number"), n2=node)
    prompt["31"] = {"class_type": "WISaveImage", "inputs": {**prompt["30"]["inputs"], "images": ["1", 0]}}
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    assert (batch["completed_count"], batch["failed"]) == (2, 1)
    assert "cannot be rendered" in batch["members"][1]["reason"]
    assert [len(result["images"]) for result in batch["results"].values()] == [2, 2]


def test_a_cleared_queue_stops_a_large_batch_at_once(comfyui: Inside) -> None:
    batch_id = comfyui.batch_of(comfyui.queue(slow("0..599", 0.05)))["batch_id"]
    comfyui.until(batch_id, lambda _: len(comfyui.get("/queue")["queue_pending"]) >= 95)
    comfyui.post("/queue", {"clear": True})
    batch = comfyui.ended(batch_id, 20)
    assert batch["completed_count"] + batch["failed"] == 600
    assert batch["completed_count"] < 300
    assert batch["members"][599]["reason"] == "taken out of the queue before it ran"


def test_a_prompt_id_that_was_used_before_does_not_stand_for_the_first(comfyui: Inside) -> None:
    used = comfyui.queue(PLAIN)
    deadline = time.monotonic() + 20
    while used not in comfyui.history() and time.monotonic() < deadline:
        time.sleep(0.05)
    refused = comfyui.post("/prompt", {"prompt": iterating(parameter("99999,1,2", "1.width")), "prompt_id": used})
    assert refused.status_code == 400
    batch = comfyui.ended(comfyui.batches()[0]["batch_id"])
    assert (batch["state"], batch["completed_count"]) == ("cancelled", 0)
    assert list(comfyui.history()) == [used]


def test_what_is_connected_to_a_grid_counts(comfyui: Inside) -> None:
    prompt = iterating(parameter("1,2", "1.color"))
    prompt["7"] = {"class_type": "PrimitiveString", "inputs": {"value": "E3/elsewhere"}}
    prompt["40"]["inputs"]["filename_prefix"] = ["7", 0]
    batch = comfyui.ended(comfyui.batch_of(comfyui.queue(prompt))["batch_id"])
    assert batch["grid"]["subfolder"] == f"E3/elsewhere/{batch['batch_id']}"


def test_a_restart_leaves_nothing_behind(tmp_path: Path) -> None:
    comfyui = comfyui_with_nodes(tmp_path)
    try:
        batch_id = comfyui.batch_of(comfyui.queue(slow("0..9", 1.0)))["batch_id"]
        comfyui.until(batch_id, lambda batch: batch["completed_count"] >= 1)
        comfyui.process.kill()
        comfyui.process.start()
        assert comfyui.batches() == []
        assert comfyui.get("/queue") == {"queue_running": [], "queue_pending": []}
        assert comfyui.get(f"/wi/batch/{batch_id}")["error"]
        batch = comfyui.ended(comfyui.batch_of(comfyui.queue(iterating(parameter("1,2", "1.color"))))["batch_id"])
        assert batch["completed_count"] == 2
        assert not list(tmp_path.rglob("*.part"))
    finally:
        comfyui.close()
