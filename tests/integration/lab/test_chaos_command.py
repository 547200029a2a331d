"""`e3 chaos` as a person or a schedule calls it: what it writes, what it refuses, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from comfyui_agent.cli.app import app
from comfyui_agent.lab.chaos.suite import SCENARIOS
from support.agents import sized_picture
from support.command import e3
from support.servers import ServerProcess, free_port, simulator

E3 = [sys.executable, "-m", "comfyui_agent"]
SECRET = "hunter2pass"
slow = pytest.mark.slow


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return found


def processes_of(folder: Path) -> list[int]:
    """Processes that have this folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def reports_in(folder: Path) -> list[Path]:
    return sorted((folder / "infra" / "observability").glob("chaos_*.json"))


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Chaos that can be interrupted, in a session of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, path: str | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        environment |= {"PATH": f"{path}:{os.environ['PATH']}"} if path else {}
        started.append(
            subprocess.Popen(
                [*E3, "chaos", *arguments],
                cwd=tmp_path,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    workflow = tmp_path / "page.json"
    workflow.write_text(json.dumps(sized_picture(64)))
    return workflow


@pytest.fixture
def own_simulator(tmp_path: Path) -> Iterator[ServerProcess]:
    process = simulator(tmp_path / "sim", "--render-seconds", "0.1").start()
    yield process
    process.kill()


# All of it.


@pytest.mark.slow
@pytest.mark.timing
def test_all_five_pass_with_the_agent_and_the_report_says_when_what_happened(tmp_path: Path) -> None:
    ended = e3("chaos", "all", "--quick", "--json", "--output", "reports/chaos.json", cwd=tmp_path, timeout=100)
    report = json.loads(ended.stdout)
    assert report == json.loads((tmp_path / "reports" / "chaos.json").read_text())
    assert (tmp_path / "reports" / "chaos.html").read_text().startswith("<!doctype html>")
    assert {each["scenario"]: each["verdict"] for each in report["results"]} == dict.fromkeys(SCENARIOS, "passed")
    assert ended.returncode == 0
    summary = report["summary"]
    assert {key: summary[key] for key in ("kind", "total", "passed", "failed", "skipped", "verdict", "partial")} == {
        "kind": "chaos", "total": 5, "passed": 5, "failed": 0, "skipped": 0, "verdict": "passed", "partial": False,
    }  # fmt: skip
    assert set(report) == {"summary", "results", "environment"}
    assert summary["wall_clock_sec"] < 60
    by_name = {each["scenario"]: each for each in report["results"]}
    assert summary["recovery_sec"] == max(each["recovery_sec"] or 0.0 for each in report["results"])
    for result in report["results"]:
        moments = [stage["seconds"] for stage in result["stages"]]
        assert moments == sorted(moments)
        assert (result["stages"][0]["stage"], moments[0]) == ("fault", 0.0)
        assert set(result["jobs"]) == {"total", "done", "failed"}
    stages = {stage["stage"]: stage["seconds"] for stage in by_name["comfyui-crash"]["stages"]}
    assert 0 < stages["alert"] <= stages["refill"] <= stages["all done"]
    assert stages["requeue"] <= stages["refill"] == by_name["comfyui-crash"]["recovery_sec"]
    freed = {stage["stage"]: stage["seconds"] for stage in by_name["gpu-oom"]["stages"]}
    assert freed["freed"] <= freed["requeue"] <= freed["refill"]
    assert by_name["prompt-validation"]["jobs"] == {"total": 4, "done": 3, "failed": 1}
    environment = report["environment"]
    assert environment["kind"] == "chaos"
    assert environment["servers"][0]["comfyui_version"]
    assert environment["sla"]["recovery_seconds"] == 120
    assert environment["parameters"]["quick"] is True


# One's own server.


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        pytest.param("{}", "program", id="a program"),
        pytest.param(
            "sh -c '{} & wait'",
            "script",
            id="a script that starts it",
        ),
    ],
)
@slow
def test_ones_own_server_is_started_killed_started_again_and_stopped(wrap: str, name: str, tmp_path: Path) -> None:
    port = free_port()
    mark = tmp_path / "own-output"
    command = wrap.format(
        shlex.join([*E3, "sim", "--port", str(port), "--render-seconds", "0.5", "--output-dir", str(mark)])
    )
    where = ["--server", f"http://127.0.0.1:{port}", "--start-command", command]
    try:
        ended = e3("chaos", "comfyui-crash", "--quick", "--patience", "8", *where, cwd=tmp_path, timeout=90)
        assert ended.returncode == 0, ended.stdout
        assert "server back" in ended.stdout
        wait_until(lambda: not processes_of(mark), "the server to be stopped", 5)
    finally:
        for pid in processes_of(mark):
            os.kill(pid, signal.SIGKILL)


