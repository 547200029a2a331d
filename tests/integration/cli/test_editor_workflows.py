"""A workflow as the editor saves it works wherever a template is named: converted once, read without a server then."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from support.agents import AgentWorkspace
from support.batches import queued_id, write_yaml
from support.editor_workflows import document, node, slot
from support.shared_servers import Servers
from support.workspaces import NOWHERE, call_e3, new_workspace

EDITOR = document(
    [
        node(1, "EmptyImage", values=[32, 32, 1, 7]),
        node(2, "SaveImage", slot("images", "IMAGE", 1), values=["pictures/x"]),
        node(3, "CLIPTextEncode", slot("clip", "CLIP"), values=["{one|two|three|four|five}"]),
    ],
    (1, 1, 0, 2),
)
COLOURS = ("--set", "color=1..2")


@pytest.fixture
def night(tmp_path: Path, servers: Servers) -> AgentWorkspace:
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    (workspace.root / "workflows" / "mine.json").write_text(json.dumps(EDITOR))
    return workspace


def e3(night: AgentWorkspace, *arguments: str, code: int = 0, url: str = "") -> str:
    answer = call_e3(*arguments, cwd=night.root, **({"E3_COMFYUI__API_BASE_URL": url} if url else {}))
    assert answer.returncode == code, answer.stderr
    return answer.stderr if code else answer.stdout


def places(night: AgentWorkspace, name: str, **options: Any) -> dict[str, Any]:
    found = json.loads(e3(night, "workflow", "inspect", "--json", name, **options))
    return {each["place"]: each["value"] for each in found["places"]}


def picture() -> bytes:
    info, file = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_text("workflow", json.dumps(EDITOR))
    Image.new("RGB", (2, 2)).save(file, "PNG", pnginfo=info)
    return file.getvalue()


def test_a_file_in_the_folder_is_a_workflow_and_is_converted_once(night: AgentWorkspace) -> None:
    first = places(night, "mine")
    assert (first["1.color"], first["1.width"]) == (7, 32)
    assert first["3.text"] in ("one", "two", "three", "four", "five")
    assert places(night, "mine", url=NOWHERE) == first
    kept = night.root / "database" / "converted"
    assert len(list(kept.iterdir())) == 1
    shutil.rmtree(kept)
    assert places(night, "mine") == first, "it is converted to the same again"


def test_a_picture_in_the_folder_is_a_workflow_too(night: AgentWorkspace) -> None:
    (night.root / "workflows" / "ComfyUI_00012_.png").write_bytes(picture())
    e3(night, "sweep", "ComfyUI_00012_", *COLOURS, "--dry-run")
    (night.root / "workflows" / "ComfyUI_00012_.json").write_text(json.dumps({"5": {"class_type": "A", "inputs": {}}}))
    assert not places(night, "ComfyUI_00012_"), "the JSON file goes before the picture"


def test_template_paths_sweeps_books_and_bursts_take_it(night: AgentWorkspace, tmp_path: Path) -> None:
    elsewhere = tmp_path / "downloads" / "film.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text(json.dumps(EDITOR))
    with (night.root / "config" / "workflows.yaml").open("a") as file:
        file.write(f"\nnamed:\n  template_path: {elsewhere}\n  inputs: {{shade: '1.color'}}\n")
    queued_id(call_e3("sweep", "named", "--set", "shade=1..2", cwd=night.root))
    queued_id(call_e3("sweep", str(elsewhere), *COLOURS, cwd=night.root))
    book = write_yaml(night.root / "book.yaml", {"workflow": str(elsewhere), "pages": [{"inputs": {"color": 1}}]})
    queued_id(call_e3("book", "create", str(book), cwd=night.root))
    (night.root / "prompts").mkdir()
    (night.root / "prompts" / "a.txt").write_text("pictures/a")
    e3(night, "burst", "prompts", "--workflow", str(elsewhere), "--node", "2.filename_prefix", "--state", "s.json")
    assert len(list((night.root / "output").iterdir())) == 1


def test_where_no_server_answers_one_line_says_so(night: AgentWorkspace) -> None:
    for command in (
        ["sweep", "mine", *COLOURS],
        ["workflow", "inspect", "mine"],
        ["burst", ".", "--workflow", "mine", "--node", "1.color"],
    ):
        said = e3(night, *command, code=2 if command[0] == "sweep" else 1, url=NOWHERE)
        [line] = said.splitlines()
        assert "it is in the editor's format, which is converted with a server's definitions, and none answers" in line
        assert NOWHERE in line


def test_what_cannot_be_converted_surely_is_refused_with_node_title_and_reason(night: AgentWorkspace) -> None:
    (night.root / "workflows" / "mine.json").write_text(json.dumps(document([node(5, "Gone", title="My node")])))
    [line] = e3(night, "sweep", "mine", *COLOURS, code=2).splitlines()
    assert "mine.json is refused: node 5 (My node): the server has no node Gone" in line


def test_looking_at_a_file_outside_a_workspace_leaves_nothing_behind(tmp_path: Path, servers: Servers) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(EDITOR))
    where = {"E3_COMFYUI__API_BASE_URL": servers.url("sim")}
    assert call_e3("workflow", "inspect", "mine.json", cwd=tmp_path, **where).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
