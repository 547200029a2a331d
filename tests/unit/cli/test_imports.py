"""A command starts quickly because it imports only what it uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.workspaces import call_e3, new_workspace

HEAVY = ("aiohttp", "PIL", "watchfiles", "rich.live", "numpy", "mcp")
"""Each of them takes longer than all that `e3 --version` has to do."""
MODULES = """
import atexit, json, sys
atexit.register(lambda: print("modules:" + json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv[0] = "e3"
from comfyui_agent.cli.app import main
main()
"""


def imported_by(folder: Path, *arguments: str) -> set[str]:
    """The modules that are there when a command ends."""
    answer = subprocess.run(
        [sys.executable, "-c", MODULES, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: list[str] = json.loads(answer.stderr.rpartition("modules:")[2])
    return set(found)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imports") / "night"
    call_e3("db", "migrate", cwd=new_workspace(folder).root)
    return folder


@pytest.mark.parametrize(
    ("command", "besides"),
    [
        (["--version"], ("rich", "pydantic", "yaml", "apsw", "yarl", "comfyui_agent.store", "comfyui_agent.engine")),
        (["--help"], ("pydantic", "yaml", "apsw", "yarl", "comfyui_agent.store", "comfyui_agent.engine")),
        (["run", "--help"], ("yaml", "comfyui_agent.engine")),
        (["queue", "ls"], ("rich", "comfyui_agent.engine", "comfyui_agent.comfy.client")),
        (["queue", "ls", "--json"], ("rich", "comfyui_agent.engine", "comfyui_agent.comfy.client")),
        (["db", "check"], ("rich", "comfyui_agent.engine", "comfyui_agent.comfy.client")),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_quick_command_imports_nothing_heavy(night: Path, command: list[str], besides: tuple[str, ...]) -> None:
    found = imported_by(night, *command)
    assert "typer" in found
    assert not found & {*HEAVY, *besides}


def test_retry_needs_no_client_and_no_board(night: Path) -> None:
    found = imported_by(night, "retry", "--failed")
    assert not found & {"aiohttp", "watchfiles", "rich.live", "comfyui_agent.comfy.client"}


def test_retry_needs_no_pillow(night: Path) -> None:
    assert "PIL" not in imported_by(night, "retry", "--failed")