@slow
def test_a_server_that_loads_its_model_first_is_slower_afterwards_all_the_same(tmp_path: Path) -> None:
    port = free_port()
    flags = ["--port", str(port), "--model-load-seconds", "2", "--output-dir", str(tmp_path / "own-output")]
    where = ["--server", f"http://127.0.0.1:{port}", "--start-command", shlex.join([*E3, "sim", *flags])]
    ended = e3("chaos", "artificial-latency", "--quick", *where, cwd=tmp_path, timeout=90)
    assert ended.returncode == 0, ended.stdout


@slow
def test_pages_that_are_done_before_the_server_can_be_killed_are_no_fault_of_the_agent(
    tmp_path: Path, page: Path
) -> None:
    port = free_port()
    command = shlex.join([*E3, "sim", "--port", str(port), "--output-dir", str(tmp_path / "own-output")])
    where = ["--server", f"http://127.0.0.1:{port}", "--start-command", command, "--workflow", str(page)]
    e3("chaos", "comfyui-crash", "--quick", "--patience", "10", *where, cwd=tmp_path, timeout=90)
    (result,) = json.loads(reports_in(tmp_path)[0].read_text())["results"]
    assert result["verdict"] in ("passed", "skipped"), result["reason"]


@slow
def test_a_page_that_cannot_run_out_of_memory_is_no_fault_of_the_agent(tmp_path: Path, page: Path) -> None:
    e3("chaos", "gpu-oom", "--quick", "--workflow", str(page), cwd=tmp_path)
    (result,) = json.loads(reports_in(tmp_path)[0].read_text())["results"]
    assert result["verdict"] in ("passed", "skipped"), result["reason"]


def test_what_cannot_be_run_in_front_of_a_server_is_skipped_and_says_what_it_needs(
    own_simulator: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["chaos", "comfyui-crash", "--json", "--server", own_simulator.url]
    for more, reason in ((["--start-command", "true"], "something answers at"), ([], "give --start-command")):
        ended = CliRunner().invoke(app, [*where, *more])
        report = json.loads(ended.stdout)
        (result,) = report["results"]
        assert result["verdict"] == "skipped"
        assert reason in result["reason"]
        assert report["summary"]["verdict"] == "failed", "nothing was shown"
        assert ended.exit_code == 1


@slow
def test_a_server_that_is_absent_is_said_and_a_report_is_written(tmp_path: Path) -> None:
    ended = e3("chaos", "prompt-validation", "--server", f"http://127.0.0.1:{free_port()}", cwd=tmp_path)
    assert ended.returncode == 1
    assert "cannot be reached" in ended.stdout
    assert len(reports_in(tmp_path)) == 1


@slow
def test_the_server_of_a_command_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    where = ["--server", f"http://127.0.0.1:{free_port()}", "--start-command", "sh -c 'echo no models here; exit 1'"]
    began = time.monotonic()
    ended = e3("chaos", "prompt-validation", *where, cwd=tmp_path)
    assert ended.returncode == 1
    assert "no models here" in ended.stdout
    assert time.monotonic() - began < 20


# Secrets.


def secret_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.slow
def test_the_secrets_of_an_address_are_used_and_never_written(own_simulator: ServerProcess, tmp_path: Path) -> None:
    url = own_simulator.url.replace("http://", f"http://someone:{SECRET}@") + f"/?token={SECRET}"
    kept = tmp_path / "kept"
    where = ["--server", url, "--in", str(kept)]
    ended = e3("chaos", "prompt-validation", "--quick", "--json", *where, "--output", "r/c.json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
    assert (kept / "prompt-validation" / "workspace" / "database").is_dir()
    assert secret_in(tmp_path) == []


@slow
def test_ones_own_server_behind_a_login_is_seen_to_come_up(tmp_path: Path) -> None:
    port = free_port()
    command = shlex.join([*E3, "sim", "--port", str(port), "--output-dir", str(tmp_path / "own-output")])
    where = ["--server", f"http://someone:{SECRET}@127.0.0.1:{port}", "--start-command", command]
    try:
        ended = e3("chaos", "prompt-validation", "--quick", *where, cwd=tmp_path, timeout=25)
        assert ended.returncode == 0
        assert SECRET not in ended.stdout + ended.stderr
    finally:
        for pid in processes_of(tmp_path / "own-output"):
            os.kill(pid, signal.SIGKILL)


# What is refused before anything is broken.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["netwrk-blip"], "did you mean network-blip?"),
        (["all", "crash"], "there is no scenario 'crash'"),
        (["quick", "--start-command", "true"], "give its address too"),
        (["quick", "--server", "http://x", "--start-command", "python 'main.py"], "--start-command"),
        (["quick", "--server", "http://x", "--start-command", "   "], "--start-command is empty"),
        (["quick", "--workflow", "nowhere.json"], "there is no file nowhere.json"),
        (["quick", "--server", "ftp://example.org"], "http"),
        (["quick", "--in", "."], "is not an empty folder"),
        (["quick", "--in", "taken"], "is not an empty folder"),
        (["quick", "--output", "taken/x.json"], "cannot write to taken"),
        pytest.param(
            ["prompt-validation", "--quick", "--output", "folder"],
            "folder",
            marks=slow,
        ),
    ],
)
def test_bad_options_are_refused_at_once(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["chaos", *arguments])
    assert ended.exit_code == 2, ended.stdout
    assert ended.stderr.startswith("e3: ")
    assert words in ended.stderr.splitlines()[0]
    assert ended.stdout == ""
    assert not reports_in(tmp_path)


