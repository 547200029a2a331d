"""The scheduled runs of chaos: each cadence has its file, and what a file calls exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from comfyui_agent.cli.app import app
from support.command_tree import inner_commands

WORKFLOWS = Path(__file__).parents[4] / ".github" / "workflows"
FILES = ("chaos-weekly.yml", "chaos-full.yml")
CRON_FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def read(name: str) -> dict[Any, Any]:
    document = yaml.safe_load((WORKFLOWS / name).read_text())
    document["on"] = document.pop(True)  # YAML takes the word on for a truth
    return dict(document)


def jobs(name: str) -> list[dict[str, Any]]:
    return list(read(name)["jobs"].values())


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in jobs(name) for step in job["steps"]]


def commands(name: str) -> list[list[str]]:
    """Every call of `e3`, in words."""
    lines = [
        line.strip().removesuffix("&")
        for step in steps(name)
        for line in step.get("run", "").replace("\\\n", " ").splitlines()
    ]
    return [shlex.split(re.sub(r"\$\{\w+:\+(--[\w-]+) (.+?)\}", r"\1 \2", line)) for line in lines if line[:3] == "e3 "]


@pytest.mark.parametrize("name", FILES)
def test_what_a_file_calls_exists_with_its_options(name: str) -> None:
    for words in commands(name):
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while rest and rest[0] in inner_commands(command):
            command = inner_commands(command)[rest.pop(0)]
        assert command.name != "e3", f"there is no {' '.join(words[:3])}"
        assert getattr(command, "invoke_without_command", True), f"{' '.join(words)} is only a part of a command"
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, words


def test_the_quick_set_runs_every_week_and_everything_before_a_release_and_by_hand() -> None:
    weekly, full = read("chaos-weekly.yml")["on"], read("chaos-full.yml")["on"]
    assert [words[1:3] for words in commands("chaos-weekly.yml")] == [["chaos", "quick"]]
    assert "workflow_dispatch" in weekly
    assert full["release"] == {"types": ["published"]}
    assert full["push"] == {"tags": ["v*"]}
    assert {"server", "start_command"} <= set(full["workflow_dispatch"]["inputs"])
    for job in jobs("chaos-full.yml"):
        text = "\n".join(step.get("run", "") for step in job["steps"])
        assert all(each in text for each in ("e3 chaos all", "e3 loadtest", "e3 sla check")), text
        assert "--junit" in text


def test_a_week_has_one_moment_that_the_schedule_means() -> None:
    (schedule,) = read("chaos-weekly.yml")["on"]["schedule"]
    fields = schedule["cron"].split()
    assert len(fields) == 5
    for field, (low, high) in zip(fields, CRON_FIELDS, strict=True):
        assert field == "*" or low <= int(field) <= high, schedule
    assert [field == "*" for field in fields] == [False, False, True, True, False], "once a week"


@pytest.mark.parametrize("name", FILES)
def test_a_run_may_read_and_nothing_else_and_its_parts_have_versions(name: str) -> None:
    assert read(name)["permissions"] == {"contents": "read"}
    for job in jobs(name):
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 180
    for step in steps(name):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", step["uses"]), step["uses"]


@pytest.mark.parametrize("name", FILES)
def test_reports_are_kept_also_of_a_run_that_failed_and_no_failure_is_swallowed(name: str) -> None:
    for job in jobs(name):
        assert "continue-on-error" not in job
        last = job["steps"][-1]
        assert last["uses"].startswith("actions/upload-artifact@")
        assert last["if"] == "${{ !cancelled() }}"
        written = [words[words.index("--output") + 1] for words in commands(name) if "--output" in words]
        assert written
        assert all(path.startswith(last["with"]["path"]) for path in written)
        for step in job["steps"]:
            assert "continue-on-error" not in step
            assert "|| true" not in step.get("run", "")


@pytest.mark.parametrize("name", FILES)
def test_what_people_type_never_becomes_a_part_of_a_script(name: str) -> None:
    assert not [step for step in steps(name) if "${{" in step.get("run", "")]
