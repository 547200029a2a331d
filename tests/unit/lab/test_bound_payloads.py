"""A workflow of the workspace is profiled as its template and its defaults have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.lab.payloads import Payload, PayloadError, bound_to_defaults
from support.graphs import node
from support.workspaces import new_workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_workspace(tmp_path).root


def subject_of(root: Path, workflow_id: str) -> Payload:
    workspace = load_workspace(root, {}, None)
    workflows = Workflows(workspace)
    workflows.refresh()
    return bound_to_defaults(workflows.find(workflow_id), workspace)


def change(root: Path, workflow_id: str, **defaults: Any) -> None:
    file = root / "config" / "workflows.yaml"
    recipes = yaml.safe_load(file.read_text(encoding="utf-8"))
    recipes[workflow_id]["defaults"] |= defaults
    file.write_text(yaml.safe_dump(recipes), encoding="utf-8")


def test_what_is_required_and_has_no_default_stays_as_the_template_has_it(root: Path) -> None:
    template = json.loads((root / "workflows" / "wf_realistic_portrait.json").read_text(encoding="utf-8"))
    payload = subject_of(root, "wf_realistic_portrait")
    assert payload.name == "wf_realistic_portrait"
    assert payload.graph["2"] == template["2"]
    assert payload.graph["5"]["inputs"]["steps"] == template["5"]["inputs"]["steps"]


def test_defaults_win_over_the_template(root: Path) -> None:
    change(root, "wf_realistic_portrait", prompt="a lighthouse", steps=3)
    graph = subject_of(root, "wf_realistic_portrait").graph
    assert graph["2"]["inputs"]["text"] == "a lighthouse"
    assert graph["5"]["inputs"]["steps"] == 3


def test_a_picture_of_the_workspace_is_to_be_brought_to_the_server(root: Path) -> None:
    assert subject_of(root, "wf_image_to_image").pictures == {}
    change(root, "wf_image_to_image", image="pictures/castle.png")
    assert subject_of(root, "wf_image_to_image").pictures == {"4.image": (root / "pictures" / "castle.png").resolve()}


def test_a_picture_that_is_not_there_is_said(root: Path) -> None:
    change(root, "wf_image_to_image", image="pictures/gone.png")
    with pytest.raises(PayloadError, match=r"wf_image_to_image: 4.image: there is no file 'pictures/gone.png'"):
        subject_of(root, "wf_image_to_image")


def test_a_placeholder_without_a_default_is_said(root: Path) -> None:
    graph = {"1": node("EmptyImage", width="${width}", height=16, batch_size=1, color=0)}
    (root / "workflows" / "open.json").write_text(json.dumps(graph), encoding="utf-8")
    with pytest.raises(PayloadError, match=r"open: width: is missing: .*\$\{width\}.*workflows.yaml"):
        subject_of(root, "open")
