"""`e3 sweep`, as people and scripts type it."""

from __future__ import annotations

import hashlib
import json
import re
import time
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, colour_of, sized_picture
from support.batches import (
    KEYS,
    batch_of,
    batches,
    document,
    members,
    queued_id,
    refusal,
    sent,
    write_graph,
    write_yaml,
)
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.terminal import in_terminal
from support.workspaces import NOWHERE, call_e3, everything_in, new_workspace, run_e3
from support.yaml_workspaces import write_picture

TALKATIVE: dict[str, Any] = {
    **sized_picture(),
    "3": {"class_type": "PrimitiveBoolean", "inputs": {"value": False}},
    "4": {"class_type": "PrimitiveFloat", "inputs": {"value": 0.5}},
    "5": {"class_type": "PrimitiveString", "inputs": {"value": "a ${animal}"}},
    "6": {"class_type": "ImageScale", "inputs": {"image": ["1", 0], "upscale_method": "bilinear", "width": 8}},
}
TALKATIVE["6"]["inputs"] |= {"height": 8, "crop": "disabled"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> AgentWorkspace:
    """A workspace in front of a simulator, for sweeps that nobody works off."""
    return new_workspace(tmp_path_factory.mktemp("sweep") / "night", servers.url("sim"))


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> AgentWorkspace:
    """A workspace whose server is away."""
    return new_workspace(tmp_path_factory.mktemp("sweep") / "lonely")


def sweep(workspace: AgentWorkspace, *arguments: str) -> str:
    """Queue one; its id."""
    return queued_id(call_e3("sweep", *arguments, cwd=workspace.root))


def values(workspace: AgentWorkspace, batch_id: str, place: str) -> list[Any]:
    """What goes to a place, job after job."""
    return [json.loads(job.inputs or "")[place] for job in members(workspace, batch_id)]


# What is queued, and what is said.


def test_the_id_is_all_of_stdout_and_the_rest_is_on_stderr(night: AgentWorkspace) -> None:
    answer = call_e3("sweep", "picture", "--set", "color=1..3", cwd=night.root)
    batch_id = queued_id(answer)
    assert re.fullmatch(r"picture_[0-9a-f]{8}", batch_id)
    assert answer.stderr == f"3 jobs queued. Follow: e3 batch watch {batch_id}\n"
    jobs = members(night, batch_id)
    assert [job.status for job in jobs] == [JobStatus.PENDING] * 3
    assert [job.batch_index for job in jobs] == [0, 1, 2]


def test_as_json_it_is_the_batch(night: AgentWorkspace) -> None:
    found = document(call_e3("sweep", "picture", "--set", "color=1,2", "--name", "knights", "--json", cwd=night.root))
    assert list(found) == KEYS
    assert re.fullmatch(r"knights_[0-9a-f]{8}", found["id"])
    wanted = {"name": "knights", "kind": "sweep", "status": "active", "total": 2, "pending": 2, "generation": 1}
    assert {key: found[key] for key in wanted} == wanted
    assert (found["completed_at"], found["grid"]) == (None, None)


def test_names_are_names_and_ids_are_ones_own(night: AgentWorkspace) -> None:
    first, second = (sweep(night, "picture", "--set", "color=1", "--name", "Füchse & Ritter") for _ in range(2))
    assert first != second
    assert re.fullmatch(r"Fuchse_Ritter_[0-9a-f]{8}", first)
    assert {batch_of(night, each).name for each in (first, second)} == {"Füchse & Ritter"}


@pytest.mark.parametrize("name", ["../../etc", "/etc/passwd", "..", "日本", "n" * 1000, "a\x1b[2J\nb", "-x"])
def test_a_hostile_name_makes_a_harmless_id(night: AgentWorkspace, name: str) -> None:
    batch_id = sweep(night, "picture", "--set", "color=1", f"--name={name}")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}_[0-9a-f]{8}", batch_id)
    (job,) = members(night, batch_id)
    assert (job.file_path or "").startswith(f"jobs/finished/image/{batch_id}/0001")


def test_priority_and_kind_are_those_that_are_said(night: AgentWorkspace) -> None:
    (job,) = members(night, sweep(night, "picture", "--set", "color=1", "--priority", "-3", "--type", "t2v"))
    assert (job.priority, job.job_type) == (-3, "T2V")
    assert (job.file_path or "").startswith("jobs/finished/video/picture_")


