"""`e3 mcp`: tools on stdin and stdout, for an AI agent that starts it."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from support.agents import AgentWorkspace
from support.mcp_clients import agent_with
from support.servers import ServerProcess
from support.workspaces import call_e3, new_workspace


@pytest.fixture
def workspace(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "workspace", comfyui_simulator().url)


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_an_agent_renders_with_it(workspace: AgentWorkspace) -> None:
    """Without a database at first, and without an agent of E3, which it says."""
    async with agent_with(workspace.root) as agent:
        made = await agent.ask("submit_job", workflow="picture", inputs={"color": 0xFF0000}, key="red")
        assert made["next"].startswith("No agent of E3 works this queue off")
        assert workspace.finish() == 0
        assert (await agent.ask("wait", id="red", seconds=50))["state"] == "Done"
        shown, image = await agent.see(id="red")
        assert Path(shown["address"]).is_file()
        assert image is not None
        with Image.open(io.BytesIO(base64.b64decode(image.data))) as picture:
            red, green, blue = picture.convert("RGB").getpixel((5, 5))  # type: ignore[misc]
        assert red > 200 > 60 > max(green, blue)
        again = await agent.ask("submit_job", workflow="picture", inputs={"color": 0xFF0000}, key="red")
        assert (again["is_new"], again["state"]) == (False, "Done")


def test_nothing_but_the_protocol_is_on_stdout_and_the_end_of_stdin_ends_it(tmp_path: Path) -> None:
    new_workspace(tmp_path)
    (tmp_path / "config" / "workflows.yaml").write_text("broken: [", encoding="utf-8")
    asked = [HELLO, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_workflows"}}]
    said = "".join(json.dumps(each) + "\n" for each in asked) + "this is no JSON\n"
    command = [sys.executable, "-m", "comfyui_agent", "mcp", "-v", "-C", str(tmp_path)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]
        process.stdin.write(said)
        process.stdin.flush()
        lines = [process.stdout.readline(), process.stdout.readline()]
        rest, _ = process.communicate(timeout=60)
    answers = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert process.returncode == 0
    assert [each["id"] for each in answers][:2] == [1, 2]
    assert answers[1]["result"]["isError"]
    assert "workflows.yaml" in answers[1]["result"]["content"][0]["text"]


def test_what_is_no_workspace_is_one_line_on_stderr(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "nowhere", "there is no folder"), (tmp_path, "there is no workspace")):
        ended = call_e3("mcp", "-C", str(folder))
        assert (ended.returncode, ended.stdout) == (2, "")
        assert words in ended.stderr
    assert not list(tmp_path.iterdir())
