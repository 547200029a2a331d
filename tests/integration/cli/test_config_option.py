"""Which workspace is meant: `-C`, `--config`, `$E3_CONFIG`, the usual places, for every command that takes one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from comfyui_agent.cli.app import app
from support.agents import AgentWorkspace
from support.command_tree import inner_commands
from support.sampling import some
from support.shared_servers import Servers
from support.workspaces import call_e3, drop, job_text, new_workspace, run_e3

WITHOUT_WORKSPACE = {"e3 init", "e3 demo", "e3 sim", "e3 loadtest compare", "e3 db copy", "e3 nodes install"}
SERVERS = "e3 servers"


def commands(command: Any, path: str = "e3") -> Iterator[tuple[str, Any]]:
    """Every command, with the words that call it."""
    inner = inner_commands(command)
    if not inner or (command.invoke_without_command and path != "e3"):
        yield path, command
    for name, each in inner.items():
        yield from commands(each, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(app)))
WITH_WORKSPACE = [path for path in ALL if path not in WITHOUT_WORKSPACE]


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_commands_are_those_of_the_contract() -> None:
    assert set(ALL) == {
        *WITHOUT_WORKSPACE,
        *(
            "e3 doctor",
            "e3 run",
            "e3 monitor",
            "e3 execute",
            "e3 show",
            "e3 star",
            "e3 export",
            "e3 again",
            "e3 takes",
            "e3 use",
            "e3 vary",
            "e3 add",
            "e3 retry",
            "e3 cancel",
            "e3 dismiss",
        ),
        *("e3 queue ls", "e3 queue rm", "e3 queue set-priority", "e3 db migrate", "e3 db check", "e3 db recover"),
        *("e3 db compact", "e3 db backup", "e3 db prune", "e3 audit"),
        *(SERVERS, "e3 servers ls", "e3 servers pause", "e3 servers drain", "e3 servers resume"),
        *("e3 servers explain", "e3 tune", "e3 notify test"),
        *("e3 webhooks add", "e3 webhooks deliveries", "e3 webhooks ls"),
        *("e3 webhooks repeat", "e3 webhooks rm", "e3 webhooks test"),
        *("e3 serve", "e3 gateway", "e3 mcp", "e3 token create", "e3 token ls", "e3 token revoke", "e3 token open"),
        *(
            "e3 wildcards ls",
            "e3 workflow import",
            "e3 workflow inspect",
            "e3 sweep",
            "e3 burst",
            "e3 profile",
            "e3 loadtest",
            "e3 chaos",
            "e3 sla check",
        ),
        *(f"e3 batch {word}" for word in ("ls", "show", "watch", "cancel", "retry", "pause", "resume", "grid")),
        *(f"e3 comfyui {word}" for word in ("up", "down", "status", "logs", "restart")),
        *(f"e3 book {word}" for word in ("create", "ls", "show", "regenerate")),
    }


def test_a_command_on_a_workspace_takes_c() -> None:
    assert [path for path in WITH_WORKSPACE if not {"-C", "--workspace"} <= options_of(ALL[path])] == []


def test_a_command_on_a_workspace_takes_config() -> None:
    assert [path for path in WITH_WORKSPACE if "--config" not in options_of(ALL[path])] == []


LISTINGS = [
    path
    for path in ALL
    if path.split()[-1] not in ("demo", "sim", "serve", "gateway", "mcp", "migrate", "recover")
    and path != "e3 workflow"
]


def test_a_listing_or_report_takes_json() -> None:
    assert [path for path in LISTINGS if "--json" not in options_of(ALL[path])] == []


# Each of them means the workspace that it is told.


def day_and_night(folder: Path) -> tuple[AgentWorkspace, AgentWorkspace]:
    """`day` with the job `day.yaml` and `night` with the job `night.yaml`, both failed."""
    found = []
    for name in ("day", "night"):
        workspace = new_workspace(folder / name)
        call_e3("add", str(drop(workspace, f"{name}.yaml", job_text(inputs={"wrong": 1}))), cwd=workspace.root)
        config = workspace.root / "config/global_config.yaml"
        config.write_text(config.read_text(encoding="utf-8") + f"metrics_log: {name}.ndjson\n", encoding="utf-8")
        found.append(workspace)
    return found[0], found[1]


@pytest.fixture
def two(tmp_path: Path) -> tuple[AgentWorkspace, AgentWorkspace]:
    return day_and_night(tmp_path)


COMMANDS = [
    ["queue", "ls"],
    ["show", "night.yaml"],
    ["retry", "night.yaml"],
    ["retry", "--failed"],
    ["cancel", "night.yaml"],
    ["queue", "set-priority", "night.yaml", "3"],
    ["add", "night.yaml"],
    ["doctor"],
    ["db", "check"],
    ["db", "migrate"],
    ["db", "recover"],
    ["workflow", "inspect", "only_at_night"],
]


@pytest.mark.slow
@pytest.mark.parametrize("how", some(["-C", "--workspace", "--config", "E3_CONFIG"], 2))
def test_every_command_means_the_workspace_that_it_is_told(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, command in enumerate(COMMANDS):
        day, night = day_and_night(tmp_path / str(number))
        (night.root / "workflows/picture.json").rename(night.root / "workflows/only_at_night.json")
        words = ["add", str(night.root / "jobs/processing/image/night.yaml")] if command[0] == "add" else command
        before = [(job.status, job.priority) for job in day.jobs()]
        told = night.root if how in ("-C", "--workspace") else night.root / "config/global_config.yaml"
        with monkeypatch.context() as environment:
            if how == "E3_CONFIG":
                environment.setenv(how, str(told))
            answer = call_e3(*words, *([] if how == "E3_CONFIG" else [how, str(told)]), cwd=day.root)
        said = answer.stdout + answer.stderr
        match command:
            case ["workflow", *_]:
                assert "1.color" in said, command
            case ["db", "check" | "recover"]:
                assert answer.returncode == 0, command
            case _:
                assert (str(night.root) if command[0] in ("db", "doctor") else "night.yaml") in said, command
                assert str(day.root) not in said, command
        assert [(job.status, job.priority) for job in day.jobs()] == before, command


def test_config_wins_over_e3_config_and_both_over_the_usual_place(
    two: tuple[AgentWorkspace, AgentWorkspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, night = two
    third = new_workspace(tmp_path / "third")
    monkeypatch.setenv("E3_CONFIG", str(day.root / "config/global_config.yaml"))
    assert str(day.root) in call_e3("doctor", cwd=third.root).stdout
    named = call_e3("doctor", "--config", str(night.root / "config/global_config.yaml"), cwd=third.root)
    assert str(night.root) in named.stdout
    assert str(day.root) not in named.stdout


@pytest.mark.parametrize(
    ("place", "root"),
    [
        ("config/global_config.yaml", "."),
        ("comfyui_agent/config/global_config.yaml", "."),
        ("mine.yaml", "."),
        ("deep/settings/mine.yaml", "deep/settings"),
        ("deep/config/mine.yaml", "deep"),
        ("deep/comfyui_agent/config/mine.yaml", "deep"),
    ],
)
def test_the_workspace_of_a_configuration_is_the_folder_above_config_else_its_own(
    tmp_path: Path, place: str, root: str
) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("retry_limit: 1\n", encoding="utf-8")
    answer = call_e3("db", "migrate", "--config", place, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / root / "database/comfyui_agent.db").is_file()


def test_the_two_usual_places_are_found_without_being_named_the_first_one_first(tmp_path: Path) -> None:
    second = tmp_path / "comfyui_agent/config/global_config.yaml"
    second.parent.mkdir(parents=True)
    second.write_text("paths: {database: second.db}\n", encoding="utf-8")
    assert "second.db" in call_e3("db", "migrate", cwd=tmp_path).stdout
    first = tmp_path / "config/global_config.yaml"
    first.parent.mkdir()
    first.write_text("paths: {database: first.db}\n", encoding="utf-8")
    assert "first.db" in call_e3("db", "migrate", cwd=tmp_path).stdout
    assert "first.db" in call_e3("db", "migrate", "-C", tmp_path.name, cwd=tmp_path.parent).stdout


@pytest.mark.parametrize("place", ["comfyui_agent/config/mine.yaml", "mine.yaml", "config/other.yaml"])
def test_workflows_yaml_lies_beside_the_configuration(tmp_path: Path, place: str) -> None:
    night = new_workspace(tmp_path / "night")
    config = night.root / place
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("retry_limit: 1\n", encoding="utf-8")
    recipes = "beside:\n  template_path: workflows/picture.json\n  description: Found beside it.\n"
    (config.parent / "workflows.yaml").write_text(recipes, encoding="utf-8")
    answer = call_e3("workflow", "inspect", "beside", "--config", str(config), cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Found beside it." in answer.stdout


def test_run_takes_config_and_the_variable_from_anywhere(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    config = str(night.root / "config/global_config.yaml")
    (tmp_path / "elsewhere").mkdir()
    drop(night, "first.yaml")
    answer = run_e3("run", "--until-idle", "--config", config, cwd=tmp_path / "elsewhere")
    assert answer.returncode == 0, answer.stderr
    drop(night, "second.yaml")
    answer = run_e3("run", "--until-idle", cwd=tmp_path / "elsewhere", E3_CONFIG=config)
    assert answer.returncode == 0, answer.stderr
    assert night.counts().done == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("command", [["queue", "ls"], ["run"], ["execute"], ["add", "x.yaml"]], ids=" ".join)
@pytest.mark.parametrize(
    ("options", "variable", "says"),
    [
        (["--config", "no.yaml"], None, "--config: there is no file"),
        ([], "no.yaml", "E3_CONFIG: there is no file"),
        (["-C", "nowhere"], None, "there is no folder nowhere"),
    ],
    ids=["config", "variable", "folder"],
)
def test_what_is_not_there_is_one_line_and_exit_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    options: list[str],
    variable: str | None,
    says: str,
) -> None:
    if variable:
        monkeypatch.setenv("E3_CONFIG", variable)
    answer = call_e3(*command, *options, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"e3: {says}")
    assert list(tmp_path.iterdir()) == []


def test_the_address_comes_from_the_configuration_and_a_wrong_one_is_named_with_it(tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night")
    (night.root / "config/global_config.yaml").write_text("comfyui: {servers: [gpu1]}\n", encoding="utf-8")
    answer = call_e3("execute", "-C", str(night.root), cwd=tmp_path)
    assert answer.returncode == 2
    assert "global_config.yaml: " in answer.stderr
    assert "a server's address must look like" in answer.stderr
    assert call_e3("execute", "-C", str(night.root), "--server", "ftp://x", cwd=tmp_path).stderr.startswith(
        "e3: --server: "
    )


def test_servers_are_those_of_the_workspace(two: tuple[AgentWorkspace, AgentWorkspace]) -> None:
    day, night = two
    config = night.root / "config/global_config.yaml"
    config.write_text("comfyui: {servers: ['http://127.0.0.1:9', 'http://127.0.0.1:19']}\n", encoding="utf-8")
    shown = json.loads(call_e3("servers", "--json", "-C", str(night.root), cwd=day.root).stdout)
    assert [server["name"] for server in shown] == ["127.0.0.1:9", "127.0.0.1:19"]


# Help.


def test_the_help_of_every_command_has_examples_that_begin_with_it() -> None:
    for path in ALL:
        if path == SERVERS:  # its help is that of the group; ls has the examples
            continue
        answer = call_e3(*path.split()[1:], "--help")
        assert (answer.returncode, answer.stderr) == (0, ""), path
        examples = answer.stdout.partition("Examples")[2].partition("╭")[0]
        begins = (path, path.removesuffix(" ls"))
        assert any(line.strip().startswith(begins) for line in examples.splitlines()), f"{path}: {examples}"


def test_every_option_of_every_command_is_explained() -> None:
    unexplained = [
        (path, parameter.name)
        for path, command in ALL.items()
        for parameter in command.params
        if not getattr(parameter, "hidden", False) and not getattr(parameter, "help", None)
    ]
    assert unexplained == []
