"""`e3 init`: everything that it makes can be used as it is, and nothing that was there is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.yaml_text import parse
from comfyui_agent.domain.binding import bind
from comfyui_agent.domain.kinds import folder_of
from comfyui_agent.domain.prompts import place
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.folder_scan import sign

KINDS = ("image", "video", "audio", "speech", "3d")


def started(root: Path, server: str = "") -> dict[str, bool]:
    return dict(start_workspace(root, server))


def test_every_folder_and_file_of_the_contract_is_made(tmp_path: Path) -> None:
    made = started(tmp_path / "new/night")
    root = tmp_path / "new/night"
    for kind in KINDS:
        assert (root / "jobs/processing" / kind).is_dir()
        assert (root / "jobs/finished" / kind).is_dir()
    assert (root / "database").is_dir()
    for file in ("config/global_config.yaml", "config/workflows.yaml", ".env.example"):
        assert (root / file).is_file()
    assert len(list((root / "workflows").glob("*.json"))) == 3
    assert (root / "workflows/wf_realistic_portrait.json").is_file()
    assert all(made.values())
    assert all((root / name).is_file() for name in made)


def test_the_configuration_that_is_made_says_what_the_defaults_are_and_gives_a_render_more_time(tmp_path: Path) -> None:
    started(tmp_path)
    workspace = load_workspace(tmp_path, {})
    assert workspace.settings == Settings.model_validate({"comfyui": {"timeout_seconds": 600}})
    assert workspace.root == tmp_path
    assert workspace.config == tmp_path / "config/global_config.yaml"


def test_dotenv_as_it_is_offered_changes_nothing_when_it_is_copied(tmp_path: Path) -> None:
    started(tmp_path)
    before = load_workspace(tmp_path, {}).settings
    (tmp_path / ".env").write_bytes((tmp_path / ".env.example").read_bytes())
    assert load_workspace(tmp_path, {}).settings == before
    for name in ("COMFY_MAX_RETRIES=3", "COMFY_RETRY_BACKOFF_SEC=15,45,90", "COMFY_ALLOW_PARALLEL_PAGES=true"):
        assert name in (tmp_path / ".env").read_text().splitlines()


def test_the_server_that_is_named_is_put_in(tmp_path: Path) -> None:
    started(tmp_path, "http://gpu1:9999")
    assert load_workspace(tmp_path, {}).settings.comfyui.urls == ("http://gpu1:9999",)


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    every = started(tmp_path)
    for name in every:
        (tmp_path / name).write_text(f"mine: {name}")
    assert not any(started(tmp_path, "http://gpu1:9999").values())
    for name in every:
        assert (tmp_path / name).read_text() == f"mine: {name}"


def test_only_what_is_missing_is_made(tmp_path: Path) -> None:
    every = started(tmp_path)
    (tmp_path / "config/workflows.yaml").unlink()
    (tmp_path / "jobs/finished/3d").rmdir()
    assert [name for name, is_new in started(tmp_path).items() if is_new] == ["config/workflows.yaml"]
    assert (tmp_path / "jobs/finished/3d").is_dir()
    assert len(every) > 8


def test_a_file_where_a_folder_should_be_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("mine")
    with pytest.raises(OSError, match="jobs"):
        started(tmp_path)
    assert (tmp_path / "jobs").read_text() == "mine"


def test_a_link_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.yaml").write_text("retry_limit: 9")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/global_config.yaml").symlink_to("../elsewhere.yaml")
    assert started(tmp_path)["config/global_config.yaml"] is False
    assert (tmp_path / "elsewhere.yaml").read_text() == "retry_limit: 9"


def test_every_workflow_binds_with_its_own_defaults_and_every_input_has_a_place(tmp_path: Path) -> None:
    started(tmp_path)
    workflows = Workflows(load_workspace(tmp_path, {}))
    workflows.refresh()
    assert "wf_realistic_portrait" in workflows.recipes
    assert len(workflows.recipes) == 3
    for workflow_id, recipe in workflows.recipes.items():
        workflow = workflows.find(workflow_id)
        assert recipe.description
        assert set(recipe.required_inputs) <= set(recipe.inputs)
        assert set(recipe.defaults) <= set(recipe.inputs)
        for name in recipe.inputs:
            places = workflow.places.find(name, recipe)
            assert places
            assert not any(workflow.places.all[each].is_link for each in places)
        required = {name: workflow.places.all[recipe.inputs[name][0]].value for name in recipe.required_inputs}
        values = bind(workflow.places, recipe, required)
        assert len(values) >= len(required) + len(recipe.defaults)
        assert place(workflow.graph, values).keys() == workflow.graph.keys()


def test_every_template_takes_whatever_model_the_server_has(tmp_path: Path) -> None:
    started(tmp_path)
    workflows = Workflows(load_workspace(tmp_path, {}))
    workflows.refresh()
    for workflow_id in workflows.recipes:
        workflow = workflows.find(workflow_id)
        models = [place for place in workflow.places.all.values() if place.name == "ckpt_name"]
        assert models
        assert workflow.recipe.defaults["checkpoint"] == "auto"
        assert [model.place for model in models] == list(workflow.recipe.inputs["checkpoint"])


def test_every_example_is_a_job_without_a_fault(tmp_path: Path) -> None:
    started(tmp_path)
    for picture in (tmp_path / "pictures").iterdir():
        os.utime(picture, (1, 1))  # not one that is being written
    workspace = load_workspace(tmp_path, {})
    admission = Admission(workspace)
    admission.workflows.refresh()
    examples = sorted((tmp_path / "examples").iterdir())
    assert len(examples) == 3
    for example in examples:
        tree = parse(example.read_bytes()).value
        target = workspace.processing / folder_of(tree["job_type"]) / example.name
        target.write_bytes(example.read_bytes())
        signature = sign(str(target))
        assert signature is not None
        filed = admission.read(target, signature)
        assert filed.problem == ""
        assert filed.job.workflow_id == tree["workflow_id"]
        assert filed.job.file_path == tree["outputs"]["file_path"]


def test_what_is_made_does_not_depend_on_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert started(Path()) == started(Path("other"))
    assert json.loads((tmp_path / "workflows/wf_realistic_portrait.json").read_bytes())
    assert os.access(tmp_path / "other/config/global_config.yaml", os.W_OK)
