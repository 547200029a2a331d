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
