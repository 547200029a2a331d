"""A server that accepts, answers and never moves, before a whole agent: it ends, and everyone can see why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.engine import run as running
from comfyui_agent.engine.agent import Agent
from comfyui_agent.sim.process import ServerProcess
from comfyui_agent.store.connect import open_store
from support.workspaces import call_e3, new_workspace

SETTINGS = {
    "E3_COMFYUI__STALL_SECONDS": "0.3",
    "E3_COMFYUI__FAILOVER_SECONDS": "0.3",
    "E3_RETRY_BACKOFF_SECONDS": "0.1",
    "E3_POLL_INTERVAL_MS": "100",
}


async def work(folder: Path) -> tuple[Agent, int]:
    """An agent that works until nothing is left, or nothing can go on."""
    store = open_store(folder / "database" / "comfyui_agent.db")
    try:
        agent = Agent(store, load_workspace(folder, SETTINGS))
        return agent, await asyncio.wait_for(agent.run(until_idle=True), 60)
    finally:
        await store.close()


@pytest.mark.timeout(120)
def test_an_agent_ends_when_its_only_server_is_stuck_and_everyone_can_see_it(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "INTERRUPT_SECONDS", 0.3)
    monkeypatch.setattr(running, "TICK", 0.05)
    server = comfyui_simulator("--hang-after", "0")
    workspace = new_workspace(tmp_path, server.url)
    workspace.submit(2)

    agent, failures = asyncio.run(work(tmp_path))
    assert (failures, workspace.counts().pending) == (0, 2)
    assert f"{server.url} is stuck since" in agent.blocked

    (shown,) = json.loads(call_e3("servers", "--json", "-C", str(tmp_path)).stdout)
    assert (shown["state"], shown["queue_running"]) == ("stuck", 1)
    assert shown["stuck_since"][:19] in agent.blocked
    told = call_e3("servers", "-C", str(tmp_path)).stdout
    assert f"since {shown['stuck_since'][:19]} UTC: a prompt there does not end" in told
    doctor = call_e3("doctor", "-C", str(tmp_path))
    assert doctor.returncode == 1
    assert f"stuck since {shown['stuck_since'][:19]} UTC" in doctor.stdout

    again, _ = asyncio.run(work(tmp_path))
    assert again.blocked == agent.blocked, "the next agent knows, and gives it nothing"
    alerts = [event["message"] for event in workspace.events() if event["event"] == "alert.server"]
    assert len([message for message in alerts if message.startswith("stuck")]) == 1
