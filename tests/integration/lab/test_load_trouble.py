"""A load test in trouble: deaf, with a dying server, cold, late, or without a place for its report. It says so."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.lab.fault_proxy import FaultProxy, Refuse
from comfyui_agent.lab.load import run
from comfyui_agent.lab.load.plan import Mode
from comfyui_agent.lab.measurement import measured_prompt
from comfyui_agent.sim.process import ServerProcess, simulator
from comfyui_agent.sim.settings import SimSettings
from comfyui_agent.sim.simulator import Simulator
from support.load import Report, executions, press, wait_until, workflow_file
from support.shared_servers import Servers
from support.workspaces import NOWHERE, call_e3

UNHEARD = "not heard on the websocket"
TIMED_OUT = "timed out"
NEVER_REACHED = "never reached"
COLD = "it was cold"


def warnings_of(report: Report, words: str) -> list[str]:
    return [warning for warning in report["summary"]["warnings"] if words in warning]


# Without a websocket.


@pytest.fixture(scope="module")
def half_second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that renders for half a second."""
    server = simulator(tmp_path_factory.mktemp("half"), "--render-seconds", "0.5").start()
    yield server
    server.kill()


@pytest.fixture
async def before_it(half_second: ServerProcess) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", int(half_second.url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.mark.slow
@pytest.mark.timing
async def test_without_a_websocket_times_are_nearly_true_and_a_warning_says_why_only_nearly(
    half_second: ServerProcess, before_it: FaultProxy
) -> None:
    before_it.inject(Refuse(), on="/ws", times=None)
    report = await press([before_it.url], levels=[1], jobs=3)
    ran = executions(half_second.url, [row["prompt_id"] for row in report["results"]])
    assert len(ran) == 3
    for row, known in zip(report["results"], ran, strict=True):
        assert known.seconds <= row["duration_sec"] + 0.01
        assert row["duration_sec"] < known.seconds + 0.35
        assert row["queue_sec"] is None
    assert report["summary"]["avg_queue_sec"] is None
    (warning,) = warnings_of(report, UNHEARD)
    assert before_it.url in warning
    assert "the end of 3 prompts" in warning


@pytest.mark.slow
@pytest.mark.timing
async def test_without_a_warm_up_the_first_prompt_waits_for_no_websocket(before_it: FaultProxy) -> None:
    before_it.inject(Refuse(), on="/ws", times=None)
    report = await press([before_it.url], levels=[1], jobs=1, warmup=0)
    assert report["results"][0]["duration_sec"] < 0.5 + 0.35


async def test_with_a_websocket_there_is_nothing_to_warn_about(before_it: FaultProxy) -> None:
    report = await press([before_it.url], levels=[2], jobs=5)  # longer than it takes until the queue is looked at
    assert report["summary"]["wall_clock_sec"] > run.POLL_SECONDS
    assert report["summary"]["warnings"] == []
    assert all(row["queue_sec"] is not None for row in report["results"])


# A server that dies.