@slow
def test_a_report_that_is_named_like_a_page_is_not_overwritten_by_it(tmp_path: Path) -> None:
    e3("chaos", "prompt-validation", "--quick", "--output", "report.html", cwd=tmp_path)
    assert json.loads((tmp_path / "report.html").read_text())["summary"]["kind"] == "chaos"


# Packets that are lost for real.


def fake_tc(folder: Path, ending: str = "exit 0") -> Path:
    folder.mkdir()
    program = folder / "tc"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/notes\n{ending}\n')
    program.chmod(0o755)
    return folder


@slow
def test_ctrl_c_while_packets_are_lost_takes_the_loss_off_and_leaves_nobody_behind(
    chaos: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    tools, kept = fake_tc(tmp_path / "tools"), tmp_path / "kept"
    process = chaos("network-blip", "--netem", "eth9", "--in", str(kept), path=str(tools))
    wait_until((tools / "notes").exists, "the loss to be put on")
    assert processes_of(kept)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert (tools / "notes").read_text().splitlines() == [
        "qdisc add dev eth9 root netem loss 10%",
        "qdisc del dev eth9 root",
    ]
    assert processes_of(kept) == []


@slow
def test_a_machine_that_does_not_let_packets_be_lost_skips_it(
    chaos: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    tools = fake_tc(tmp_path / "tools", 'echo "Operation not permitted" >&2; exit 2')
    process = chaos("network-blip", "--quick", "--netem", "eth9", path=str(tools))
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "skipped, tc refused (Operation not permitted)" in told


# Stopped in the middle.


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=slow)])
def test_what_was_judged_before_it_was_stopped_is_reported_as_a_part(
    number: int, code: int, chaos: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    process = chaos("prompt-validation", "network-blip", "--quick", "--in", str(kept), "--json")
    wait_until((kept / "network-blip" / "workspace" / "agent.log").exists, "the second scenario")
    assert processes_of(kept)
    process.send_signal(number)
    told, _ = process.communicate(timeout=20)
    assert process.returncode == code
    (report,) = reports_in(tmp_path)
    document = json.loads(report.read_text())
    assert json.loads(told) == document
    assert document["summary"]["partial"] is True
    assert [each["scenario"] for each in document["results"]] == ["prompt-validation"]
    assert report.with_suffix(".html").exists()
    assert processes_of(kept) == []


# As a load test.


@slow
def test_a_load_test_with_a_scenario_is_a_load_report_with_its_verdict(
    own_simulator: ServerProcess, tmp_path: Path
) -> None:
    where = ["--server", own_simulator.url, "--workflow", "book_small", "--jobs", "12", "--output", "load.json"]
    ended = e3("loadtest", "--scenario", "network-blip", *where, "--json", cwd=tmp_path, timeout=90)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report == json.loads((tmp_path / "load.json").read_text())
    summary = report["summary"]
    assert summary["mode"] == "scenario"
    assert summary["total_jobs"] == summary["completed"] >= 12  # more are queued as long as the fault lasts
    assert summary["total_jobs"] == summary["completed"] + summary["failed"] + summary["timeouts"]
    assert (summary["success_rate"], summary["images"]) == (1.0, summary["total_jobs"])
    assert summary["recovery_sec"] == summary["scenario"]["recovery_sec"] >= 0
    assert summary["scenario"]["verdict"] == "passed"
    assert 0 < summary["p50_duration_sec"] <= summary["p95_duration_sec"] <= summary["wall_clock_sec"]
    assert [row["index"] for row in report["results"]] == list(range(summary["total_jobs"]))
    assert len({row["prompt_id"] for row in report["results"]}) == summary["total_jobs"]
    assert report["environment"]["kind"] == "loadtest"
    assert report["environment"]["parameters"]["scenario"] == "network-blip"
    assert (tmp_path / "load.html").exists()


def test_a_load_test_whose_scenario_failed_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{free_port()}"
    asked = ["loadtest", "--scenario", "gpu-oom", "--server", url, "--output", "load.json", "--json"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 1
    summary = json.loads(ended.stdout)["summary"]
    assert (summary["total_jobs"], summary["scenario"]["verdict"]) == (0, "failed")
    assert "cannot be reached" in summary["scenario"]["reason"]


def test_a_load_test_takes_one_scenario_and_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["loadtest", "--scenario", "all", "--server", f"http://127.0.0.1:{free_port()}"])
    assert ended.exit_code == 2
