"""`e3 db prune`: what is old goes, with its files, and it says what went."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyui_agent.engine.retention import DAY
from support.agents import AgentWorkspace
from support.places import by_hand, new_place
from support.stores import in_the_shell, wish
from support.workspaces import call_e3, new_workspace


def aged(folder: Path) -> AgentWorkspace:
    """One job that ended long ago and one that waits; an input picture and a thumbnail of each, and a new picture."""
    workspace = new_workspace(folder)
    waits = wish("waits", pictures={"3.image": "used.png"})
    workspace.submit_jobs([wish("old", pictures={"3.image": "unused.png"}), waits])
    in_the_shell(
        workspace.database,
        "UPDATE jobs SET status = 'done', end_time = '2025-08-09 12:30:01.250', outputs = '[\"jobs/finished/old.png\"]'"
        " WHERE config_name = 'old'; INSERT INTO files (path, job_id) VALUES ('jobs/finished/old.png', 1);"
        "UPDATE events SET at = '2025-08-09 12:30:01.250' WHERE job_id = 1",
    )
    files = ("jobs/finished/old.png", "database/inputs/used.png", "database/inputs/unused.png")
    for name in (
        *files,
        "database/inputs/new.png",
        "database/thumbnails/ab/abc.webp",
        "database/thumbnails/ab/new.webp",
    ):
        (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / name).write_bytes(b"1234567890")
        if "new" not in name:
            os.utime(workspace.root / name, (time.time() - 40 * DAY,) * 2)
    return workspace


def remaining(workspace: AgentWorkspace) -> list[str]:
    folders = ("jobs/finished", "database/inputs", "database/thumbnails")
    return sorted(path.name for name in folders for path in (workspace.root / name).rglob("*") if path.is_file())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[AgentWorkspace, str]]:
    """The workspace, and where its database is."""
    night = aged(tmp_path / "night")
    if request.param == "sqlite":
        yield night, str(night.database)
        return
    with new_place("postgres", tmp_path, "") as url:
        assert call_e3("db", "copy", str(night.database), url).returncode == 0
        with (night.root / "config/global_config.yaml").open("a") as settings:
            settings.write(f"\ndatabase:\n  url: {url}\n")
        yield night, url


def test_it_says_what_went_and_what_would_go(place: tuple[AgentWorkspace, str]) -> None:
    night, database = place
    before = remaining(night)
    dry = call_e3("db", "prune", "--older-than", "30d", "--dry-run", "--json", "-C", str(night.root))
    seen = json.loads(dry.stdout)
    assert (seen["dry_run"], seen["jobs"], seen["files"], seen["file_bytes"]) == (True, 1, 1, 10)
    assert (remaining(night), len(by_hand(database, "SELECT id FROM jobs"))) == (before, 2)
    answer = call_e3("db", "prune", "--older-than", "30d", "-C", str(night.root))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == (
        "Removed: 0 batches, 1 job, 0 attempts, 1 event, 0 templates, 1 result file (0.0 MB), "
        "1 input picture (0.0 MB), 1 thumbnail (0.0 MB).\n"
    )
    assert remaining(night) == ["new.png", "new.webp", "used.png"]
    assert by_hand(database, "SELECT config_name FROM jobs") == [{"config_name": "waits"}]
    trail = call_e3("audit", "-C", str(night.root)).stdout
    assert "db.prune" in trail
    assert "older than 30d: 0 batches, 1 job" in trail
    wrong = call_e3("db", "prune", "--older-than", "soon", "-C", str(night.root))
    assert (wrong.returncode, wrong.stderr.startswith("e3: --older-than 'soon' is no time")) == (2, True)


def test_files_can_be_kept(tmp_path: Path) -> None:
    night = aged(tmp_path / "night")
    before = remaining(night)
    answer = call_e3("db", "prune", "--older-than", "12h", "--keep-files", "--json", "-C", str(night.root))
    assert json.loads(answer.stdout)["jobs"] == 1
    assert remaining(night) == before