def test_a_template_may_be_anywhere(night: AgentWorkspace, tmp_path: Path) -> None:
    template = tmp_path / "my own.json"
    template.write_text(json.dumps({"prompt": sized_picture(), "client_id": "x"}), encoding="utf-8")
    batch_id = sweep(night, str(template), "--set", "color=1,2")
    assert re.fullmatch(r"my_own_[0-9a-f]{8}", batch_id)
    assert values(night, batch_id, "1.color") == [1, 2]


# Types, as the server and the workflow say.


def test_what_reaches_the_server_has_the_types_of_the_server(servers: Servers, tmp_path: Path) -> None:
    """Whole numbers, exact decimals, texts, truths and choices, in the prompts themselves; and no prompt has anything
    of another one or has changed the template."""
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    template = write_graph(workspace, "talkative", TALKATIVE)
    before = template.read_bytes()
    axes = {
        "1.color, 2.filename_prefix": [1, 2],
        "4.value": [Decimal("0.1"), Decimal("0.2"), Decimal("0.3")],
        "3.value": [True, False],
        "animal": ["fox, red", "007"],
        "6.upscale_method": ["area", "lanczos"],
    }
    written = ("1..2", "0.1..0.3:0.1", "true,false", "fox, red | 007", "area,lanczos")
    flags = [part for name, text in zip(axes, written, strict=True) for part in ("--set", f"{name}={text}")]
    answer = run_e3("sweep", "talkative", *flags, "--wait", "--json", cwd=workspace.root)
    found = document(answer)
    assert (found["status"], found["done"]) == ("complete", 48)
    assert template.read_bytes() == before
    jobs = members(workspace, found["id"])
    kept = in_the_shell(workspace.database, "SELECT hash, graph FROM templates")
    assert [row["hash"] for row in kept] == [jobs[0].template_hash]
    assert hashlib.sha256(kept[0]["graph"].encode()).hexdigest() == jobs[0].template_hash
    assert json.loads(kept[0]["graph"]) == TALKATIVE
    for job, combination in zip(jobs, product(*axes.values()), strict=True):
        colour, number, truth, animal, method = combination
        wanted = json.loads(json.dumps(TALKATIVE), parse_float=Decimal)
        wanted["1"]["inputs"]["color"] = colour
        wanted["4"]["inputs"]["value"] = number
        wanted["3"]["inputs"]["value"] = truth
        wanted["5"]["inputs"]["value"] = f"a {animal}"
        wanted["6"]["inputs"]["upscale_method"] = method
        graph = sent(job)
        assert graph["2"]["inputs"].pop("filename_prefix") != str(colour)  # the agent's own, so that it is found again
        del wanted["2"]["inputs"]["filename_prefix"]
        assert graph == wanted
        assert type(graph["3"]["inputs"]["value"]) is bool
        assert colour_of(workspace.root / job.outputs[0]) == colour


def test_a_value_that_the_server_does_not_offer_is_refused_with_the_nearest(night: AgentWorkspace) -> None:
    before = len(batches(night))
    answer = call_e3("sweep", "wf_realistic_portrait", "--set", "5.sampler_name=euler,dpmp_2m", cwd=night.root)
    words = refusal(answer, 2)
    assert "'dpmp_2m' is not one of the server's choices; did you mean dpmpp_2m?" in words
    assert len(batches(night)) == before


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ("color=16777216", "1.color: 16777216 is above 16777215, the most that EmptyImage takes"),
        ("width=0", "1.width: 0 is below 1, the least that EmptyImage takes"),
        ("width=7.5", "1.width: 7.5 is not a whole number"),
        ("width=wide", "1.width: 'wide' is not a whole number"),
    ],
)
def test_a_value_that_the_node_does_not_take_is_refused(night: AgentWorkspace, axis: str, words: str) -> None:
    assert words in refusal(call_e3("sweep", "picture", "--set", axis, cwd=night.root), 2)


