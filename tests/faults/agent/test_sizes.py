"""A user who sends as much as a request may hold fills neither the disk nor the memory of a running agent."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.sim.process import free_port
from support.agents import AgentWorkspace, sized_picture, wait_until
from support.stores import in_the_shell
from support.workspaces import NOWHERE, new_workspace, start_e3

KB, MB = 1024, 1024 * 1024
MEMBERS = 1_000


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[tuple[AgentWorkspace, str]]:
    """`e3 run` with its page; its server is away, so that nothing renders meanwhile."""
    workspace = new_workspace(tmp_path / "attacked", NOWHERE)
    graph = {**sized_picture(), "3": {"class_type": "PrimitiveString", "inputs": {"value": "a knight"}}}
    (workspace.root / "workflows" / "talking.json").write_text(json.dumps(graph), encoding="utf-8")
    port = free_port()
    try:
        start_e3(workspace, "run", E3_UI__ENABLED="true", E3_UI__PORT=str(port))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(url), "the page to answer", 30)
        yield workspace, url
    finally:
        workspace.stop_all()


def _answers(url: str) -> bool:
    try:
        return asked(url, "/healthz")[0] == 200
    except OSError:
        return False


def asked(url: str, path: str, body: Any = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def grown(workspace: AgentWorkspace) -> int:
    return sum(path.stat().st_size for path in workspace.database.parent.glob(f"{workspace.database.name}*"))


@pytest.mark.slow
def test_large_jobs_are_refused_and_what_members_share_is_stored_once(attacked: tuple[AgentWorkspace, str]) -> None:
    workspace, url = attacked
    before = grown(workspace)
    huge = "x" * int(3.9 * MB)

    def sweep(text: str) -> dict[str, Any]:
        return {"workflow": "talking", "set": {"color": f"1..{MEMBERS}"}, "inputs": {"3.value": text}}

    job = {"job_type": "T2I", "workflow_id": "talking", "metadata": {"note": huge}}
    for path, body in (("batches", sweep(huge)), ("jobs", job), ("books", {"workflow": "talking", "pages": [job]})):
        status, said = asked(url, f"/api/v1/{path}", body)
        assert status in (409, 422), said[:300]
        assert len(said) < 4 * KB
    status, said = asked(url, "/api/v1/batches", sweep(huge))
    assert "a job may have 64 KB: shorten the longest of them, or raise job_limit_kb" in json.loads(said)["detail"]
    assert grown(workspace) - before < MB

    status, said = asked(url, "/api/v1/batches", sweep("y" * 60 * KB))
    assert status == 201, said[:300]
    assert grown(workspace) - before < 8 * MB  # and not 60 MB
    status, said = asked(url, f"/api/v1/jobs/{json.loads(said)['id']}_0500")
    assert json.loads(said)["inputs"] == {"1.color": 500, "3.value": "y" * 60 * KB}

    in_the_shell(
        workspace.database,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) "
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, metadata, hold) "
        "SELECT 'hand_' || i, 'T2I', 'wf', 'pending', '{\"n\": \"' || hex(zeroblob(150000)) || '\"}', 'paused' FROM n",
    )
    status, said = asked(url, "/api/v1/jobs?limit=1000")
    assert (status, len(json.loads(said)["jobs"])) == (200, 1000)
    assert len(said) < 3 * MB
    assert asked(url, "/healthz")[0] == 200
