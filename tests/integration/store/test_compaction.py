"""`e3 db check` tells what takes room, `e3 db compact` gives it back; neither takes anything from a job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from support.agents import AgentWorkspace, sized_picture
from support.stores import in_the_shell
from support.workspaces import call_e3, new_workspace

HOUR = 3600


@pytest.fixture
def grown(tmp_path: Path) -> AgentWorkspace:
    """One job with its template and its picture, and much that was removed by hand."""
    workspace = new_workspace(tmp_path / "grown")
    large = Template.of({**sized_picture(), "9": {"class_type": "Note", "inputs": {"text": "x" * 200_000}}})
    jobs = [
        NewJob(f"gone_{n}", "T2I", "picture", large, {"1.color": n}, metadata={"n": "x" * 60_000}) for n in range(40)
    ]
    kept = Template.of(sized_picture())
    workspace.submit_jobs(
        [*jobs, NewJob("stays", "T2I", "picture", kept, {"1.color": 1}, pictures={"3.image": "a.png"})]
    )
    folder = workspace.database.parent / "inputs"
    folder.mkdir()
    for name in ("a.png", "b.png", "new.png"):
        (folder / name).write_bytes(b"p" * 1000)
    for name in ("a.png", "b.png"):
        os.utime(folder / name, (time.time() - 2 * HOUR,) * 2)
    in_the_shell(workspace.database, "DELETE FROM jobs WHERE config_name LIKE 'gone_%'")
    return workspace


def test_space_is_given_back_and_every_job_has_what_it_needs(grown: AgentWorkspace) -> None:
    before = grown.database.stat().st_size
    told = call_e3("db", "check", "-C", str(grown.root))
    assert told.returncode == 0, told.stdout
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("● sizes: ")]
    assert "gives back about 2." in line
    assert "the largest jobs are stays (0.0 KB)" in line
    answer = call_e3("db", "compact", "--json", "-C", str(grown.root))
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["bytes_before"] >= before
    assert found["bytes_after"] == grown.database.stat().st_size < 600_000
    assert (found["templates"], found["pictures"], found["picture_bytes"]) == (1, 1, 1000)
    assert sorted(path.name for path in (grown.database.parent / "inputs").iterdir()) == ["a.png", "new.png"]
    job = grown.job("stays")
    assert grown.store(lambda store: store.run(ops.find_template, job.template_hash or "")) is not None
    assert call_e3("db", "check", "-C", str(grown.root)).returncode == 0
    words = call_e3("db", "compact", "-C", str(grown.root)).stdout
    assert "Removed what no job used: 0 templates, 0 input pictures (0 MB)." in words


def test_while_someone_works_with_the_database_it_is_left_alone(grown: AgentWorkspace) -> None:
    before = grown.database.stat().st_size
    lock = AgentLock(grown.database.parent / "agents")
    try:
        answer = call_e3("db", "compact", "-C", str(grown.root))
    finally:
        lock.release()
    assert answer.returncode == 1
    assert answer.stderr.startswith("e3: the database is in use (")
    assert "stop e3 run, e3 serve and the like" in answer.stderr
    assert grown.database.stat().st_size == before


def test_without_a_database_there_is_nothing_to_compact(tmp_path: Path) -> None:
    answer = call_e3("db", "compact", "-C", str(tmp_path))
    assert (answer.returncode, "there is no database" in answer.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