def test_without_a_server_the_types_are_those_of_the_workflow_and_a_line_says_so(lonely: AgentWorkspace) -> None:
    axes = ("--set", "color=1,99999999", "--set", "5.sampler_name=no such thing")
    answer = call_e3("sweep", "picture", *axes[:2], cwd=lonely.root)
    batch_id = queued_id(answer)
    assert answer.stderr.splitlines()[0] == (
        f"e3: {NOWHERE} does not answer: values are checked against the workflow only"
    )
    assert values(lonely, batch_id, "1.color") == [1, 99999999]
    refused = call_e3("sweep", "picture", "--set", "color=red", cwd=lonely.root)
    assert refused.returncode == 2
    assert "1.color: 'red' is not a number" in refused.stderr


def test_a_server_that_knows_none_of_the_nodes_is_not_said_to_be_silent(night: AgentWorkspace) -> None:
    write_graph(night, "strange", {"1": {"class_type": "NobodyKnowsThis", "inputs": {"seed": 1}}})
    answer = call_e3("sweep", "strange", "--set", "seed=1,2", "--dry-run", cwd=night.root)
    assert answer.returncode == 0
    assert "does not answer" not in answer.stderr


# Places.


def test_an_axis_binds_several_places_and_names_of_the_recipe(night: AgentWorkspace) -> None:
    portrait = ("wf_realistic_portrait", "--input", "prompt=a knight, red")
    batch_id = sweep(night, *portrait, "--set", "seed=1..2", "--set", "4.width,height=256,512")
    assert values(night, batch_id, "5.seed") == [1, 1, 2, 2]
    assert values(night, batch_id, "4.width") == values(night, batch_id, "4.height") == [256, 512, 256, 512]
    assert set(values(night, batch_id, "2.text")) == {"a knight, red"}
    assert set(values(night, batch_id, "3.text")) == {
        "blurry, low quality, deformed face, extra fingers, text, watermark"
    }
    assert set(values(night, batch_id, "1.ckpt_name")) == {"auto"}
    assert [json.loads(job.metadata or "")["combination"] for job in members(night, batch_id)][:2] == [
        {"seed": 1, "4.width,height": 256},
        {"seed": 1, "4.width,height": 512},
    ]


