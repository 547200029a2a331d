"""Workflows are found by their id, read anew when they change, and what is wrong with one is said with its line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import (
    LARGEST_TEMPLATE,
    NotConvertedYet,
    NoWorkflow,
    Workflow,
    Workflows,
    read_recipes,
    read_template,
)
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Recipe

GRAPH: dict[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 1}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": ["3", 0]}},
}
EXPORT = "Workflow → Export (API)"


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def change(path: Path, content: Any) -> None:
    """Write a file anew, as seen by whoever compares times: a second later."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    write(path, content)
    os.utime(path, ns=(before + 10**9, before + 10**9))


class Here:
    """A workspace with its workflows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.yaml = root / "config/workflows.yaml"
        self.workflows = Workflows(Workspace(root, Settings()))

    def find(self, workflow_id: str) -> Workflow:
        self.workflows.refresh()
        return self.workflows.find(workflow_id)

    def trouble_with(self, workflow_id: str) -> str:
        with pytest.raises(NoWorkflow) as caught:
            self.find(workflow_id)
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def complaint_on(tmp_path: Path, text: str | bytes) -> str:
    path = write(tmp_path / "workflows.yaml", text)
    with pytest.raises(Complaints) as caught:
        read_recipes(path)
    line = str(caught.value).replace(str(tmp_path), "ROOT")
    assert "\n" not in line
    return line


# Entries


def test_an_entry_is_read_with_all_that_it_says(tmp_path: Path) -> None:
    text = """
wf_portrait:
  template_path: workflows/portrait.json
  description: A portrait.
  required_inputs: [prompt, seed]
  defaults: {steps: 30, checkpoint: auto}
  inputs:
    prompt: "6.text"
    seed: ["3.seed", "98:6.seed"]
bare:
  template_path: other.json
