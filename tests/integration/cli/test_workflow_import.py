"""`e3 workflow import` makes a workflow of the workspace out of any file that carries one, and overwrites nothing."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.workflows import read_recipes
from support.agents import AgentWorkspace
from support.editor_workflows import CYCLE, LARGE, document, node, slot
from support.pictures import chunk, png
from support.shared_servers import Servers
from support.workspaces import call_e3, new_workspace

GRAPH = {
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a knight", "clip": ["4", 1]}},
    "3": {"class_type": "KSampler", "inputs": {"model": ["4", 0], "positive": ["6", 0]}},
}
EDITOR = document(
    [
        node(4, "CheckpointLoaderSimple", values=["x.safetensors"]),
        node(6, "CLIPTextEncode", slot("clip", "CLIP", 1), values=["a {knight|knight}"], title="Positive"),
        node(7, "Note", values=["for me"]),
    ],
    (1, 4, 1, 6),
)


@pytest.fixture
def night(tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "night")


def imported(folder: Path, *arguments: str, code: int = 0) -> Any:
    answer = call_e3("workflow", "import", "--json", *arguments, cwd=folder)
    assert answer.returncode == code, answer.stderr
    return json.loads(answer.stdout) if not code else answer.stderr


def write(folder: Path, content: Any) -> str:
    (folder / "mine.json").write_text(json.dumps(content))
    return "mine.json"


def test_an_api_format_file_needs_no_server(night: AgentWorkspace) -> None:
    before = (night.root / "config/workflows.yaml").read_text()
    found = imported(night.root, write(night.root, {"prompt": GRAPH}), "--name", "knight")
    assert (found["workflow_id"], found["format"], found["nodes"]) == ("knight", "API format", 2)
    assert json.loads((night.root / "workflows/knight.json").read_text()) == GRAPH
    assert (night.root / "config/workflows.yaml").read_text().startswith(before.rstrip())
    recipe = read_recipes(night.root / "config/workflows.yaml")["knight"]
    assert (recipe.template_path, dict(recipe.inputs)) == ("workflows/knight.json", {"prompt": ("6.text",)})
    assert call_e3("workflow", "inspect", "knight", cwd=night.root).returncode == 0


def test_a_ui_format_file_is_converted_with_the_definitions_of_a_server(
    night: AgentWorkspace, servers: Servers
) -> None:
    found = imported(night.root, write(night.root, EDITOR), "--server", servers.url("sim"))
    assert (found["format"], found["nodes"]) == ("UI format", 2)
    graph = json.loads((night.root / "workflows/mine.json").read_text())
    assert graph["6"]["inputs"] == {"text": "a knight", "clip": ["4", 1]}
    assert graph["6"]["_meta"] == {"title": "Positive"}


def test_what_is_refused_is_named_and_nothing_is_written(night: AgentWorkspace, servers: Servers) -> None:
    before = (night.root / "config/workflows.yaml").read_text()
    name = write(night.root, document([node(5, "Gone", title="My node")]))
    said = imported(night.root, name, "--server", servers.url("sim"), code=1)
    assert "refused: node 5 (My node): the server has no node Gone" in said
    assert not (night.root / "workflows/mine.json").exists()
    assert (night.root / "config/workflows.yaml").read_text() == before


def test_nothing_is_overwritten(night: AgentWorkspace) -> None:
    name = write(night.root, GRAPH)
    assert "is in workflows.yaml already" in imported(night.root, name, "--name", "wf_realistic_portrait", code=1)
    (night.root / "workflows/other.json").write_text("{}")
    assert "already" in imported(night.root, name, "--name", "other", code=1)
    assert (night.root / "workflows/other.json").read_text() == "{}"


def test_what_is_hostile_is_one_clear_line(night: AgentWorkspace, servers: Servers) -> None:
    bomb = chunk(b"zTXt", b"prompt\0\0" + zlib.compress(bytes(40 * 1024**2)))
    for name, data, words in (
        ("bomb.png", b"\x89PNG\r\n\x1a\n" + bomb, "its compressed text has more than 33,554,432 bytes"),
        ("page.png", b"<html>", "cannot be read: it is no JSON"),
        ("polyglot.json", png() + json.dumps(GRAPH).encode(), "it is a PNG picture without a workflow"),
        ("cycle.json", json.dumps(CYCLE).encode(), "contains itself"),
        ("film.json", bytes(33 * 1024**2), "it is larger than 33,554,432 bytes, too large for a workflow"),
        ("large.mp4", b"", "is too large for a workflow"),
    ):
        (night.root / name).write_bytes(data)
        if not data:
            os.truncate(night.root / name, 300 * 1024**2)
        [line] = imported(night.root, name, "--server", servers.url("sim"), code=1).splitlines()
        assert words in line
        assert len(line) < 400


@pytest.mark.parametrize("case", LARGE)
def test_what_is_only_large_is_taken(night: AgentWorkspace, servers: Servers, case: str) -> None:
    found = imported(night.root, write(night.root, LARGE[case]), "--server", servers.url("sim"))
    assert found["nodes"] == len(LARGE[case].get("nodes", LARGE[case]))


def test_a_file_with_an_odd_name_gets_an_id_that_can_be_one(night: AgentWorkspace) -> None:
    (night.root / "My picture (1).json").write_text(json.dumps(GRAPH))
    assert imported(night.root, "My picture (1).json")["workflow_id"] == "My picture _1_"


@pytest.mark.parametrize("name", ["../x", "a/b", "x" * 300])
def test_a_name_that_is_no_id_is_refused(night: AgentWorkspace, name: str) -> None:
    if name:
        assert "cannot be the id of a workflow" in imported(
            night.root, write(night.root, GRAPH), "--name", name, code=1
        )
