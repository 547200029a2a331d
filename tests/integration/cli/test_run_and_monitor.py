"""`e3 run`, `e3 monitor` and `e3 execute` as processes: what they do, say, and leave with."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.sim.process import ServerProcess
from support.agents import AgentWorkspace, leave, server_queue, wait_until
from support.sampling import some
from support.shared_servers import Servers
from support.stores import in_the_shell
from support.workspaces import call_e3, drop, job_text, new_workspace, run_e3, start_e3, wait_for_words

COUNTS = {"attention", "done", "failed", "pending", "processing", "failed_meanwhile"}
BAD = "job_type: T2I\nworkflow_id: picture\ninputs:\n  colour: 7\n"
RENDERING = re.compile(r"^\d\d:\d\d:\d\d  ◐ Rendering  knight\.yaml  127\.0\.0\.1:\d+$", re.MULTILINE)
DONE = re.compile(r"^\d\d:\d\d:\d\d  ● Done  knight\.yaml  \d+\.\d s  127\.0\.0\.1:\d+$", re.MULTILINE)


@pytest.fixture
def night(servers: Servers, tmp_path: Path) -> Iterator[AgentWorkspace]:
    """A workspace with a server that renders at once."""
    workspace = new_workspace(tmp_path / "night", servers.url("sim"))
    yield workspace
    workspace.stop_all()


@pytest.fixture
def slow(comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path) -> Iterator[AgentWorkspace]:
    """A workspace with a server that takes long."""
    workspace = new_workspace(tmp_path / "night", comfyui_simulator("--render-seconds", "3").url)
    yield workspace
    workspace.stop_all()


# Until nothing is left.


def test_run_renders_what_was_dropped_and_says_so_in_plain_lines(night: AgentWorkspace) -> None:
    drop(night, "knight.yaml")
    answer = run_e3("run", "--until-idle", cwd=night.root)
    assert answer.returncode == 0, answer.stderr
    assert "○ Pending  knight.yaml" in answer.stdout
    assert RENDERING.search(answer.stdout)
    assert DONE.search(answer.stdout)
    assert answer.stdout.splitlines()[-1] == "1 job file taken in. In all: 1 done, 0 need attention, 0 pending."
    (line,) = answer.stderr.splitlines()
    assert line == f"Watching jobs/processing, rendering with {night.servers[0]}. Ctrl-C stops; nothing gets lost."
    assert "\x1b" not in answer.stdout + answer.stderr
    assert sorted(path.name for path in (night.root / "jobs/finished/image").iterdir()) == ["knight.png", "knight.yaml"]
    assert list((night.root / "jobs/processing/image").iterdir()) == []


def test_the_examples_of_a_fresh_workspace_all_render(night: AgentWorkspace) -> None:
    for example in (night.root / "examples").glob("*.yaml"):
        shutil.copy(example, night.root / "jobs/processing" / example.name)
    assert run_e3("run", "--until-idle", cwd=night.root).returncode == 0
    assert sorted(path.name for path in (night.root / "jobs/finished").rglob("*.*") if path.suffix != ".yaml") == [
        "I2I_watercolour.png",
        "T2I_20250809123001_1_knight.png",
        "T2V_sunrise.webm",
    ]


def test_run_with_nothing_to_do_ends_at_once(night: AgentWorkspace) -> None:
    answer = run_e3("run", "--until-idle", cwd=night.root)
    assert answer.returncode == 0
    assert answer.stdout == "0 job files taken in. In all: 0 done, 0 need attention, 0 pending.\n"


def test_a_bad_file_is_exit_1_and_the_others_go_on(night: AgentWorkspace) -> None:
    drop(night, "knight.yaml")
    drop(night, "bad.yaml", BAD)
    answer = run_e3("run", "--until-idle", cwd=night.root)
    assert answer.returncode == 1
    assert DONE.search(answer.stdout)
    assert "△ Needs attention  bad.yaml" in answer.stdout
    assert "jobs/processing/image/bad.yaml:4: inputs.colour: " in answer.stdout
    assert (night.job("bad.yaml").status, night.job("bad.yaml").run_count) == (JobStatus.FAILED, 0)
    assert (night.root / "jobs/processing/image/bad.yaml").is_file()


def test_what_failed_before_does_not_count(night: AgentWorkspace) -> None:
    call_e3("add", str(drop(night, "bad.yaml", BAD)), cwd=night.root)
    assert night.job("bad.yaml").status is JobStatus.FAILED
    for command in ("run", "execute"):
        answer = run_e3(command, "--until-idle", "--json", cwd=night.root)
        assert (answer.returncode, json.loads(answer.stdout)["failed_meanwhile"]) == (0, 0)


@pytest.mark.parametrize("command", ["run", "execute"])
def test_until_idle_waits_out_the_backoff_of_a_retry(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path, command: str
) -> None:
    night = new_workspace(tmp_path / "night", comfyui_simulator("--failure-rate", "1").url)
    call_e3("add", str(drop(night, "knight.yaml", job_text(retry_limit=1))), cwd=night.root)
    began = time.monotonic()
    answer = run_e3(command, "--until-idle", cwd=night.root, E3_RETRY_BACKOFF_SECONDS="2")
    assert answer.returncode == 1
    assert time.monotonic() - began > 1.6  # two seconds, less a fifth
    assert [attempt.outcome for attempt in night.attempts("knight.yaml")] == ["execution", "execution"]
    assert (night.job("knight.yaml").run_count, night.job("knight.yaml").retries_attempted) == (2, 1)
    assert "○ Again  knight.yaml" in answer.stdout
    assert "△ Needs attention  knight.yaml" in answer.stdout


def test_monitor_queues_and_execute_renders_and_puts_the_file_away(night: AgentWorkspace) -> None:
    drop(night, "knight.yaml")
    taken = run_e3("monitor", "--until-idle", cwd=night.root)
    assert taken.returncode == 0
    assert taken.stdout.splitlines()[-1] == "1 job file taken in. In all: 0 done, 0 need attention, 1 pending."
    assert night.job("knight.yaml").status is JobStatus.PENDING
    rendered = run_e3("execute", "--until-idle", cwd=night.root)
    assert rendered.returncode == 0, rendered.stderr
    assert rendered.stdout.splitlines()[-1] == "1 done, 0 need attention, 0 pending."
    assert rendered.stderr.startswith(f"Working off {night.database} with {night.servers[0]}.")
    assert (night.root / "jobs/finished/image/knight.yaml").is_file()
    assert not (night.root / "jobs/processing/image/knight.yaml").exists()


def test_monitor_says_with_its_exit_that_a_file_was_bad(night: AgentWorkspace) -> None:
    drop(night, "bad.yaml", BAD)
    answer = run_e3("monitor", "--until-idle", cwd=night.root)
    assert answer.returncode == 1
    assert answer.stdout.splitlines()[-1].endswith("0 done, 1 needs attention, 0 pending.")


def test_monitor_ends_when_all_is_taken_in_and_not_at_the_next_look(night: AgentWorkspace) -> None:
    drop(night, "knight.yaml")
    run_e3("monitor", "--until-idle", cwd=night.root, E3_RESCAN_SECONDS="600", timeout=10)


# For scripts.


@pytest.mark.parametrize(("command", "more"), [("run", {"taken_in"}), ("monitor", {"taken_in"}), ("execute", set())])
def test_as_json_stdout_is_one_document_and_the_lines_go_to_stderr(
    night: AgentWorkspace, command: str, more: set[str]
) -> None:
    files = [drop(night, "knight.yaml"), drop(night, "bad.yaml", BAD)]
    if command == "execute":
        call_e3("add", *map(str, files), cwd=night.root)
    answer = run_e3(command, "--until-idle", "--json", cwd=night.root)
    counts = json.loads(answer.stdout)
    assert counts.keys() == COUNTS | more
    assert counts["failed"] == 1
    assert counts["failed_meanwhile"] == answer.returncode == (0 if command == "execute" else 1)
    assert (counts["done"], counts["pending"]) == ((0, 1) if command == "monitor" else (1, 0))
    assert "knight.yaml" in answer.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "monitor", "execute"])
def test_python_m_is_the_same(night: AgentWorkspace, command: str) -> None:
    file = drop(night, "knight.yaml")
    if command == "execute":
        call_e3("add", str(file), cwd=night.root)
    answer = run_e3("--until-idle", "-C", str(night.root), module=f"comfyui_agent.{command}")
    assert answer.returncode == 0, answer.stderr
    expected = JobStatus.PENDING if command == "monitor" else JobStatus.DONE
    assert night.job("knight.yaml").status is expected
    usage = run_e3("--no-such-option", module=f"comfyui_agent.{command}")
    assert usage.returncode == 2
    assert usage.stderr == f"e3: No such option: --no-such-option. See: e3 {command} --help\n"


def test_a_reader_that_has_enough_does_not_stop_the_work(night: AgentWorkspace) -> None:
    for number in range(3):
        drop(night, f"job_{number}.yaml")
    with subprocess.Popen(
        [sys.executable, "-m", "comfyui_agent", "run", "--until-idle", "-C", str(night.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        process.wait(60)
    assert "Traceback" not in told
    assert night.counts().done == 3


# Signals.


@pytest.mark.timing
@pytest.mark.parametrize("command", ["run", "monitor", "execute"])
@pytest.mark.parametrize(("number", "status"), some([(signal.SIGTERM, 143), (signal.SIGINT, 130)], 2))
def test_a_signal_ends_it_soon_with_the_status_that_shells_expect(
    night: AgentWorkspace, command: str, number: signal.Signals, status: int
) -> None:
    process = start_e3(night, command)
    wait_for_words(night, "Ctrl-C stops; nothing gets lost.")
    assert leave(process, number) < 4  # two seconds are promised; this machine may be busy
    assert process.returncode == status
    said = night.log.read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert said.count("0 done, 0 need attention, 0 pending.") == 1


@pytest.mark.slow
@pytest.mark.timing
def test_what_runs_at_the_server_when_it_is_stopped_is_taken_over_by_the_next_start(slow: AgentWorkspace) -> None:
    drop(slow, "knight.yaml")
    process = start_e3(slow, "run")
    wait_until(lambda: server_queue(slow.servers[0]).running, "a prompt at the server")
    assert leave(process, signal.SIGTERM) < 4
    assert server_queue(slow.servers[0]).running
    assert run_e3("run", "--until-idle", cwd=slow.root).returncode == 0
    job = slow.job("knight.yaml")
    assert (job.status, job.run_count, len(slow.attempts("knight.yaml"))) == (JobStatus.DONE, 1, 1)
    assert (slow.root / "jobs/finished/image/knight.yaml").is_file()


# Watching.


@pytest.mark.timing
def test_a_file_that_is_dropped_while_it_runs_is_picked_up_within_a_second_or_so(night: AgentWorkspace) -> None:
    process = start_e3(night, "run")
    wait_for_words(night, "Watching jobs/processing")
    drop(night, "first.yaml")
    wait_for_words(night, "● Done  first.yaml")
    drop(night, "knight.yaml", kind="video")
    assert wait_until(lambda: "○ Pending  knight.yaml" in night.log.read_text(encoding="utf-8"), "the file") < 3
    wait_for_words(night, "● Done  knight.yaml")
    assert leave(process) < 4


def test_run_without_a_server_says_so_once_and_goes_on_when_it_is_there(
    comfyui_simulator: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = comfyui_simulator()
    server.kill()
    night = new_workspace(tmp_path / "night", server.url)
    drop(night, "knight.yaml")
    process = start_e3(night, "run", "--until-idle")
    wait_for_words(night, ["△ Server down", "is ComfyUI running there?", "○ Pending  knight.yaml"])
    server.start()
    assert process.wait(60) == 0
    told = night.log.read_text(encoding="utf-8")
    assert told.count("△ Server down") == 1
    assert "● Server up" in told


# Where.


def test_without_a_workspace_it_says_how_to_make_one_and_makes_nothing(tmp_path: Path) -> None:
    for command in ("run", "monitor"):
        answer = run_e3(command, "--until-idle", cwd=tmp_path)
        assert (answer.returncode, answer.stdout) == (1, "")
        (line,) = answer.stderr.splitlines()
        assert line.startswith(f"e3: there is no workspace in {tmp_path}")
        assert "e3 init" in line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_job_files_is_workspace_enough(servers: Servers, tmp_path: Path) -> None:
    night = new_workspace(tmp_path / "night", servers.url("sim"))
    shutil.rmtree(night.root / "config")
    drop(night, "knight.yaml")
    answer = run_e3("run", "--until-idle", "--server", night.servers[0], cwd=night.root)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert night.job("knight.yaml").status is JobStatus.DONE


def test_a_broken_configuration_is_a_usage_error_before_anything_is_made(night: AgentWorkspace) -> None:
    (night.root / "config/workflows.yaml").write_text("wf:\n  template: x\n", encoding="utf-8")
    for command in ("run", "monitor"):
        answer = run_e3(command, cwd=night.root)
        assert (answer.returncode, answer.stdout) == (2, "")
        (line,) = answer.stderr.splitlines()
        assert line.startswith("e3: config/workflows.yaml:")
    assert not night.database.exists()


def test_rows_that_were_made_by_hand_are_rendered_by_run_too(night: AgentWorkspace) -> None:
    call_e3("db", "migrate", cwd=night.root)
    row = "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('k', 'T2I', 'picture', 'pending')"
    in_the_shell(night.database, row)
    assert run_e3("run", "--until-idle", cwd=night.root).returncode == 0
    assert (night.root / "jobs/finished/image/k.png").is_file()