def test_local_pictures_are_an_axis(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    write_graph(workspace, "copy", graph)
    write_picture(workspace.root / "pictures" / "red.png", (255, 0, 0))
    write_picture(workspace.root / "pictures" / "blue.png", (0, 0, 255))
    pictures = "pictures/red.png,pictures/blue.png"
    found = document(run_e3("sweep", "copy", "--set", f"image={pictures}", "--wait", "--json", cwd=workspace.root))
    red, blue = members(workspace, found["id"])
    assert [colour_of(workspace.root / job.outputs[0]) for job in (red, blue)] == [0xFF0000, 0x0000FF]
    assert red.job_type == "I2I"


@pytest.mark.parametrize(
    "order",
    [
        ("gone.png", "castle.png"),
        pytest.param(("castle.png", "gone.png")),
    ],
)
@pytest.mark.parametrize("how", [(), ("--dry-run",)], ids=["queue", "dry run"])
def test_a_picture_that_is_not_there_is_an_error_before_anything_is_queued(
    night: AgentWorkspace, order: tuple[str, str], how: tuple[str, ...]
) -> None:
    before = len(batches(night))
    axis = "image=" + ",".join(f"pictures/{name}" for name in order)
    answer = call_e3("sweep", "wf_image_to_image", "--set", axis, "--input", "prompt=x", *how, cwd=night.root)
    assert "there is no file 'pictures/gone.png'" in refusal(answer, 2)
    assert len(batches(night)) == before


def test_a_picture_that_is_not_there_can_be_left_out(night: AgentWorkspace) -> None:
    axis = "image=pictures/gone.png,pictures/castle.png"
    answer = call_e3("sweep", "wf_image_to_image", "--set", axis, "--input", "prompt=x", "--skip-bad", cwd=night.root)
    assert values(night, queued_id(answer), "4.image") == ["pictures/castle.png"]


def test_a_required_input_that_the_template_leaves_open_has_to_be_said(night: AgentWorkspace) -> None:
    graph = sized_picture() | {"5": {"class_type": "PrimitiveString", "inputs": {"value": ""}}}
    write_graph(night, "open", graph)
    recipes = night.root / "config" / "workflows.yaml"
    before = recipes.read_text(encoding="utf-8")
    entry = 'open: {template_path: workflows/open.json, required_inputs: [prompt], inputs: {prompt: "5.value"}}\n'
    recipes.write_text(before + entry, encoding="utf-8")
    try:
        answer = call_e3("sweep", "open", "--set", "color=1,2", cwd=night.root)
        assert refusal(answer, 2) == "prompt: is missing: open needs prompt"
        assert len(members(night, sweep(night, "open", "--set", "color=1,2", "--input", "prompt=fox"))) == 2
        assert len(members(night, sweep(night, "open", "--set", "prompt=fox | cat"))) == 2
    finally:
        recipes.write_text(before, encoding="utf-8")


# Order.


def test_matrix_goes_through_everything_the_last_axis_fastest(night: AgentWorkspace) -> None:
    batch_id = sweep(night, "picture", "--set", "color=1,2", "--set", "width=16,32", "--mode", "matrix")
    assert values(night, batch_id, "1.color") == [1, 1, 2, 2]
    assert values(night, batch_id, "1.width") == [16, 32, 16, 32]


def test_linear_goes_in_step(night: AgentWorkspace) -> None:
    axes = ("--set", "color=1..3", "--set", "width=16,32,48", "--set", "height=8", "--mode", "linear")
    batch_id = sweep(night, "picture", *axes)
    assert values(night, batch_id, "1.color") == [1, 2, 3]
    assert values(night, batch_id, "1.width") == [16, 32, 48]
    assert values(night, batch_id, "1.height") == [8, 8, 8]


def test_seeds_are_drawn_are_different_and_are_recorded(night: AgentWorkspace) -> None:
    batch_id = sweep(night, "wf_realistic_portrait", "--set", "seed=random:50", "--input", "prompt=x")
    seeds = values(night, batch_id, "5.seed")
    assert len(set(seeds)) == 50
    assert batch_of(night, batch_id).metadata["axes"][0]["values"] == seeds


# Looking before it is queued.


def test_a_dry_run_shows_the_table_and_queues_nothing(night: AgentWorkspace) -> None:
    before = everything_in(night.root)
    axes = ("--set", "color=1,2", "--set", "width=16,32", "--name", "x")
    answer = call_e3("sweep", "picture", *axes, "--dry-run", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == [
        "1  color=1  width=16",
        "2  color=1  width=32",
        "3  color=2  width=16",
        "4  color=2  width=32",
        "4 combinations (2 x 2). Nothing was queued.",
        "How long it takes is not known: this workflow has not been rendered yet.",
    ]
    assert everything_in(night.root) == before


def test_a_dry_run_as_json(night: AgentWorkspace) -> None:
    axes = ("--set", "1.color,1.width=16,32", "--set", "height=8,9", "--mode", "linear")
    found = document(call_e3("sweep", "picture", *axes, "--dry-run", "--json", cwd=night.root))
    assert found == {
        "total": 2,
        "mode": "linear",
        "axes": [
            {"name": "1.color,1.width", "places": ["1.color", "1.width"], "values": [16, 32]},
            {"name": "height", "places": ["1.height"], "values": [8, 9]},
        ],
        "combinations": [{"1.color,1.width": 16, "height": 8}, {"1.color,1.width": 32, "height": 9}],
        "estimated_seconds": None,
    }


def test_a_dry_run_of_many_shows_the_first_and_says_how_many(night: AgentWorkspace) -> None:
    answer = call_e3(
        "sweep", "picture", "--set", "color=1..1000", "--set", "width=1..1000", "--dry-run", cwd=night.root
    )
    lines = answer.stdout.splitlines()
    assert len(lines) < 30
    assert "… and 999,980 more" in lines
    assert "1,000,000 combinations (1000 x 1000). Nothing was queued." in lines
    assert answer.stderr == "e3: no grid is made of more than 10,000 results\n"


def test_the_estimate_is_that_of_past_runs(night: AgentWorkspace) -> None:
    own = sized_picture(40)
    write_graph(night, "timed", own)
    first = sweep(night, "timed", "--set", "color=1..3")
    done = "status = 'done', end_time = '2026-01-01 00:00:00.000'"
    for index, seconds in enumerate((1, 60, 4000)):
        in_the_shell(
            night.database,
            f"UPDATE jobs SET {done}, duration = {seconds} WHERE batch_id = '{first}' AND batch_index = {index}",
        )
    axes = ("--set", "color=1..10")
    answer = call_e3("sweep", "timed", *axes, "--dry-run", cwd=night.root)
    assert answer.stdout.splitlines()[-1] == "About 10 min, from 3 past results of it (60.0 s each)."
    found = document(call_e3("sweep", "timed", *axes, "--dry-run", "--json", cwd=night.root))
    assert found["estimated_seconds"] == 600.0


def test_a_dry_run_writes_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "picture.json").write_text(json.dumps(sized_picture()), encoding="utf-8")
    before = everything_in(tmp_path)
    assert call_e3("sweep", "picture.json", "--set", "color=1", "--dry-run", cwd=tmp_path).returncode == 0
    assert everything_in(tmp_path) == before


def table(workspace: AgentWorkspace, value: str) -> list[str]:
    """The lines of a dry run on a terminal, with one value that may be strange."""
    write_graph(
        workspace, "titled", sized_picture() | {"5": {"class_type": "PrimitiveString", "inputs": {"value": "x"}}}
    )
    axes = ("--set", f"5.value=fox | {value}", "--set", "color=1")
    with in_terminal("sweep", "titled", *axes, "--dry-run", cwd=workspace.root, columns=80) as terminal:
        assert terminal.finish() == 0
    assert terminal.screen.strange == []
    return terminal.screen.text.splitlines()


def test_on_a_terminal_it_is_a_table_and_hostile_values_stay_in_their_cells(night: AgentWorkspace) -> None:
    lines = table(night, "[red]a[/red]\x1b[2J")
    assert re.match(r"# +5\.value +color", lines[0])
    assert re.match(r"1 +fox +1", lines[1])
    assert re.match(r"2 +\[red\]a\[/red\].* 1$", lines[2])
    assert len(lines) == 5, lines


def test_a_long_value_leaves_room_for_the_other_columns(night: AgentWorkspace) -> None:
    lines = table(night, "y" * 300)
    assert re.match(r"# +5\.value +color", lines[0])
    assert re.match(r"2 +y+… +1$", lines[2])


# A file.


def test_a_file_says_it_all(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "colours.txt").write_text("\ufeff5\r\n\n6\r\n7\n", encoding="utf-8")
    path = write_yaml(
        tmp_path / "sweep.yaml",
        {
            "name": "from a file",
            "workflow": "picture",
            "mode": "linear",
            "set": {"color": "@colours.txt", "1.width,1.height": [16, 32, 48]},
            "inputs": {"batch_size": 1},
            "job_type": "I2I",
            "priority": 7,
            "grid": {"x": "color"},
        },
    )
    batch_id = sweep(night, str(path))
    assert re.fullmatch(r"from_a_file_[0-9a-f]{8}", batch_id)
    assert values(night, batch_id, "1.color") == [5, 6, 7]
    assert values(night, batch_id, "1.height") == values(night, batch_id, "1.width") == [16, 32, 48]
    assert {(job.priority, job.job_type) for job in members(night, batch_id)} == {(7, "I2I")}
    metadata = batch_of(night, batch_id).metadata
    assert (metadata["mode"], metadata["inputs"], metadata["grid"]) == ("linear", {"batch_size": 1}, {"x": "color"})


def test_the_file_of_the_guide_works(night: AgentWorkspace, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "batches.md").read_text(encoding="utf-8")
    path = write_yaml(tmp_path / "sweep.yaml", guide.partition("```yaml\n")[2].partition("```")[0])
    batch_id = sweep(night, str(path))
    assert re.fullmatch(r"knights_[0-9a-f]{8}", batch_id)
    assert list(zip(values(night, batch_id, "5.seed"), values(night, batch_id, "5.cfg"), strict=True)) == list(
        product([1, 2, 3, 4], [5, 7.5, 10])
    )


def test_what_the_command_line_says_goes_over_the_file(night: AgentWorkspace, tmp_path: Path) -> None:
    said = {"name": "one", "workflow": "picture", "mode": "linear", "set": {"color": "1,2", "width": "16,32"}}
    path = write_yaml(tmp_path / "sweep.yml", said | {"inputs": {"height": 8}, "priority": 7})
    flags = ("--name", "two", "--mode", "matrix", "--set", "color=5,6,7", "--input", "height=9", "--priority", "8")
    batch_id = sweep(night, str(path), *flags)
    assert batch_id.startswith("two_")
    assert values(night, batch_id, "1.color") == [5, 5, 6, 6, 7, 7]
    assert set(values(night, batch_id, "1.height")) == {9}
    assert {job.priority for job in members(night, batch_id)} == {8}


def test_a_workflow_beside_the_file_is_found(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(sized_picture()), encoding="utf-8")
    path = write_yaml(tmp_path / "sweep.yaml", {"workflow": "own.json", "set": {"1.color": 5}})
    assert values(night, sweep(night, str(path)), "1.color") == [5]


def test_plain_values_of_yaml_are_values(night: AgentWorkspace, tmp_path: Path) -> None:
    write_graph(night, "talkative", TALKATIVE)
    said = {"3.value": [True, False], "4.value": [0.1, 2], "animal": ["1..3", "@x", "a | b"], "1.color": 7}
    batch_id = sweep(night, str(write_yaml(tmp_path / "s.yaml", {"workflow": "talkative", "set": said})))
    combinations = [tuple(json.loads(job.metadata or "")["combination"].values()) for job in members(night, batch_id)]
    assert combinations == list(product([True, False], [0.1, 2], ["1..3", "@x", "a | b"], [7]))


def test_lists_are_looked_for_beside_the_file_also_from_another_folder(tmp_path: Path, night: AgentWorkspace) -> None:
    folder = tmp_path / "sweeps"
    path = write_yaml(folder / "sweep.yaml", {"workflow": "picture", "set": {"color": "@list.txt"}})
    (folder / "list.txt").write_text("5\n6\n", encoding="utf-8")
    (tmp_path / "list.txt").write_text("1\n", encoding="utf-8")
    batch_id = queued_id(call_e3("sweep", "sweeps/sweep.yaml", "-C", str(night.root), cwd=tmp_path))
    assert values(night, batch_id, "1.color") == [5, 6]
    assert path.exists()


def test_lists_are_looked_for_beside_the_file_also_when_the_file_is_found_in_the_workspace(
    tmp_path: Path, servers: Servers
) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    write_yaml(workspace.root / "sweeps/sweep.yaml", {"workflow": "picture", "set": {"color": "@list.txt"}})
    (workspace.root / "sweeps/list.txt").write_text("5\n6\n", encoding="utf-8")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps/list.txt").write_text("1\n", encoding="utf-8")
    batch_id = queued_id(call_e3("sweep", "sweeps/sweep.yaml", "-C", "night", cwd=tmp_path))
    assert values(workspace, batch_id, "1.color") == [5, 6]


SET = 'set: {"1.color": 1}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ": it is empty: write workflow: and set:"),
        ("- a\n", ": it is not a mapping: write lines such as workflow: and set:"),
        (f"workflow: picture\n{SET}colour: red\n", ":3: colour: there is no such key; there are"),
        (f"workflow: picture\n{SET}nmae: red\n", ":3: nmae: there is no such key; did you mean name?"),
        (f"workflow: picture\n{SET}grid: {{z: a}}\n", ":3: grid.z: there is no such key; there are pages, x, y"),
        (SET, ": workflow: is missing: write a workflow of this workspace"),
        ("workflow: picture\n", ": set: is missing: write a mapping of axes to values"),
        ("workflow: picture\nset: {}\n", ":2: set: {} cannot be used"),
        ("workflow: picture\nset: [1]\n", ":2: set: [1] cannot be used"),
        (f"workflow: 7\n{SET}", ":1: workflow: 7 cannot be used"),
        (f"workflow: picture\nmode: cube\n{SET}", ":2: mode: 'cube' cannot be used: write matrix or linear"),
        (f"workflow: picture\nname: 7\n{SET}", ":2: name: 7 cannot be used"),
        (f"workflow: picture\npriority: high\n{SET}", ":2: priority: 'high' cannot be used"),
        (f"workflow: picture\ngrid: x\n{SET}", ":2: grid: 'x' cannot be used"),
        (f"workflow: picture\ninputs: [1]\n{SET}", ":2: inputs: [1] cannot be used"),
        ('workflow: picture\nset:\n  "a": 1\n  "a": 2\n', ":4: the key 'a' is there twice"),
        ("workflow: [\n", ":2: it is not YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_its_line(
    night: AgentWorkspace, tmp_path: Path, text: str, words: str
) -> None:
    path = write_yaml(tmp_path / "sweep.yaml", text)
    found = refusal(call_e3("sweep", str(path), cwd=night.root), 2)
    assert found.startswith(f"{path}{words}")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('workflow: picture\nset:\n  "1.color": 1\n  "1.width": 1..x\n', 4, "'1..x' is no range"),
        ('workflow: picture\nset:\n  "1.colour": 1\n', 3, "did you mean color?"),
        ('workflow: picture\nset:\n  "1.color": 99999999\n', 3, "the most that EmptyImage takes"),
        ('workflow: picture\nset:\n  "1.color": "@gone.txt"\n', 3, "cannot be read"),
        ('workflow: nope\nset:\n  "1.color": 1\n', 1, "'nope' is not in workflows.yaml"),
        ('workflow: picture\nset:\n  "1.color": 1\ngrid:\n  x: seed\n', 5, "'seed' is no axis"),
        ('workflow: picture\nset:\n  "1.color": 1\ninputs:\n  hat: 1\n', 5, "'hat' has no place"),
    ],
)
def test_what_is_wrong_with_the_sweep_of_a_file_is_said_with_its_line(
    night: AgentWorkspace, tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = write_yaml(tmp_path / "sweep.yaml", text)
    found = refusal(call_e3("sweep", str(path), cwd=night.root), 2)
    assert words in found
    assert found.startswith(f"{path}:{line}: ")


# What is refused.


REFUSED = [
    (["picture"], "there is nothing to vary: write --set 'NODE.input=VALUES'"),
    (["picture", "--set", "color"], "--set 'color': write NODE.input=VALUES, such as 3.seed=1..4"),
    (["picture", "--set", "=1"], "--set '=1': write NODE.input=VALUES"),
    (["picture", "--set", "color="], "there are no values: write some"),
    (["picture", "--set", "color=1", "--set", " color =2"], "--set color is there twice"),
    (["picture", "--set", "color=1", "--set", "1.color=2"], "color and 1.color both go to 1.color"),
    (["picture", "--set", "colour=1"], "'colour' has no place in the workflow; did you mean color?"),
    (["picture", "--set", "7.color=1"], "'7.color' has no place in the workflow"),
    (["picture", "--set", "1.colour=1"], "node 1 has no input 'colour'; did you mean color?"),
    (["picture", "--set", "color=1..3", "--set", "width=1,2", "--mode", "linear"], "color has 3 values and width 2"),
    (["picture", "--set", "color=@gone.txt"], "'@gone.txt' cannot be read: No such file or directory"),
    (["picture", "--set", "color=1..2000", "--set", "width=1..1000"], "make 2,000,000 combinations; 1,000,000 is"),
    (["picture", "--set", "color=1..2000000"], "has 2,000,000 values, and 1,000,000 is the most"),
    (["picture", "--set", "color=random:0"], "does not say how many seeds"),
    (["picture", "--set", "color=1", "--input", "hat=1"], "hat: 'hat' has no place in the workflow"),
    (["picture", "--set", "color=1", "--input", "width=x"], "1.width (EmptyImage) takes a whole number"),
    (["picture", "--set", "color=1", "--input", "width=1", "--input", "width=2"], "--input width is there twice"),
    (["picture", "--set", "color=1", "--x", "seed"], "'seed' is no axis of this sweep; there are color"),
    (["picture", "--set", "color=1", "--x", "color", "--y", "color"], "x, y and pages need different axes"),
    (["picture", "--set", "color=1", "--type", "film"], "job_type 'FILM' does not exist"),
    (["nope", "--set", "color=1"], "'nope' is not in workflows.yaml; "),
    (["nope.json", "--set", "color=1"], "nope.json: name a template, or a workflow of this workspace"),
    (["gone.yaml"], "gone.yaml: it cannot be read: No such file or directory"),
    (["../../etc/passwd", "--set", "color=1"], "'../../etc/passwd' is not in workflows.yaml"),
    (["picture", "--set", "color=1", "--mode", "cube"], "'cube' is not one of 'matrix', 'linear'"),
    (["picture", "--set", "color=1", "--priority", "high"], "Invalid value for '--priority': "),
]


def test_what_cannot_be_is_one_line_and_nothing_is_queued(night: AgentWorkspace) -> None:
    before = len(batches(night)) if night.database.exists() else 0
    for arguments, words in REFUSED:
        assert words in refusal(call_e3("sweep", *arguments, cwd=night.root), 2), arguments
        assert before == (len(batches(night)) if night.database.exists() else 0), arguments


def test_a_list_in_the_wrong_encoding_is_refused(night: AgentWorkspace, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes("füchse\n".encode("latin-1"))
    axis = f"2.filename_prefix=@{tmp_path / 'list.txt'}"
    words = refusal(call_e3("sweep", "picture", "--set", axis, cwd=night.root), 2)
    assert words.endswith("is not UTF-8 text: save it as UTF-8")


# Leaving out what is bad.


def test_what_is_bad_is_left_out_with_a_warning_each(night: AgentWorkspace) -> None:
    axes = ("--set", "color=1,red,99999999,2", "--set", "hat=1,2", "--set", "width=16")
    answer = call_e3("sweep", "picture", *axes, "--skip-bad", cwd=night.root)
    assert values(night, queued_id(answer), "1.color") == [1, 2]
    warnings = [line for line in answer.stderr.splitlines() if line.startswith("e3: ")]
    assert len(warnings) == 3
    for warning, word in zip(warnings, ("'hat'", "'red'", "99999999"), strict=True):
        assert word in warning
        assert warning.endswith("left out")


def test_when_nothing_is_left_it_says_what_was_bad(night: AgentWorkspace) -> None:
    answer = call_e3("sweep", "picture", "--set", "color=red", "--skip-bad", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "'red'" in answer.stderr


# Waiting for it.


def test_waiting_does_the_work_tells_it_and_names_the_grid(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    hostile = "2.filename_prefix=../../up | a/b | 日本 | .. | " + "z" * 1000
    answer = run_e3("sweep", "picture", "--set", "color=1,2", "--set", hostile, "--wait", cwd=workspace.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    first, *lines = answer.stdout.splitlines()
    assert re.fullmatch(r"picture_[0-9a-f]{8}", first)
    assert lines[0] == f"{first}: 0 of 10 done"
    assert sum(f"● Done  {first}_00" in line for line in lines) == 10
    folder = workspace.root / "jobs/finished/image" / first
    assert lines[-2:] == [f"{first}: 10 of 10 done, complete", f"Grid  {folder / 'grid.png'}"]
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 12
    assert names[10:] == ["grid.html", "grid.png"]
    assert all(re.fullmatch(r"00\d\d_color-[12]_filename_prefix[A-Za-z0-9._-]*\.png", name) for name in names[:10])
    assert {path.name for path in (workspace.root / "jobs/finished/image").iterdir()} == {first}
    for number, name in enumerate(names[:10]):
        assert colour_of(folder / name) == 1 + number // 5
    with Image.open(folder / names[7]) as picture:
        assert json.loads(picture.info["prompt"])["1"]["inputs"]["color"] == 2


def test_waiting_ends_with_1_if_some_failed(servers: Servers, tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    graph = sized_picture()
    graph["2"]["inputs"]["more"] = ["1", 0]  # which the node does not survive
    write_graph(workspace, "broken", graph)
    flags = ("--set", "color=1,2", "--wait", "--json")
    answer = run_e3("sweep", "broken", *flags, cwd=workspace.root, E3_RETRY_LIMIT="0")
    found = document(answer, 1)
    assert (found["status"], found["done"], found["failed"]) == ("complete", 0, 2)
    assert list(found) == KEYS
    assert answer.stderr.count("△ Needs attention") == 2


@pytest.mark.slow
def test_waiting_for_no_server_can_be_interrupted(tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "night")
    with in_terminal("sweep", "picture", "--set", "color=1,2", "--wait", cwd=workspace.root) as terminal:
        terminal.wait_for("0 of 2 done")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    (batch,) = batches(workspace)
    assert (batch.status.value, batch.pending) == ("active", 2)


# Queueing many.


@pytest.mark.slow
def test_ten_thousand_are_queued_within_seconds(lonely: AgentWorkspace) -> None:
    began = time.monotonic()
    batch_id = sweep(lonely, "picture", "--set", "color=1..100", "--set", "width=1..100")
    assert batch_of(lonely, batch_id).pending == 10_000
    assert time.monotonic() - began < 30
