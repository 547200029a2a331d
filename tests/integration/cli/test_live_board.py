"""The live board, in a real terminal: what it shows, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.engine.live_runs import are_previews_wanted
from comfyui_agent.sim.process import ServerProcess
from support.agents import AgentWorkspace
from support.hostile import Question, Reply, Writer, hostile_server, says
from support.sampling import some
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.terminal import Terminal, in_terminal
from support.workspaces import NOWHERE, QUICK, call_e3, drop, job_text, new_workspace

SENTENCE = re.compile(r"\d+ of \d+ done")
STEP = re.compile(r"◐  knight_\d\.yaml  [━─]+ KSampler, step \d+ of 30  127\.0\.0\.1:\d+")
RATE = re.compile(r"\d of 6 done, \d+\.\d images/(s|min), about \d+ (s|min) left")
COLOUR = re.compile(r"\x1b\[[0-9;]*3\d[0-9;]*m")
MESSAGE = "clear\x1b[2J\x1b]0;owned\x07\x9b31mred\x08"


def portrait(seed: int) -> str:
    """A job whose sampler takes thirty steps."""
    return job_text(workflow_id="wf_realistic_portrait", inputs={"prompt": "a knight", "seed": seed, "steps": 30})


@pytest.fixture
def slow(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> AgentWorkspace:
    """Six portraits of a second each."""
    workspace = new_workspace(tmp_path / "night", comfyui_simulator("--render-seconds", "1").url)
    for number in range(6):
        drop(workspace, f"knight_{number}.yaml", portrait(number))
    return workspace


def is_clean(terminal: Terminal) -> bool:
    """Whether the terminal is as before: cursor there, nothing of the board left, below the last line."""
    screen = terminal.screen
    return screen.has_cursor and screen.strange == [] and screen.column == 0 and not SENTENCE.search(screen.text)


def test_it_shows_how_it_stands_every_step_the_rate_and_the_time_that_is_left(slow: AgentWorkspace) -> None:
    with in_terminal("run", "--until-idle", cwd=slow.root, environment=QUICK) as terminal:
        terminal.wait_for("0 of 6 done")
        terminal.wait_for(lambda: bool(STEP.search(terminal.text)))
        terminal.wait_for("waiting at the server")
        terminal.wait_for(lambda: bool(RATE.search(terminal.text)))
        assert not are_previews_wanted(slow.root / "database" / "agents"), "a terminal shows no pictures"
        assert terminal.finish() == 0
    lines = [line for line in terminal.screen.text.splitlines() if line]
    assert lines[0].startswith("Watching jobs/processing, rendering with ")
    assert [line.split("  ")[1:3] for line in lines[1:-1]] == [["● Done", f"knight_{n}.yaml"] for n in range(6)]
    assert lines[-1] == "6 job files taken in. In all: 6 done, 0 need attention, 0 pending."
    assert is_clean(terminal)


@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM], 2), ids=["ctrl-c", "sigterm"])
def test_stopped_in_the_middle_it_leaves_the_terminal_clean(slow: AgentWorkspace, number: signal.Signals) -> None:
    with in_terminal("run", cwd=slow.root) as terminal:
        terminal.wait_for("step ")
        if number == signal.SIGINT:
            terminal.press_ctrl_c()
        else:
            terminal.process.send_signal(number)
        assert terminal.finish() == 128 + number
    assert is_clean(terminal), terminal.screen.text
    assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_without_colour_it_loses_nothing(slow: AgentWorkspace) -> None:
    with in_terminal("run", cwd=slow.root, environment={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for(lambda: bool(STEP.search(terminal.text)))
        terminal.wait_for("● Done")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.finish()
    assert not COLOUR.search(terminal.raw)
    assert is_clean(terminal)


@pytest.mark.parametrize("columns", some([20, 40], 2))
def test_a_narrow_terminal_and_a_long_name_do_not_break_it(slow: AgentWorkspace, columns: int) -> None:
    name = "k" * 200 + ".yaml"
    drop(slow, name, portrait(99) + "priority: 1\n")
    with in_terminal("run", cwd=slow.root, columns=columns) as terminal:
        terminal.wait_for("of 7 done")
        terminal.wait_for(lambda: name in terminal.text.replace("\r\n", ""))
        terminal.process.send_signal(signal.SIGTERM)
        terminal.finish()
    assert is_clean(terminal), terminal.screen.text
    assert f"● Done  {name}" in terminal.screen.text.replace("\n", "")


@pytest.mark.slow
def test_a_narrow_terminal_still_shows_the_step_in_one_line(slow: AgentWorkspace) -> None:
    with in_terminal("run", cwd=slow.root, columns=40) as terminal:
        terminal.wait_for("● Done")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.finish()
    assert re.search(r"◐  knight_\d\.yaml.*step \d+ of 30", terminal.text)


@pytest.mark.slow
def test_a_terminal_with_few_rows_shows_the_sentence(slow: AgentWorkspace) -> None:
    with in_terminal("run", cwd=slow.root, rows=3) as terminal:
        terminal.wait_for(lambda: bool(re.search("[1-6] of 6 done", terminal.text)))
        terminal.process.send_signal(signal.SIGTERM)
        terminal.finish()
    assert terminal.screen.has_cursor


# Names and texts from outside.


@pytest.mark.slow
def test_a_name_that_looks_like_markup_is_shown_as_it_is_on_the_board(slow: AgentWorkspace) -> None:
    drop(slow, "[red]first.yaml", portrait(99) + "priority: 1\n")
    with in_terminal("run", cwd=slow.root) as terminal:
        terminal.wait_for("● Done  [red]first.yaml")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.finish()
    assert re.search(r"◐  \[red\]first\.yaml  ", terminal.text)


@pytest.mark.slow
def test_a_name_that_looks_like_wrong_markup_does_not_end_the_board(slow: AgentWorkspace) -> None:
    call_e3("db", "migrate", cwd=slow.root)
    row = "INSERT INTO jobs (config_name, job_type, workflow_id, status, priority, inputs, file_path)"
    inputs = '{"2.text": "a fox", "5.seed": 1, "5.steps": 1}'
    values = (
        f"('[/red]first', 'T2I', 'wf_realistic_portrait', 'pending', 1, '{inputs}', 'jobs/finished/image/first.png')"
    )
    in_the_shell(slow.database, f"{row} VALUES {values}")
    with in_terminal("run", "--until-idle", cwd=slow.root) as terminal:
        terminal.wait_for("● Done  [/red]first")
        assert terminal.finish(60) == 0
    assert "Traceback" not in terminal.text
    assert "3 of 7 done" in terminal.text


ANSWERS = {
    "GET /system_stats": says({"system": {"comfyui_version": "0.7.0"}, "devices": []}),
    "GET /queue": says({"queue_running": [], "queue_pending": []}),
    "GET /history": says({}),
    "GET /object_info": says({}),
}


async def rejected_with(message: str, tmp_path: Path, *command: str) -> Terminal:
    """One job for a server that refuses it with this message, in a terminal, to the end."""
    problem = {"error": {"type": "bad", "message": message, "details": message}, "node_errors": {}}
    return await ended_with({"POST /prompt": says(problem, status=400)}, tmp_path, *command)


async def failed_with(message: str, tmp_path: Path, *command: str) -> Terminal:
    """One job whose node raises with this message."""
    sent: list[str] = []

    async def take(question: Question, writer: Writer) -> None:
        sent.append(json.loads(question.body)["prompt_id"])
        await says({"prompt_id": sent[-1], "number": 1, "node_errors": {}})(question, writer)

    async def remember(question: Question, writer: Writer) -> None:
        raised = {"node_id": "1", "node_type": "EmptyImage", "exception_type": "RuntimeError", "executed": []}
        raised |= {"exception_message": message, "traceback": [f"in {message}\n"]}
        status = {"status_str": "error", "completed": False}
        known = {
            each: {
                "prompt": [1, each, {}, {}, []],
                "outputs": {},
                "status": status | {"messages": [["execution_error", {"prompt_id": each, **raised}]]},
            }
            for each in sent
        }
        await says(known)(question, writer)

    return await ended_with({"POST /prompt": take, "GET /history": remember}, tmp_path, *command)


async def ended_with(replies: dict[str, Reply], tmp_path: Path, *command: str) -> Terminal:
    """One job for a server that answers so, in a terminal, to the end; then a command, if there is one."""
    async with hostile_server() as server:
        server.replies |= ANSWERS | replies
        night = new_workspace(tmp_path / "night", server.name)
        drop(night, "knight.yaml", job_text(retry_limit=0))
        with in_terminal("run", "--until-idle", cwd=night.root, columns=300, environment=QUICK) as terminal:
            assert await asyncio.to_thread(terminal.finish) == 1
    if not command:
        return terminal
    with in_terminal(*command, cwd=night.root, columns=300) as terminal:
        assert await asyncio.to_thread(terminal.finish) == 0
    return terminal


LISTINGS = [(), ("queue", "ls"), ("show", "knight.yaml")]


@pytest.mark.parametrize("command", LISTINGS, ids=["board", "queue ls", "show"])
async def test_what_a_server_says_is_shown_without_being_read_as_markup(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    terminal = await rejected_with("[bold]no[/x] such \\[thing]", tmp_path, *command)
    assert "[bold]no[/x] such \\[thing]" in terminal.screen.text


@pytest.mark.parametrize("command", LISTINGS, ids=["board", "queue ls", "show"])
async def test_control_characters_in_a_refusal_do_not_reach_the_terminal_raw(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    terminal = await rejected_with(MESSAGE, tmp_path, *command)
    assert "clear" in terminal.text
    assert terminal.screen.strange == []


@pytest.mark.parametrize("command", LISTINGS, ids=["board", "queue ls", "show"])
async def test_control_characters_in_an_exception_do_not_reach_the_terminal_raw(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    terminal = await failed_with(MESSAGE, tmp_path, *command)
    assert "clear" in terminal.text
    assert terminal.screen.strange == []


@pytest.mark.parametrize("command", [("execute", "--until-idle"), *LISTINGS[1:]], ids=["board", "queue ls", "show"])
def test_control_characters_in_a_name_do_not_reach_the_terminal_raw(
    servers: Servers, tmp_path: Path, command: tuple[str, ...]
) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    call_e3("db", "migrate", cwd=night.root)
    row = "INSERT INTO jobs (id, config_name, job_type, workflow_id, status)"
    in_the_shell(night.database, f"{row} VALUES (1, 'clear' || char(27) || '[2J', 'T2I', 'picture', 'pending')")
    command = ("show", "1") if command[0] == "show" else command
    with in_terminal(*command, cwd=night.root) as terminal:
        assert terminal.finish() == 0
    assert "clear" in terminal.text
    assert terminal.screen.strange == []


async def test_control_characters_of_a_server_do_not_reach_the_terminal_by_e3_servers(tmp_path: Path) -> None:
    device = {"name": MESSAGE, "type": "cuda", "index": 0, "vram_total": 1, "vram_free": 1}
    async with hostile_server() as server:
        server.replies |= ANSWERS
        stats = {"system": {"comfyui_version": "0.7.0"}, "devices": [device]}
        server.replies["GET /system_stats"] = says(stats)
        with in_terminal("servers", "--server", server.name, columns=300, cwd=tmp_path) as terminal:
            assert await asyncio.to_thread(terminal.finish) == 0
    assert "clear" in terminal.text
    assert terminal.screen.strange == []


def test_an_address_in_brackets_is_shown_whole_by_e3_servers(tmp_path: Path) -> None:
    with in_terminal("servers", "--server", "http://[fe80::1]:9", columns=200, cwd=tmp_path) as terminal:
        assert terminal.finish() == 0
    assert terminal.screen.text.splitlines()[1].startswith("[fe80::1]:9  △ down")


# Where there is little to show.


def test_without_a_server_it_says_what_it_waits_for(tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night")
    drop(night, "knight.yaml")
    with in_terminal("run", cwd=night.root) as terminal:
        terminal.wait_for("0 of 1 done, waiting for the server")
        terminal.wait_for("△ Server down")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert NOWHERE.partition("://")[2] in terminal.screen.text
    assert is_clean(terminal)


def test_of_two_servers_it_says_how_many_are_there(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    options = ["--server", night.servers[0], "--server", NOWHERE]
    with in_terminal("execute", *options, cwd=night.root) as terminal:
        terminal.wait_for("0 of 0 done on 1 of 2 servers")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130


def test_monitor_shows_the_sentence_too(tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night")
    drop(night, "knight.yaml")
    drop(night, "bad.yaml", "job_type: [")
    with in_terminal("monitor", cwd=night.root) as terminal:
        terminal.wait_for("0 of 2 done, 1 needs attention")
        terminal.wait_for("△ Needs attention  bad.yaml")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    assert "△ Needs attention  bad.yaml  invalid: " in terminal.screen.text
    assert is_clean(terminal)


def test_as_json_there_is_no_board_even_on_a_terminal(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    drop(night, "knight.yaml")
    with in_terminal("run", "--until-idle", "--json", cwd=night.root) as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.raw
    assert '"done": 1' in terminal.text


@pytest.mark.parametrize("columns", [100, 80])
def test_a_table_of_jobs_shows_id_state_and_name_whole_however_long_the_reason_is(tmp_path: Path, columns: int) -> None:
    night = new_workspace(tmp_path / "night")
    call_e3("add", str(drop(night, "[red]knight.yaml", job_text(workflow_id="no_" * 30))), cwd=night.root)
    with in_terminal("queue", "ls", cwd=night.root, columns=columns) as terminal:
        assert terminal.finish() == 0
    lines = terminal.screen.text.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert re.match(r"1 +△ Needs attention +50 +\[red\]knight.yaml +invalid: ", lines[1]), lines


def test_a_table_of_jobs_on_a_narrow_terminal_keeps_every_name_whole(tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night")
    call_e3("add", str(drop(night, "k" * 150 + ".yaml")), cwd=night.root)
    with in_terminal("queue", "ls", cwd=night.root, columns=40) as terminal:
        assert terminal.finish() == 0
    assert all(len(line) <= 40 for line in terminal.screen.text.splitlines())
    assert terminal.screen.text.count("k") >= 150
