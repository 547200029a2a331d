"""The example of docs/webhooks.md runs: a program is told of a job by a real agent, and acts once on each message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.webhooks import mint_secret
from comfyui_agent.engine.webhook_receiver import Receiver
from comfyui_agent.sim.process import ServerProcess
from support.workspaces import drop, new_workspace, run_e3

EXAMPLE = Path(__file__).parents[2] / "examples" / "webhook_receiver.py"
SECRET = mint_secret()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The example, at a port of its own."""
    command = [sys.executable, str(EXAMPLE), "0", str(tmp_path / "seen.db")]
    environment = {**os.environ, "WEBHOOK_SECRET": SECRET}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield process
        process.kill()


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().rstrip("\n")


@pytest.mark.timeout(90)
def test_the_example_is_told_of_a_job_by_an_agent_that_leaves_when_nothing_is_left(
    comfyui_simulator: Callable[..., ServerProcess], program: subprocess.Popen[str], tmp_path: Path
) -> None:
    url = line(program).removeprefix("listening at ")
    workspace = new_workspace(tmp_path / "house", comfyui_simulator().url)
    hook = {"name": "backend", "url": url, "events": "job", "secret": "env:HOOK", "allow": ["127.0.0.1"]}
    drop(workspace, "knight.yaml")
    environment = {"E3_WEBHOOKS": json.dumps([hook]), "HOOK": SECRET}
    ended = run_e3("run", "--until-idle", "-C", str(workspace.root), E3_UI__ENABLED="false", **environment)
    assert ended.returncode == 0, ended.stderr
    assert [line(program), line(program)] == [f"job.{what} knight.yaml /api/v1/jobs/1" for what in ("started", "done")]


async def test_the_example_acts_once_and_on_nothing_that_is_not_signed(program: subprocess.Popen[str]) -> None:
    url = line(program).removeprefix("listening at ")
    ours, other = [Receiver(url, {"secret": secret, "allow": ["127.0.0.1"]}) for secret in (SECRET, mint_secret())]
    message = json.dumps({"type": "job.done", "data": {"config_name": "fox"}})
    assert (await other.send("e3_1", message)).status == 401
    assert [(await ours.send(name, message)).status for name in ("e3_1", "e3_1", "e3_2")] == [204] * 3
    for receiver in (ours, other):
        await receiver.close()
    assert [line(program), line(program)] == ["job.done fox ", "job.done fox "]
    program.kill()
    assert program.stdout is not None
    assert program.stdout.read() == "", "the second of the same id was not acted on"
