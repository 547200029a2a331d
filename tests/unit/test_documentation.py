"""The documentation names everything that people can type or meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from comfyui_agent.cli.app import app
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.config.settings import Settings
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.tokens import Role
from comfyui_agent.engine.intake.job_file import JobFile
from comfyui_agent.lab import fault_proxy
from support.command_tree import inner_commands

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def options_of(command: str) -> list[str]:
    found = typer.main.get_command(app).load(command)  # type: ignore[attr-defined]
    return [option for parameter in found.params for option in parameter.opts if option not in ("--help", "-h")]


@pytest.mark.parametrize("option", options_of("sim"))
def test_every_switch_of_the_simulator_is_documented(option: str) -> None:
    assert f"`{option}" in page("docs/simulator.md")


def test_every_command_is_in_the_readme() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    readme = page("README.md")
    assert [command for command in commands if f"e3 {command}" not in readme] == []


@pytest.mark.parametrize("kind", list(FailureClass))
def test_every_failure_class_is_documented(kind: FailureClass) -> None:
    assert f"`{kind}`" in page("docs/client.md")


@pytest.mark.parametrize("result", list(Cancellation))
def test_every_result_of_cancelling_is_documented(result: Cancellation) -> None:
    assert f"`{result.value}`" in page("docs/client.md")


OUR_FAULTS = [kind.__name__ for kind in fault_proxy.Fault.__subclasses__() if kind.__module__ == fault_proxy.__name__]


@pytest.mark.parametrize("fault", OUR_FAULTS)
def test_every_fault_is_documented(fault: str) -> None:
    assert f"`{fault}`" in page("docs/faults.md")


def test_every_link_leads_somewhere() -> None:
    names = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
    links = [(name, part.split(")")[0]) for name in names for part in page(name).split("](")[1:]]
    inside = [(name, target) for name, target in links if "://" not in target]
    assert [(name, target) for name, target in inside if not _leads_somewhere((ROOT / name).parent, target)] == []


def _leads_somewhere(folder: Path, target: str) -> bool:
    file, _, heading = target.partition("#")
    if not (folder / file).exists():
        return False
    if not file.endswith(".md"):
        return not heading
    lines = (folder / file).read_text(encoding="utf-8").splitlines()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in lines if line.startswith("#")}
    return not heading or heading in headings


def commands_below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    inner = inner_commands(command)
    yield words, command
    for name, each in inner.items():
        yield from commands_below(each, f"{words} {name}")


ALL_COMMANDS = [words for words, _ in commands_below(typer.main.get_command(app), "e3")][1:]


def test_every_command_is_described() -> None:
    lines = page("docs/commands.md").splitlines()
    for words in ALL_COMMANDS:
        group, _, name = words.rpartition(" ")
        rows = [line.split("|")[1] for line in lines if line.startswith(f"| `{group}")]
        assert any(re.search(rf"\b{re.escape(name)}\b", row) for row in rows), words


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_every_setting_is_documented() -> None:
    text = page("docs/configuration.md")
    assert [key for key in keys_of(Settings) if f"`{key}`" not in text] == []


@pytest.mark.parametrize("key", list(keys_of(JobFile)))
def test_every_key_of_a_job_file_is_documented(key: str) -> None:
    assert f"`{key}`" in page("docs/job_files.md")


def test_every_event_is_documented() -> None:
    text = page("docs/events.md")
    assert [name for name in EventName if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    "room", [p.name for p in (ROOT / "src/comfyui_agent").iterdir() if (p / "__init__.py").exists()]
)
def test_every_room_is_on_the_map(room: str) -> None:
    assert f"`{room}/`" in page("docs/architecture.md")


def attacks() -> list[list[str]]:
    """Who, what they try, what stops it, which tests: the rows of the last table."""
    table = page("docs/security.md").rpartition("|---|---|---|---|\n")[2]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith("|")]


def test_every_attack_names_what_stops_it_and_tests_that_are_there() -> None:
    assert attacks()
    for attack in attacks():
        assert len(attack) == 4, attack
        named = re.findall(r"`([^`]+)`", attack[3])
        assert all((*attack[1:], named)), attack
        for name in named:
            assert list((ROOT / "tests").glob(name.replace("…", "*").rstrip("/"))), (attack[1], name)


@pytest.mark.parametrize("role", list(Role))
def test_every_role_has_a_column(role: Role) -> None:
    assert f" `{role}` |" in page("docs/security.md").partition("|---|")[0]
