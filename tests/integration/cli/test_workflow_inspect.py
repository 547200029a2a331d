"""`e3 workflow inspect` shows where values can go, for people and for scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.agents import AgentWorkspace
from support.shared_servers import Servers
from support.terminal import in_terminal
from support.workspaces import call_e3, new_workspace, run_e3

TEMPLATE = {
    "98:6": {
        "class_type": "CLIPTextEncode",
        "inputs": {"text": "a ${animal} in ${place}", "clip": ["4", 1]},
        "_meta": {"title": "Positive Prompt"},
    },
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "x.safetensors"}},
    "5": {"class_type": "KSampler", "inputs": {"seed": 7, "model": ["4", 0]}, "_meta": {"title": "One"}},
    "6": {"class_type": "KSampler", "inputs": {"seed": 8, "model": ["4", 0]}, "_meta": {"title": "Two"}},
}


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "night")


def inspect(folder: Path, *arguments: str) -> dict[str, Any]:
    answer = call_e3("workflow", "inspect", "--json", *arguments, cwd=folder)
    assert (answer.returncode, answer.stderr) == (0, "")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def names_of(document: dict[str, Any]) -> dict[str, list[str]]:
    return {place["place"]: place["names"] for place in document["places"]}


def test_an_id_is_shown_with_the_names_that_workflows_yaml_gives(night: AgentWorkspace) -> None:
    answer = run_e3("workflow", "inspect", "wf_realistic_portrait", cwd=night.root)
    lines = answer.stdout.splitlines()
    assert (answer.returncode, answer.stderr) == (0, "")
    cells = [re.split("  +", line) for line in lines]
    assert cells[0] == ["Names", "Place", "Now", "Node"]
    assert cells[1][:2] == ["prompt", "2.text"], "what people think of comes first"
    assert ["seed", "5.seed", "123456", "Sampler"] in cells
    assert ["checkpoint, ckpt_name", "1.ckpt_name", "'auto'", "Checkpoint"] in cells
    assert len({line.index(cell[1]) for line, cell in zip(lines[:10], cells, strict=False)}) == 1, "aligned"
    assert "an entry for" not in answer.stdout, "it has one"
    assert "required inputs: prompt, seed, steps" in lines
    assert "A realistic portrait from a text." in lines
    assert "\x1b" not in answer.stdout
    assert not any("5.model" in line for line in lines), "a link takes no value"


def test_as_json_it_is_one_document(night: AgentWorkspace) -> None:
    found = inspect(night.root, "wf_realistic_portrait")
    keys = {"workflow_id", "template_path", "required_inputs", "defaults", "placeholders", "inputs", "places"}
    assert found.keys() == keys
    assert found["required_inputs"] == ["prompt", "seed", "steps"]
    assert found["defaults"]["checkpoint"] == "auto"
    [seed] = [place for place in found["places"] if place["place"] == "5.seed"]
    assert (seed["value"], seed["names"]) == (123456, ["seed"])
    assert names_of(found)["3.text"] == ["negative_prompt"]


@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "as-a-prompt-body"])
def test_a_file_needs_no_workspace(tmp_path: Path, wrap: bool) -> None:
    document = {"prompt": TEMPLATE, "client_id": "x"} if wrap else TEMPLATE
    (tmp_path / "mine.json").write_text(json.dumps(document), encoding="utf-8")
    found = inspect(tmp_path, "mine.json")
    assert found["workflow_id"] == "mine"
    assert found["placeholders"] == ["animal", "place"]
    names = names_of(found)
    assert set(names["98:6.text"]) == {"animal", "place", "text", "positive_prompt"}
    assert names["5.seed"] == ["one"], "seed may mean two places, a title only one"
    assert names["6.seed"] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    told = call_e3("workflow", "inspect", "mine.json", cwd=tmp_path)
    assert "placeholders: ${animal}, ${place}" in told.stdout
    assert "required inputs: none" in told.stdout


def test_every_name_that_is_shown_can_be_written_into_a_job_file_and_leads_to_its_place(night: AgentWorkspace) -> None:
    found = inspect(night.root, "wf_text_to_video")
    needed = {"prompt": "x", "seed": 1}
    assert set(needed) == set(found["required_inputs"])
    shown = [(place, name) for place in found["places"] for name in place["names"]]
    assert len(shown) > 10
    for number, (place, name) in enumerate(shown):
        job = {"job_type": "T2V", "workflow_id": "wf_text_to_video", "inputs": {name: place["value"], **needed}}
        (night.root / f"job_{number}.yaml").write_text(json.dumps(job), encoding="utf-8")
    files = [f"job_{number}.yaml" for number in range(len(shown))]
    answer = call_e3("add", *files, "--json", cwd=night.root)
    assert (answer.returncode, answer.stderr) == (0, "")
    for row, (place, name) in zip(json.loads(answer.stdout), shown, strict=True):
        assert row["inputs"][place["place"]] == needed.get(name, place["value"])


def test_a_file_without_an_entry_gets_one_to_paste(night: AgentWorkspace) -> None:
    (night.root / "workflows/mine.json").write_bytes((night.root / "workflows/wf_image_to_image.json").read_bytes())
    answer = call_e3("workflow", "inspect", "mine", cwd=night.root)
    entry = answer.stdout.partition("an entry for config/workflows.yaml:\n\n")[2]
    assert "  template_path: workflows/mine.json\n" in entry
    with (night.root / "config/workflows.yaml").open("a", encoding="utf-8") as file:
        file.write(f"\n{entry}")
    found = inspect(night.root, "mine")
    assert found["required_inputs"] == ["prompt"]
    assert names_of(found)["7.sampler_name"][0] == "sampler"


def test_a_server_that_answers_says_what_there_is_to_choose_from(night: AgentWorkspace, servers: Servers) -> None:
    where = {"E3_COMFYUI__API_BASE_URL": servers.url("sim")}
    answer = call_e3("workflow", "inspect", "wf_realistic_portrait", cwd=night.root, **where)
    (line,) = [line for line in answer.stdout.splitlines() if line.startswith("scheduler ")]
    assert "simple, sgm_uniform, karras, exponential and" in line


def test_a_workflow_as_the_editor_saves_it_says_how_to_export_it(tmp_path: Path) -> None:
    editor = {"nodes": [{"id": 1, "type": "KSampler"}], "links": [], "version": 0.4}
    (tmp_path / "mine.json").write_text(json.dumps(editor), encoding="utf-8")
    answer = call_e3("workflow", "inspect", "mine.json", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert "Workflow → Export (API)" in line
    assert "and none answers at http://" in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", "is not a workflow in API format"),
        (b"{}", "is not a workflow in API format"),
        (b'{"1": {"class_type": "A", "inputs": {}}, "extra": 3}', "'extra' is not a node"),
        (b"[" * 100_000, "cannot be read"),
    ],
    ids=["empty", "cut", "no-text", "list", "nothing", "not-a-node", "deep"],
)
def test_a_file_that_is_no_workflow_is_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "mine.json").write_bytes(content)
    answer = call_e3("workflow", "inspect", "mine.json", cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert says in line


def test_an_unknown_id_suggests_what_is_near(night: AgentWorkspace) -> None:
    near = call_e3("workflow", "inspect", "wf_realistic_portait", cwd=night.root)
    assert (near.returncode, near.stdout) == (1, "")
    assert near.stderr.endswith("did you mean wf_realistic_portrait?\n")
    far = call_e3("workflow", "inspect", "zzz", cwd=night.root)
    assert "there are picture, wf_image_to_image, wf_realistic_portrait, wf_text_to_video" in far.stderr


def test_a_file_that_is_not_there_is_said_to_be_none(night: AgentWorkspace) -> None:
    answer = call_e3("workflow", "inspect", "workflows/gone.json", cwd=night.root)
    assert answer.returncode == 1
    assert "there is no file" in answer.stderr


def test_a_broken_workflows_yaml_is_a_usage_error(night: AgentWorkspace) -> None:
    (night.root / "config/workflows.yaml").write_text("a: [", encoding="utf-8")
    answer = call_e3("workflow", "inspect", "a", cwd=night.root)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("e3: config/workflows.yaml:")


def test_a_name_with_a_comma_is_one_name(tmp_path: Path) -> None:
    template = {"1": {"class_type": "A", "inputs": {"a, b": 1}}}
    (tmp_path / "mine.json").write_text(json.dumps(template), encoding="utf-8")
    assert names_of(inspect(tmp_path, "mine.json"))["1.a, b"] == ["a, b"]


def test_a_file_elsewhere_that_is_called_like_one_of_the_workspace_is_not_taken_for_it(
    night: AgentWorkspace, tmp_path: Path
) -> None:
    file = tmp_path / "wf_realistic_portrait.json"
    file.write_text(json.dumps(TEMPLATE), encoding="utf-8")
    assert inspect(night.root, str(file))["required_inputs"] == []


# On a terminal.


def test_on_a_terminal_it_is_a_table_that_shows_markup_and_folds(night: AgentWorkspace) -> None:
    template = {"1": {"class_type": "X", "inputs": {"[red]text": "[/b]" * 30}, "_meta": {"title": "[bold]Title[/x]"}}}
    (night.root / "workflows/odd.json").write_text(json.dumps(template), encoding="utf-8")
    with in_terminal("workflow", "inspect", "odd", cwd=night.root, columns=120) as terminal:
        assert terminal.finish() == 0
    lines = terminal.screen.text.splitlines()
    assert lines[0].split() == ["Names", "Place", "Now", "Node"]
    assert "1.[red]text" in lines[1]
    assert "[bold]Title[/x]" in terminal.screen.text
    assert terminal.screen.has_cursor


def test_on_a_terminal_a_title_with_control_characters_does_not_reach_it_raw(night: AgentWorkspace) -> None:
    template = {"1": {"class_type": "X", "inputs": {"a": 1}, "_meta": {"title": "clear\x1b[2J\x1b]0;owned\x07"}}}
    (night.root / "workflows/odd.json").write_text(json.dumps(template), encoding="utf-8")
    with in_terminal("workflow", "inspect", "odd", cwd=night.root) as terminal:
        assert terminal.finish() == 0
    assert terminal.screen.strange == []