def two_servers(folder: Path) -> tuple[ServerProcess, ServerProcess]:
    """One that dies in its seventh render, and one that lives."""
    flags = ("--render-seconds", "0.1")
    dying, living = simulator(folder / "dying", *flags, "--crash-after", "6"), simulator(folder / "living", *flags)
    for server in (dying, living):
        server.launch()
    for server in (dying, living):
        server.wait_until_up()
    return dying, living


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize(
    ("patience", "poll", "seconds"),
    [
        pytest.param(0.5, 0.5, 3.0, id="quick"),
        pytest.param(run.LOST_SECONDS, run.POLL_SECONDS, 20.0, id="as it is", marks=pytest.mark.slow),
    ],
)
async def test_a_dead_server_does_not_draw_the_load_and_the_other_goes_on(
    patience: float, poll: float, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who fails at once is always the one with the least to do."""
    monkeypatch.setattr(run, "LOST_SECONDS", patience)
    monkeypatch.setattr(run, "POLL_SECONDS", poll)
    at_once = 4
    dying, living = two_servers(tmp_path)
    try:
        report = await press([dying.url, living.url], levels=[at_once], duration=seconds, warmup=1)
    finally:
        dying.kill()
        living.kill()
    failed = [row for row in report["results"] if row["status"] != "completed"]
    assert {row["server"] for row in failed} == {dying.url}
    assert {row["failure_class"] for row in failed} == {"server_lost"}
    assert 1 <= len(failed) <= at_once * (1 + seconds / 5)
    done = [row for row in report["results"] if row["status"] == "completed"]
    last = {url: max(row["seconds"] for row in done if row["server"] == url) for url in (dying.url, living.url)}
    assert last[dying.url] < seconds / 2
    assert last[living.url] > seconds - 1
    assert sum(row["server"] == living.url for row in done) > 5 * seconds
    (warning,) = warnings_of(report, "was lost")
    assert dying.url in warning
    assert f"{len(failed)} prompts" in warning
    assert not report["summary"]["partial"]
    waited = max(row["duration_sec"] for row in failed)
    assert patience <= waited < patience + 4


# Levels that were never reached, warm-ups that failed, prompts that timed out.


async def test_a_level_with_fewer_prompts_than_at_once_is_warned_about(servers: Servers) -> None:
    report = await press([servers.url("sim")], levels=[1, 2, 8], jobs=4)
    (warning,) = warnings_of(report, NEVER_REACHED)
    assert warning.startswith("8 prompts at once")
    assert "4 prompts" in warning
    assert report["summary"]["knee"] is None or report["summary"]["knee"]["level"] < 8


async def test_rates_and_books_have_no_number_at_once_to_reach(servers: Servers) -> None:
    url = servers.url("sim")
    by_rate = await press([url], mode=Mode.OPEN, levels=[6000.0], jobs=4)
    in_books = await press([url], mode=Mode.BOOKS, levels=[3], pages=1)
    assert not warnings_of(by_rate, NEVER_REACHED)
    assert not warnings_of(in_books, NEVER_REACHED)


async def test_a_warm_up_that_fails_is_warned_about() -> None:
    async with Simulator(SimSettings(failure_rate=1.0)) as server:
        report = await press([server.url], jobs=1)
        (warning,) = warnings_of(report, COLD)
        assert server.url in warning


async def test_a_warm_up_and_prompts_that_time_out_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_prompt, "CANCEL_SECONDS", 0.2)
    async with Simulator(SimSettings(hang_after=0)) as server:
        report = await press([server.url], jobs=2, timeout=0.3)
    assert "no result after 0.3 s" in warnings_of(report, COLD)[0]
    assert report["summary"]["timeouts"] == 2
    assert len(warnings_of(report, f"2 prompts {TIMED_OUT}")) == 1


@pytest.mark.slow
@pytest.mark.timing
async def test_percentiles_beside_timeouts_are_said_to_be_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_prompt, "CANCEL_SECONDS", 0.2)
    async with Simulator(SimSettings(hang_after=3)) as server:
        report = await press([server.url], jobs=3, timeout=0.5)
    summary = report["summary"]
    assert (summary["completed"], summary["timeouts"]) == (2, 1)
    assert summary["p95_duration_sec"] < 0.5
    (warning,) = warnings_of(report, f"1 prompt {TIMED_OUT}")
    assert "completed" in warning
    assert not warnings_of(report, COLD)


async def test_where_all_is_well_nothing_is_warned_about(servers: Servers) -> None:
    report = await press([servers.url("sim")], levels=[1, 4], jobs=8)
    assert report["summary"]["warnings"] == []


# A place for the report that is gone in the end.


def vanish(folder: Path) -> None:
    shutil.rmtree(folder)


def become_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


def during_the_run(folder: Path, url: str, arguments: tuple[str, ...], work: Callable[[], None]) -> Any:
    """`e3 loadtest`, with something that happens after its first prompt and before its last."""
    log = folder / "infra" / "observability" / "comfyui_metrics.ndjson"

    def after_the_first() -> None:
        wait_until(lambda: log.exists() and "job.done" in log.read_text(), "the first prompt")
        work()
        happened.append(time.time())

    happened: list[float] = []
    helper = threading.Thread(target=after_the_first)
    helper.start()
    try:
        workflow = str(workflow_file(folder))
        answer = call_e3("loadtest", "--server", url, "--workflow", workflow, *arguments, cwd=folder)
    finally:
        helper.join(30)
    assert happened
    return answer


@pytest.mark.parametrize(
    "change",
    [
        vanish,
        pytest.param(
            become_a_file,
        ),
    ],
)
def test_a_report_that_cannot_be_written_in_the_end_was_printed_before(
    half_second: ServerProcess, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    arguments = ("--jobs", "3", "--concurrency", "1", "--warmup", "0", "--json", "--output", "out/report.json")
    answer = during_the_run(tmp_path, half_second.url, arguments, lambda: change(tmp_path / "out"))
    document = json.loads(answer.stdout)
    assert list(document) == ["summary", "results", "environment"]
    assert document["summary"]["completed"] == 3
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("e3: ")]
    assert "cannot write out/report.json" in line
    assert "Written" not in answer.stderr


def test_without_json_the_figures_are_reported_all_the_same(half_second: ServerProcess, tmp_path: Path) -> None:
    arguments = ("--jobs", "2", "--concurrency", "1", "--warmup", "0", "--output", "out/report.json")
    answer = during_the_run(tmp_path, half_second.url, arguments, lambda: vanish(tmp_path / "out"))
    assert "2 of 2 completed" in answer.stdout
    assert "throughput" in answer.stdout
    assert answer.returncode == 1
    assert "cannot write out/report.json" in answer.stderr


# Wishes without effect.


@pytest.mark.parametrize(
    ("options", "goes_with"),
    [
        (("--even",), "--rate"),
        (("--even", "--concurrency", "2"), "--rate"),
        (("--parallel-pages",), "--books"),
        (("--parallel-pages", "--rate", "5"), "--books"),
        (("--start-command", "true"), "--scenario"),
        (("--jobs", "5", "--books", "2"), "--books"),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused(tmp_path: Path, options: tuple[str, ...], goes_with: str) -> None:
    answer = _refused(tmp_path, options)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert options[0] in line
    assert goes_with in line


@pytest.mark.parametrize("options", [("--even", "--rate", "5"), ("--parallel-pages", "--books", "2")])
def test_the_same_flag_with_what_it_goes_with_is_taken(tmp_path: Path, options: tuple[str, ...]) -> None:
    answer = _refused(tmp_path, options)
    assert answer.returncode == 1
    assert "127.0.0.1:9" in answer.stderr  # where there is no server


def _refused(folder: Path, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    workflow = str(workflow_file(folder))
    return call_e3("loadtest", "--workflow", workflow, "--server", NOWHERE, *options, cwd=folder)
