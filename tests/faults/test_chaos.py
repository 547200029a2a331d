"""Chaos can fail: an agent that lacks a recovery is found out by the scenario that asks for it, and by its name."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.chaos.findings import ScenarioOutcome
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.suite import SCENARIOS, run_scenario
from comfyui_agent.lab.payloads import CHECKOUT, read_payload
from comfyui_agent.lab.reports.chaos import ScenarioResult
from support.agents import AgentWorkspace, server_queue, sized_picture
from support.command import e3
from support.servers import REAL_DIR, ServerProcess, real_comfyui, simulator

WEAKENED = Path(__file__).parents[1] / "support" / "weakened_agent.py"
PATIENCE = 5.0
slow = pytest.mark.slow


async def chaos_with(weakness: str, scenario: str, folder: Path, patience: float = PATIENCE) -> ScenarioResult:
    payload = read_payload(CHECKOUT / "book_small.json")
    agent = [sys.executable, str(WEAKENED), weakness, "run"]
    plan = ChaosPlan(payload, agent=agent, is_quick=True, patience=patience)
    return await run_scenario(SCENARIOS[scenario], plan, folder, Sla())


@pytest.mark.parametrize(
    ("scenario", "weakness", "check"),
    [
        ("prompt-validation", "no-second-try", "tries of the malformed page"),
        pytest.param("prompt-validation", "no-regeneration", "needs_regeneration", marks=slow),
        pytest.param("gpu-oom", "never-frees", "memory", marks=slow),
        pytest.param("gpu-oom", "no-retry-after-oom", "the next try", marks=slow),
        pytest.param("gpu-oom", "no-wait-after-oom", "the wait before it", marks=slow),
        pytest.param("network-blip", "posts-again", "posts", marks=slow),
        pytest.param("network-blip", "gives-up-on-lost-answers", "the pages", marks=slow),
        pytest.param("network-blip", "renders-again-what-is-unsure", "renders at the server", marks=slow),
        pytest.param("comfyui-crash", "waits-for-ever", "every page", marks=slow),
        pytest.param("comfyui-crash", "no-alert", "an alert", marks=slow),
        pytest.param("comfyui-crash", "charges-losses", "retries charged to pages", marks=slow),
        pytest.param("comfyui-crash", "gives-up-what-was-lost", "what was lost", marks=slow),
        pytest.param("artificial-latency", "gives-up-on-slow-pages", "the pages", marks=slow),
        pytest.param("artificial-latency", "impatient", "patience", marks=slow),
    ],
)
async def test_a_recovery_that_is_switched_off_is_found_out(
    scenario: str, weakness: str, check: str, tmp_path: Path
) -> None:
    result = await chaos_with(weakness, scenario, tmp_path)
    assert result.verdict == ScenarioOutcome.FAILED, result.reason
    failed = [found.what for found in result.checks if not found.passed]
    assert check in failed, result.as_json()


@pytest.mark.parametrize("weakness", [pytest.param("dies-at-work", marks=slow), "does-not-start"])
async def test_an_agent_that_dies_fails_and_is_not_waited_for(weakness: str, tmp_path: Path) -> None:
    result = await chaos_with(weakness, "prompt-validation", tmp_path, patience=60.0)
    assert result.verdict == ScenarioOutcome.FAILED
    assert re.match("every page: expected ends, saw [34] of 4 did not; the agent is gone", result.reason), result.reason
    assert (result.seconds or 0.0) < 30


@slow
async def test_a_server_that_takes_a_while_to_die_is_not_held_against_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = ServerProcess.kill

    def die_slowly(process: ServerProcess) -> None:
        kill(process)
        time.sleep(3.0)

    monkeypatch.setattr(ServerProcess, "kill", die_slowly)
    plan = ChaosPlan(read_payload(CHECKOUT / "book_small.json"), is_quick=True, patience=2 * PATIENCE)
    result = await run_scenario(SCENARIOS["comfyui-crash"], plan, tmp_path, Sla())
    assert result.verdict == ScenarioOutcome.PASSED, result.reason


@slow
async def test_an_agent_that_tries_for_ever_is_found_out_in_the_end(tmp_path: Path) -> None:
    result = await asyncio.wait_for(chaos_with("rejected-for-ever", "prompt-validation", tmp_path), 6 * PATIENCE)
    assert result.verdict == ScenarioOutcome.FAILED
    assert "tries of the malformed page" in [found.what for found in result.checks if not found.passed]


def alerts_of(workspace: AgentWorkspace) -> list[str]:
    return [event["message"] for event in workspace.events() if event["event"] == "alert.server"]


@slow
def test_a_server_that_dies_with_our_prompts_is_an_alert_and_one_that_dies_idle_is_none(tmp_path: Path) -> None:
    server = simulator(tmp_path / "sim", "--render-seconds", "30").start()
    workspace = AgentWorkspace(tmp_path / "workspace", [server.url])
    try:
        workspace.start()
        told = workspace.events
        workspace.wait_for(lambda: server.url in workspace.tail(), "the agent to look at its server")
        server.kill()
        workspace.wait_for(lambda: any(event["event"] == "server.down" for event in told()), "the loss")
        assert alerts_of(workspace) == []
        server.start()
        workspace.submit(2)
        workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "both prompts to be there")
        server.kill()
        workspace.wait_for(lambda: bool(alerts_of(workspace)), "the alert")
        server.start()
        workspace.wait_for(
            lambda: sum(event["event"] == "job.retry" for event in told()) == 2, "both prompts to be requeued"
        )
        (message,) = alerts_of(workspace)
        assert message.startswith("gone with 2 of our prompts: ")
    finally:
        workspace.stop_all()
        server.kill()


def page_that_takes_a_moment() -> dict[str, Any]:
    """A picture scaled up and down again: long enough for a server to be killed in the middle of it."""
    graph = sized_picture(64)
    for node_id, source, edge in (("3", "1", 4096), ("4", "3", 64)):
        scaling = {"upscale_method": "lanczos", "width": edge, "height": edge, "crop": "disabled"}
        graph[node_id] = {"class_type": "ImageScale", "inputs": {"image": [source, 0], **scaling}}
    graph["2"]["inputs"]["images"] = ["4", 0]
    return graph


@pytest.mark.real_comfyui
@pytest.mark.timeout(900)
@pytest.mark.skipif(not REAL_DIR, reason="needs a checkout to start (E3_COMFYUI_DIR)")
def test_all_five_pass_in_front_of_a_real_server_that_is_started_killed_and_started_again(tmp_path: Path) -> None:
    real = real_comfyui(tmp_path / "comfyui")
    command = shlex.join(str(Path(REAL_DIR) / part) if part == "main.py" else part for part in real.command)
    workflow = tmp_path / "page.json"
    workflow.write_text(json.dumps(page_that_takes_a_moment()))
    where = ["--server", real.url, "--start-command", command, "--workflow", str(workflow)]
    ended = e3("chaos", "all", "--quick", "--json", *where, "--patience", "60", cwd=tmp_path, timeout=850)
    print(ended.stderr)  # noqa: T201 - what happened when, for whoever runs it with -s
    report = json.loads(ended.stdout)
    assert {each["scenario"]: each["verdict"] for each in report["results"]} == dict.fromkeys(SCENARIOS, "passed")
    assert ended.returncode == 0
    assert report["environment"]["servers"][0]["comfyui_version"]
