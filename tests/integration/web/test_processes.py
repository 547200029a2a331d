"""ComfyUI processes that E3 launched, as the page and the API show them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from comfyui_agent.domain.tokens import Role
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from support.web import Served, bearer, check_problem, served
from support.workspaces import new_workspace

URL = "http://127.0.0.1:9"


@pytest.fixture
def slot(tmp_path: Path) -> SlotFolder:
    """A process that was given up, in a workspace that launches it."""
    new_workspace(tmp_path)
    config = tmp_path / "config" / "global_config.yaml"
    tree = yaml.safe_load(config.read_text())
    tree["comfyui"]["launch"] = [{"directory": "/none", "gpus": "cpu", "port_from": 1024}]
    config.write_text(yaml.safe_dump(tree))
    folder = SlotFolder(tmp_path / "comfyui" / "cpu-1")
    folder.prepare()
    state = SlotState(URL, "cpu", Status.FAILED, at="2026-11-17 10:00:00", reason="no <torch>", restarts=3)
    folder.write(state)
    (folder.path / "log.txt").write_text("--- started by E3 at noon\nsecret <b>of the house</b>\x1b[31m\n")
    return folder


@pytest.fixture
async def house(tmp_path: Path, slot: SlotFolder) -> AsyncIterator[Served]:
    async with served(tmp_path) as found:
        yield found


@pytest.fixture
def agent(house: Served) -> Iterator[None]:
    lock = AgentLock(house.workspace.locks)
    yield
    lock.release()


async def test_each_server_has_its_process(house: Served) -> None:
    (server,) = (await house.get("/api/v1/servers")).value
    assert server["process"] == {
        "slot": "cpu-1",
        "status": "failed",
        "pid": None,
        "gpu": "cpu",
        "restarts": 3,
        "since": "2026-11-17 10:00:00",
        "reason": "no <torch>",
    }
    page = (await house.get("/servers")).text
    assert "Process cpu-1: failed, since 2026-11-17 10:00:00 UTC, restarted 3 times" in page
    assert "no &lt;torch&gt;" in page
    assert "secret &lt;b&gt;of the house&lt;/b&gt;" in page
    assert "\x1b" not in page


async def test_only_admins_see_its_log_and_restart_it(house: Served, agent: None) -> None:
    user, admin = [bearer(await house.token(role)) for role in (Role.USER, Role.ADMIN)]
    (server,) = (await house.get("/api/v1/servers", headers=user)).value
    assert (server["process"]["status"], server["process"]["reason"]) == ("failed", None)
    page = (await house.get("/servers", headers=user)).text
    assert "Process cpu-1" in page
    assert not [word for word in ("secret", "torch", "Restart") if word in page]
    check_problem(await house.post("/api/v1/servers/127.0.0.1:9/restart", headers=user), 403)
    assert (await house.post("/api/v1/servers/127.0.0.1:9/restart", headers=admin)).status == 202


async def test_a_restart_is_noted_for_the_agent_and_in_the_audit_trail(
    house: Served, slot: SlotFolder, agent: None
) -> None:
    answer = await house.post("/api/v1/servers/127.0.0.1:9/restart")
    assert (answer.status, answer.value["slot"]) == (202, "cpu-1")
    assert (slot.state().restart, slot.state().status) == (True, Status.STOPPED)
    assert [event.name for event in await house.store.run(ops.audit_trail)] == ["audit.server.restart"]


async def test_a_restart_needs_an_agent_and_a_process(house: Served, slot: SlotFolder) -> None:
    check_problem(await house.post("/api/v1/servers/127.0.0.1:9/restart"), 409)
    check_problem(await house.post("/api/v1/servers/gpu77/restart"), 404)
    assert not slot.state().restart
    await house.store.run(ops.pause_server, "http://other:8188")
    said = check_problem(await house.post("/api/v1/servers/other:8188/restart"), 409)
    assert "was not launched by E3" in said["detail"]