"""
    assert read_recipes(write(tmp_path / "workflows.yaml", text)) == {
        "wf_portrait": Recipe(
            "wf_portrait",
            "workflows/portrait.json",
            "A portrait.",
            ("prompt", "seed"),
            {"steps": 30, "checkpoint": "auto"},
            {"prompt": ("6.text",), "seed": ("3.seed", "98:6.seed")},
        ),
        "bare": Recipe("bare", "other.json"),
    }


def test_an_id_may_look_like_a_number(tmp_path: Path) -> None:
    assert list(read_recipes(write(tmp_path / "workflows.yaml", "6: {template_path: x}"))) == ["6"]


def test_a_file_without_entries_has_none(tmp_path: Path) -> None:
    for text in ["", "# none yet\n", "{}\n"]:
        assert read_recipes(write(tmp_path / "workflows.yaml", text)) == {}, text


def test_what_is_wrong_is_one_line_with_its_place_and_remedy(tmp_path: Path) -> None:
    for text, line in [
        ("a:\n", "ROOT/workflows.yaml:1: a: its entry is missing: write template_path: below it"),
        (
            "b: {template_path: x}\na: text\n",
            "ROOT/workflows.yaml:2: a: its entry is missing: write template_path: below it",
        ),
        (
            "a:\n  description: x\n",
            "ROOT/workflows.yaml:1: a: template_path: is missing: "
            "write the path of a template, such as workflows/portrait.json",
        ),
        (
            "a:\n  template_path: x\n  requiredinputs: []\n",
            "ROOT/workflows.yaml:3: a: requiredinputs: there is no such key; did you mean required_inputs?",
        ),
        (
            "a:\n  template_path: x\n  required_inputs: prompt\n",
            "ROOT/workflows.yaml:3: a: required_inputs: 'prompt' cannot be used: "
            'write a list of names, such as ["prompt", "seed"]',
        ),
        (
            "a:\n  template_path: x\n  inputs:\n    seed: 5\n",
            "ROOT/workflows.yaml:4: a: inputs.seed: 5 cannot be used: "
            'write a mapping of names to places, such as prompt: "6.text"',
        ),
        (
            "a:\n  template_path: x\n  inputs:\n    seed:\n      - 3.seed\n      - 5\n",
            "ROOT/workflows.yaml:6: a: inputs.seed.1: 5 cannot be used: "
            'write a mapping of names to places, such as prompt: "6.text"',
        ),
        (
            "a:\n  template_path: x\n  defaults: [1]\n",
            "ROOT/workflows.yaml:3: a: defaults: [1] cannot be used: write a mapping of names to values",
        ),
        (
            "a:\n  template_path: ''\n",
            "ROOT/workflows.yaml:2: a: template_path: '' cannot be used: "
            "write the path of a template, such as workflows/portrait.json",
        ),
        (
            "a: {template_path: x}\na: {template_path: y}\n",
            "ROOT/workflows.yaml:2: the key 'a' is there twice: keep one",
        ),
        ("- a\n", "ROOT/workflows.yaml: it is not a mapping: write workflow ids with their entries below them"),
    ]:
        assert complaint_on(tmp_path, text) == line, (text, line)


def test_what_is_no_yaml_is_one_line_with_its_place(tmp_path: Path) -> None:
    for text in ["a: [1\n", b"\xff\n", b"a: \x00"]:
        assert complaint_on(tmp_path, text).startswith("ROOT/workflows.yaml:"), text


def test_an_id_of_two_lines_leaves_a_complaint_of_one(tmp_path: Path) -> None:
    complaint_on(tmp_path, '"a\\nb": 5')


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "workflows.yaml").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    with pytest.raises(Complaints, match="it is too large"):
        read_recipes(tmp_path / "workflows.yaml")


def test_a_folder_of_that_name_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "workflows.yaml").mkdir()
    with pytest.raises(Complaints, match="it cannot be read: Is a directory"):
        read_recipes(tmp_path / "workflows.yaml")


# Templates


def test_a_template_is_a_graph_bare_or_wrapped(tmp_path: Path) -> None:
    for document in [GRAPH, {"prompt": GRAPH}, {"prompt": GRAPH, "client_id": "x", "extra_data": {}}]:
        assert read_template(write(tmp_path / "t.json", document)) == GRAPH, document


def test_a_template_may_be_saved_as_windows_does(tmp_path: Path) -> None:
    for encoding in ["utf-8", "utf-8-sig", "utf-16"]:
        assert read_template(write(tmp_path / "t.json", json.dumps(GRAPH).encode(encoding))) == GRAPH, encoding


def test_the_editors_format_is_told_from_the_right_one_with_how_to_get_that(tmp_path: Path) -> None:
    for document in [{"nodes": [{"id": 1}], "links": [], "version": 0.4}, {"prompt": {"nodes": [], "links": []}}]:
        with pytest.raises(
            NotConvertedYet, match="it is in the editor's format, which is converted with a server's definitions"
        ) as caught:
            read_template(write(tmp_path / "t.json", document))
        assert EXPORT in str(caught.value), document
        assert str(tmp_path / "t.json") in str(caught.value), document


def test_a_file_without_a_graph_is_refused_with_how_to_get_one(tmp_path: Path) -> None:
    for document in [[], [GRAPH], {}, {"prompt": {}}, 5, None, "text", True]:
        with pytest.raises(NoWorkflow) as caught:
            read_template(write(tmp_path / "t.json", json.dumps(document)))
        assert EXPORT in str(caught.value), document


def test_what_is_no_node_is_named(tmp_path: Path) -> None:
    for document, other in [
        ({**GRAPH, "version": 1}, "version"),
        ({**GRAPH, "12": {"inputs": {}}}, "12"),
        ({"last_node_id": 5}, "last_node_id"),
    ]:
        with pytest.raises(NoWorkflow) as caught:
            read_template(write(tmp_path / "t.json", document))
        assert f"'{other}' is not a node" in str(caught.value), (document, other)
        assert EXPORT in str(caught.value), (document, other)


def test_what_is_no_json_cannot_be_read(tmp_path: Path) -> None:
    for content in ["", "{", "{'a': 1}", "not json", b"\xff\x00\xfe", "[" * 100_000, '{"a":' * 100_000, "1" * 5000]:
        with pytest.raises(NoWorkflow, match="cannot be read") as caught:
            read_template(write(tmp_path / "t.json", content))
        assert str(tmp_path / "t.json") in str(caught.value), content
        assert "\n" not in str(caught.value), content


def test_a_picture_without_a_workflow_is_told_how_to_become_one(tmp_path: Path) -> None:
    for data in [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"RIFF0000WEBP", b"GIF89a"]:
        (tmp_path / "x.png").write_bytes(data)
        with pytest.raises(
            NoWorkflow, match=r"picture.* without a workflow: export one with Workflow → Export \(API\)"
        ):
            read_template(tmp_path / "x.png")


def test_a_picture_that_carries_a_graph_is_a_template(tmp_path: Path) -> None:
    text = b"prompt\0" + json.dumps(GRAPH).encode()
    chunk = len(text).to_bytes(4, "big") + b"tEXt" + text + b"\0\0\0\0"
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)
    assert read_template(tmp_path / "x.png") == GRAPH


def test_a_node_may_be_called_prompt(tmp_path: Path) -> None:
    graph = {"prompt": {"class_type": "CLIPTextEncode", "inputs": {"text": ""}}, **GRAPH}
    assert read_template(write(tmp_path / "t.json", graph)) == graph


def test_a_template_of_any_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "t.json").open("wb") as file:
        file.truncate(LARGEST_TEMPLATE + 1)
    with pytest.raises(NoWorkflow, match="is too large for a workflow"):
        read_template(tmp_path / "t.json")


def test_a_folder_is_no_template(tmp_path: Path) -> None:
    with pytest.raises(NoWorkflow, match="cannot be read"):
        read_template(tmp_path)


# Finding


def test_a_workflow_is_found_by_its_entry_with_a_path_in_the_workspace(here: Here) -> None:
    write(here.root / "anywhere/t.json", GRAPH)
    write(here.yaml, "wf: {template_path: anywhere/t.json, defaults: {seed: 5}}")
    found = here.find("wf")
    assert (found.graph, found.recipe.defaults) == (GRAPH, {"seed": 5})
    assert found.template.graph() == GRAPH
    assert "3.seed" in found.places.all


def test_a_template_path_may_be_absolute(here: Here, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = write(tmp_path_factory.mktemp("other") / "t.json", GRAPH)
    write(here.yaml, f"wf: {{template_path: '{other}'}}")
    assert here.find("wf").graph == GRAPH


def test_without_an_entry_a_template_of_that_name_is_enough(here: Here) -> None:
    write(here.root / "workflows/my portrait-2.json", GRAPH)
    found = here.find("my portrait-2")
    assert found.graph == GRAPH
    assert found.recipe == Recipe("my portrait-2", str(here.root / "workflows/my portrait-2.json"))


def test_an_entry_wins_over_a_template_of_that_name(here: Here) -> None:
    write(here.root / "workflows/wf.json", {"1": {"class_type": "Other"}})
    write(here.root / "t.json", GRAPH)
    write(here.yaml, "wf: {template_path: t.json}")
    assert here.find("wf").graph == GRAPH


def test_one_that_is_not_there_is_named_with_what_may_be_meant(here: Here) -> None:
    assert here.trouble_with("portrait") == "'portrait' is not in workflows.yaml; there are none"
    write(here.root / "workflows/landscape.json", GRAPH)
    write(here.yaml, "wf_portrait: {template_path: x.json}")
    assert here.trouble_with("wf_potrait").endswith("did you mean wf_portrait?")
    assert here.trouble_with("landscap").endswith("did you mean landscape?")
    assert here.trouble_with("zzz").endswith("there are landscape, wf_portrait")


@pytest.mark.parametrize(
    "workflow_id", ["../secret", "..", "a/b", "/etc/passwd", "", "x\0y", "secret\n", "y" * 300, "~"]
)
def test_an_id_leads_nowhere_else(here: Here, workflow_id: str) -> None:
    write(here.root / "secret.json", GRAPH)
    write(here.root / "workflows/secret.json", GRAPH)
    write(here.root / "workflows/a/b.json", GRAPH)
    assert "is not in workflows.yaml" in here.trouble_with(workflow_id)


def test_a_template_that_is_not_there_is_said_with_how_to_get_one(here: Here) -> None:
    write(here.yaml, "wf: {template_path: workflows/gone.json}")
    assert here.trouble_with("wf") == f"its template workflows/gone.json is not there: export one, {EXPORT}"


def test_a_template_path_that_is_too_long_is_not_there(here: Here) -> None:
    write(here.yaml, f"wf: {{template_path: {'x' * 300}}}")
    assert "is not there" in here.trouble_with("wf")


def test_a_template_path_that_cannot_be_is_not_there(here: Here) -> None:
    write(here.yaml, 'wf: {template_path: "a\\0b"}')
    here.trouble_with("wf")


@pytest.mark.parametrize("depth", [600, 900])
def test_a_template_as_deep_as_json_can_be_read_is_found_or_refused(here: Here, depth: int) -> None:
    write(here.root / "workflows/wf.json", '{"1":{"class_type":"X","inputs":{"a":' + "[" * depth + "]" * depth + "}}}")
    try:
        here.find("wf")
    except NoWorkflow:
        return


# Changes


def test_a_template_that_changes_is_read_anew(here: Here) -> None:
    template = write(here.root / "workflows/wf.json", GRAPH)
    before = here.find("wf")
    change(template, {"1": {"class_type": "Other"}})
    after = here.find("wf")
    assert after.graph == {"1": {"class_type": "Other"}}
    assert after.template.hash != before.template.hash


def test_one_that_has_not_changed_is_not_read_again(here: Here) -> None:
    write(here.root / "workflows/wf.json", GRAPH)
    assert here.find("wf").graph is here.find("wf").graph


def test_within_a_round_a_workflow_stays_what_it_was(here: Here) -> None:
    template = write(here.root / "workflows/wf.json", GRAPH)
    before = here.find("wf")
    change(template, "{")
    assert here.workflows.find("wf") is before


def test_a_template_that_breaks_is_said_and_found_again_when_it_is_mended(here: Here) -> None:
    template = write(here.root / "workflows/wf.json", GRAPH)
    here.find("wf")
    change(template, "{")
    assert "cannot be read" in here.trouble_with("wf")
    change(template, GRAPH)
    assert here.find("wf").graph == GRAPH


def test_a_template_that_comes_later_is_found(here: Here) -> None:
    here.trouble_with("wf")
    write(here.root / "workflows/wf.json", GRAPH)
    assert here.find("wf").graph == GRAPH


def test_entries_that_change_count_from_the_next_round(here: Here) -> None:
    write(here.root / "t.json", GRAPH)
    write(here.yaml, "wf: {template_path: t.json, defaults: {seed: 1}}")
    assert here.find("wf").recipe.defaults == {"seed": 1}
    change(here.yaml, "wf: {template_path: t.json, defaults: {seed: 2}}\nother: {template_path: t.json}")
    assert here.find("wf").recipe.defaults == {"seed": 2}
    assert here.find("other").graph == GRAPH


def test_an_entry_that_is_taken_out_is_gone(here: Here) -> None:
    write(here.root / "t.json", GRAPH)
    write(here.yaml, "wf: {template_path: t.json}")
    here.find("wf")
    here.yaml.unlink()
    assert "is not in workflows.yaml" in here.trouble_with("wf")


def test_a_file_that_breaks_is_said_and_what_was_known_still_counts(here: Here) -> None:
    write(here.root / "t.json", GRAPH)
    write(here.yaml, "wf: {template_path: t.json}")
    here.find("wf")
    change(here.yaml, "wf: {template_path: t.json\n")
    with pytest.raises(Complaints, match="it is not YAML"):
        here.workflows.refresh()
    assert here.workflows.find("wf").graph == GRAPH
    with pytest.raises(Complaints, match="it is not YAML"):
        here.workflows.refresh()
    assert here.workflows.find("wf").graph == GRAPH


def test_a_file_that_is_mended_counts_again(here: Here) -> None:
    write(here.root / "t.json", GRAPH)
    write(here.yaml, "nonsense")
    with pytest.raises(Complaints):
        here.workflows.refresh()
    change(here.yaml, "wf: {template_path: t.json}")
    assert here.find("wf").graph == GRAPH
    assert list(here.workflows.recipes) == ["wf"]
