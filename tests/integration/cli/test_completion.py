"""Tab: commands, options and names of jobs, as bash, zsh and fish ask for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.agents import AgentWorkspace
from support.sampling import some
from support.workspaces import drop, everything_in, new_workspace, run_e3

SHELLS = ("bash", "zsh", "fish")
NAMES = ("castle.yaml", "knight_1.yaml", "knight_2.yaml")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> AgentWorkspace:
    """A workspace with three jobs."""
    workspace = new_workspace(tmp_path_factory.mktemp("completion") / "night")
    files = [str(drop(workspace, name)) for name in NAMES]
    assert run_e3("add", *files, cwd=workspace.root).returncode == 0
    return workspace


def offered(shell: str, line: str, cwd: Path) -> list[str]:
    """What a shell is told when Tab is pressed at the end of a line."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    answer = run_e3(cwd=cwd, _E3_COMPLETE=f"complete_{shell}", **asked)
    assert (answer.returncode, answer.stderr) == (0, "")
    if shell != "zsh":
        return [each.partition("\t")[0] for each in answer.stdout.splitlines() if each]
    inner = answer.stdout.partition("((")[2].rpartition("))")[0]
    return [each.split('"')[1] for each in inner.splitlines()]


@pytest.mark.parametrize("shell", some(SHELLS, 3))
def test_names_of_jobs_are_offered(night: AgentWorkspace, shell: str) -> None:
    assert sorted(offered(shell, "e3 show knight", night.root)) == ["knight_1.yaml", "knight_2.yaml"]


@pytest.mark.parametrize("shell", some(["bash", "zsh"], 2))
def test_commands_and_options_are_offered(night: AgentWorkspace, shell: str) -> None:
    assert {"init", "doctor", "run", "add", "queue"} <= set(offered(shell, "e3 ", night.root))
    assert offered(shell, "e3 queue s", night.root) == ["set-priority"]
    assert {"--until-idle", "--config", "--json", "--server"} <= set(offered(shell, "e3 run --", night.root))


@pytest.mark.parametrize("command", some(["retry", "cancel", "queue set-priority"], 3))
def test_every_command_on_jobs_offers_their_names(night: AgentWorkspace, command: str) -> None:
    assert sorted(offered("bash", f"e3 {command} ", night.root)) == sorted(NAMES)


def test_ids_of_workflows_are_offered(night: AgentWorkspace) -> None:
    found = offered("bash", "e3 workflow inspect wf_", night.root)
    assert found == ["wf_realistic_portrait", "wf_image_to_image", "wf_text_to_video"]


def test_the_workspace_that_the_line_names_is_asked(night: AgentWorkspace, tmp_path: Path) -> None:
    assert offered("bash", f"e3 show -C {night.root} cas", tmp_path) == ["castle.yaml"]
    assert offered("bash", "e3 show cas", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--config", "--database"])
def test_the_configuration_or_database_that_the_line_names_is_asked(
    night: AgentWorkspace, tmp_path: Path, option: str
) -> None:
    file = night.database if option == "--database" else night.root / "config/global_config.yaml"
    assert offered("bash", f"e3 show {option} {file} cas", tmp_path) == ["castle.yaml"]


@pytest.mark.parametrize("spoil", ["config/global_config.yaml", "database/comfyui_agent.db"])
def test_when_something_is_wrong_nothing_is_offered_and_nothing_said(tmp_path: Path, spoil: str) -> None:
    workspace = new_workspace(tmp_path / "night")
    (workspace.root / spoil).write_text("[", encoding="utf-8")
    assert offered("bash", "e3 show k", workspace.root) == []


def test_asking_changes_nothing(night: AgentWorkspace) -> None:
    before = everything_in(night.root)
    offered("bash", "e3 show k", night.root)
    assert everything_in(night.root) == before


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_for_a_shell_is_printed_and_calls_e3(shell: str, tmp_path: Path) -> None:
    answer = run_e3(cwd=tmp_path, _E3_COMPLETE=f"source_{shell}")
    assert answer.returncode == 0
    assert f"_E3_COMPLETE=complete_{shell}" in answer.stdout
    assert "e3" in answer.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_bash_itself_completes_with_the_script(night: AgentWorkspace, tmp_path: Path) -> None:
    """Source what is printed, and ask the function that it defines, as Tab does."""
    command = tmp_path / "e3"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m comfyui_agent "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    script = run_e3(cwd=tmp_path, _E3_COMPLETE="source_bash").stdout
    asking = f"{script}\nCOMP_WORDS=(e3 show knight); COMP_CWORD=2\n_e3_completion {command}\n"
    asking += 'printf "%s\\n" "${COMPREPLY[@]}"'
    answer = subprocess.run(
        ["bash", "-c", asking], cwd=night.root, capture_output=True, text=True, timeout=30, check=False
    )
    assert sorted(answer.stdout.split()) == ["knight_1.yaml", "knight_2.yaml"], answer.stderr
