"""Where things are, by whatever name the workspace is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace


def at(root: Path, url: str = "") -> Workspace:
    return Workspace(root, Settings.model_validate({"database": {"url": url}}))


def test_one_database_by_two_names_has_one_folder_of_locks(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "q.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "q.db")
    assert at(tmp_path, "link.db").locks == at(tmp_path, f"sqlite:///{tmp_path}/real/q.db").locks


def test_a_relative_database_lies_in_the_workspace(tmp_path: Path) -> None:
    assert at(tmp_path, "sqlite:///database/q.db").database == str(tmp_path / "database/q.db")
    assert at(tmp_path, "postgresql://host/e3").database == "postgresql://host/e3"
    assert at(tmp_path).database == str(tmp_path / "database/comfyui_agent.db")


def test_an_entry_is_the_link_and_not_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "best.png").touch()
    (tmp_path / "k.png").symlink_to(tmp_path / "archive" / "best.png")
    assert at(tmp_path).entry("k.png") == tmp_path.resolve() / "k.png"
    with pytest.raises(ValueError):
        at(tmp_path).entry("../k.png")


OWN = [
    *("config/x.png", "Config/x.png", "CONFIG./x.png", "workflows/wf.png", "database/x.png", "database/inputs/x.png"),
    *("jobs/processing/image/x.png", "jobs/Processing/x.png", "logs/metrics.json", "Logs/METRICS.json", ".env"),
    *(".git/hooks/x.png", "pictures/.hidden.png", "link/x.png", "jobs/finished/../../config/x.png"),
    "Cafe\u0301/x.png",
]


@pytest.mark.parametrize("path", OWN)
def test_no_result_goes_where_e3_keeps_its_own_files(tmp_path: Path, path: str) -> None:
    settings = {"metrics_log": "logs/metrics.json", "paths": {"workflows": "workflows"}}
    if path.startswith("Cafe"):
        settings["paths"] = {"workflows": "caf\u00e9"}
    workspace = Workspace(tmp_path, Settings.model_validate(settings))
    (tmp_path / "config").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "config")
    with pytest.raises(ValueError, match=r"own files|hidden"):
        workspace.check_result(workspace.inside(path))


@pytest.mark.parametrize(
    "path", ["jobs/finished/image/x.png", "x.png", "out/x.png", "logs/x.png", "configs/x.png", "jobs/x.png"]
)
def test_results_go_anywhere_else(tmp_path: Path, path: str) -> None:
    workspace = Workspace(tmp_path, Settings(metrics_log="logs/metrics.json"))
    workspace.check_result(workspace.inside(path))


def test_results_may_lie_beside_the_database_where_that_was_set_up_so(tmp_path: Path) -> None:
    """The innermost folder decides; and what the command line names is its user's word."""
    paths = {"database": "data/e3.db", "jobs_finished": "data/results"}
    workspace = Workspace(tmp_path, Settings.model_validate({"paths": paths}), tmp_path / "global_config.yaml")
    workspace.check_result(workspace.inside("data/results/image/x.png"))
    workspace.check_result(workspace.inside("x.png"))
    for path in ("data/x.png", "data/inputs/x.png", "global_config.yaml", "workflows.yaml"):
        with pytest.raises(ValueError, match="own files"):
            workspace.check_result(workspace.inside(path))
    named = Workspace(tmp_path, Settings(), named=(tmp_path / "config",))
    named.check_result(named.inside("config/x.png"))
