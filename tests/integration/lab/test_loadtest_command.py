"""`e3 loadtest` as people and scripts use it: what it says, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.sim.process import ServerProcess, simulator
from support.graphs import node, picture
from support.load import asked, is_idle, page, wait_until, workflow_file
from support.shared_servers import Servers
from support.terminal import in_terminal, like_anyone
from support.workspaces import NOWHERE, call_e3, new_workspace, run_e3

SUMMARY = {
    *("total_jobs", "completed", "failed", "timeouts", "avg_duration_sec", "p50_duration_sec", "p95_duration_sec"),
    *("images_per_minute", "success_rate", "cached_jobs", "wall_clock_sec"),
}
ROW = {"index", "prompt_id", "status", "duration_sec", "queue_sec", "exec_sec", "cached", "error"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server on which a render takes long enough to be stopped in it."""
    server = simulator(tmp_path_factory.mktemp("slow"), "--render-seconds", "0.25").start()
    yield server
    server.kill()


def load(folder: Path, url: str, *arguments: str, graph: Any = None) -> subprocess.CompletedProcess[str]:
    workflow = str(workflow_file(folder, graph))
    return call_e3("loadtest", "--server", url, "--workflow", workflow, *arguments, cwd=folder)


@contextmanager
def started(folder: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, to be sent signals."""
    command = [sys.executable, "-m", "comfyui_agent", "loadtest", "--server", url]
    command += ["--workflow", str(workflow_file(folder)), "--output", "report.json", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "infra" / "observability" / "comfyui_metrics.ndjson"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def ended_prompts(folder: Path) -> int:
    return sum(line["event"] in ("job.done", "job.failed") for line in metrics(folder))


def only_line(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr that says what is wrong."""
    lines = answer.stderr.splitlines()
    assert len(lines) == 1, answer.stderr
    assert lines[0].startswith("e3: ")
    return lines[0]


def test_a_report_a_page_a_log_and_a_few_lines(servers: Servers, tmp_path: Path) -> None:
    answer = load(tmp_path, servers.url("sim"), "--jobs", "6", "--concurrency", "2", "--output", "out/load_x.json")
    assert answer.returncode == 0, answer.stderr
    report = json.loads((tmp_path / "out" / "load_x.json").read_text(encoding="utf-8"))
    assert list(report) == ["summary", "results", "environment"]
    assert set(report["summary"]) >= SUMMARY
    assert all(set(row) >= ROW for row in report["results"])
    assert (report["summary"]["total_jobs"], report["summary"]["completed"]) == (6, 6)
    assert not report["summary"]["partial"]
    assert "<html" in (tmp_path / "out" / "load_x.html").read_text(encoding="utf-8")
    assert "6 of 6 completed" in answer.stdout
    assert "Written: out/load_x.json" in answer.stdout
    assert "\x1b" not in answer.stdout
    assert answer.stderr == ""
    told = metrics(tmp_path)
    assert [line["event"] for line in told[1:-1]] == ["job.done"] * 6
    assert {line["prompt_id"] for line in told[1:-1]} == {row["prompt_id"] for row in report["results"]}
    assert not any("id" in line for line in told)


@pytest.mark.parametrize(
    "what", [("--jobs", "1", "--concurrency", "1"), ("--books", "1", "--pages", "1")], ids=["prompt", "book"]
)
def test_one_is_written_in_the_singular(servers: Servers, tmp_path: Path, what: tuple[str, ...]) -> None:
    said = load(tmp_path, servers.url("sim"), *what).stdout
    unit = "book" if "--books" in what else "prompt"
    assert f"then 1 {unit} at once of " in said
    assert f"\n1 {unit} at once, 1 prompt\n" in said


def test_json_is_one_document_and_nothing_else(servers: Servers, tmp_path: Path) -> None:
    answer = load(tmp_path, servers.url("sim"), "--jobs", "3", "--concurrency", "1,2", "--same-seeds", "--json")
    assert answer.returncode == 0
    report = json.loads(answer.stdout)
    (written,) = (tmp_path / "infra" / "observability").glob("load_*.json")
    assert json.loads(written.read_text(encoding="utf-8")) == report
    assert [level["total_jobs"] for level in report["summary"]["levels"]] == [3, 3]
    assert "△" in answer.stderr
    assert "cache" in answer.stderr


def test_two_runs_of_one_moment_do_not_write_over_each_other(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.lab.files.this_moment", lambda: "2026-01-01T000000Z")
    for _ in range(2):
        assert load(tmp_path, servers.url("sim"), "--jobs", "1").returncode == 0
    assert len(list((tmp_path / "infra" / "observability").glob("load_*.json"))) == 2


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (page(sampler_name="no such sampler"), "sampler_name"),
        ({**page(), "8": node("NoSuchNode")}, "NoSuchNode"),
        ({"1": node("EmptyImage", width=8, height=8, batch_size=1, color=0)}, ""),
    ],
    ids=["a bad value", "an unknown node", "no output"],
)
@pytest.mark.parametrize("warmup", ["1", "0"])
def test_a_workflow_that_the_server_rejects_is_said_before_any_load(
    servers: Servers, tmp_path: Path, graph: Any, words: str, warmup: str
) -> None:
    url = servers.url("sim")
    before = asked(url, "history").keys()
    answer = load(tmp_path, url, "--jobs", "50", "--warmup", warmup, "--output", "report.json", graph=graph)
    assert answer.returncode == 1
    assert words in only_line(answer)
    assert asked(url, "history").keys() == before
    assert not (tmp_path / "report.json").exists()
    assert ended_prompts(tmp_path) == 0


def test_a_server_that_is_absent_is_one_line(tmp_path: Path) -> None:
    answer = load(tmp_path, NOWHERE, "--output", "report.json")
    assert answer.returncode == 1
    assert "127.0.0.1:9" in only_line(answer)
    assert not (tmp_path / "report.json").exists()


def test_one_absent_server_of_two_is_said_before_any_load(servers: Servers, tmp_path: Path) -> None:
    url = servers.url("sim")
    before = asked(url, "history").keys()
    answer = load(tmp_path, url, "--server", NOWHERE, "--jobs", "5")
    assert answer.returncode == 1
    assert "127.0.0.1:9" in only_line(answer)
    assert asked(url, "history").keys() == before


@pytest.mark.parametrize(
    ("name", "text"),
    [("absent.json", None), ("editor.json", '{"nodes": [], "links": []}'), ("half.json", "{"), ("empty.json", "{}")],
)
def test_a_file_that_is_no_workflow_is_one_line_of_usage(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    answer = call_e3("loadtest", "--server", NOWHERE, "--workflow", name, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert name in only_line(answer)


def test_a_workflow_of_the_workspace_is_known_by_its_id(servers: Servers, tmp_path: Path) -> None:
    """With its defaults, its picture brought to the server, as `e3 profile` takes it."""
    new_workspace(tmp_path, servers.url("sim"))
    recipes = tmp_path / "config" / "workflows.yaml"
    entry = "wf_image_to_image:\n  template_path: workflows/wf_image_to_image.json\n"
    entry += "  inputs: {image: '4.image', checkpoint: '1.ckpt_name'}\n"
    recipes.write_text(f"{entry}  defaults: {{image: pictures/castle.png, checkpoint: auto}}\n")
    words = (
        "--workflow",
        "wf_image_to_image",
        "--jobs",
        "2",
        "--output",
        str(tmp_path / "r.json"),
        "-C",
        str(tmp_path),
    )
    answer = call_e3("loadtest", *words, cwd=tmp_path.parent)
    assert answer.returncode == 0, answer.stderr
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (report["environment"]["workflow"]["name"], report["summary"]["completed"]) == ("wf_image_to_image", 2)


def test_a_sample_whose_model_is_absent_is_measured_with_another_and_says_so(tmp_path: Path) -> None:
    server = simulator(tmp_path / "sim", "--models", "other.safetensors").start()
    try:
        words = ("--workflow", "book_small", "--jobs", "1", "--concurrency", "1", "--output", "r.json")
        answer = call_e3("loadtest", "--server", server.url, *words, cwd=tmp_path)
    finally:
        server.kill()
    assert answer.returncode == 0, answer.stderr
    assert "△" in answer.stderr
    assert "has no model v1-5-pruned-emaonly-fp16.safetensors, which book_small names" in answer.stderr
    (warning,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["summary"]["warnings"]
    assert "it was measured with other.safetensors" in warning


@pytest.mark.parametrize(
    ("flags", "at_once"), [((), 6), (("--parallel-pages",), 6), (("--serial-pages",), 2)], ids=["usual", "all", "one"]
)
def test_books_are_pressed_as_the_agent_works_unless_told_otherwise(
    slow: ServerProcess, tmp_path: Path, flags: tuple[str, ...], at_once: int
) -> None:
    answer = load(tmp_path, slow.url, "--books", "2", "--pages", "3", "--output", "r.json", *flags)
    assert answer.returncode == 0, answer.stderr
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert report["environment"]["parameters"]["parallel_pages"] is (at_once == 6)
    first_end = min(row["seconds"] + row["duration_sec"] for row in report["results"])
    assert sum(row["seconds"] < first_end for row in report["results"]) == at_once


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-this-name/x.json", ".", "", "book_huge"])
def test_a_name_that_can_be_no_workflow_is_one_line_of_usage(tmp_path: Path, name: str) -> None:
    answer = call_e3("loadtest", "--server", NOWHERE, "--workflow", name, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    only_line(answer)


@pytest.mark.parametrize(
    "options",
    [
        ("--concurrency", "0"),
        ("--concurrency", "4,2"),
        ("--concurrency", "many"),
        ("--concurrency", ""),
        ("--concurrency", "2", "--rate", "5"),
        ("--rate", "5/h"),
        ("--rate", ""),
        ("--books", "1.5"),
        ("--books", "2", "--duration", "5"),
        ("--books", "2", "--jobs", "5"),
        ("--serial-pages",),
        ("--parallel-pages",),
        ("--server", "ftp://x"),
    ],
)
def test_options_that_do_not_fit_are_one_line_of_usage(tmp_path: Path, options: tuple[str, ...]) -> None:
    arguments = ("--workflow", str(workflow_file(tmp_path)), "--server", NOWHERE)
    answer = call_e3("loadtest", *arguments, *options, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert options[0] in only_line(answer)


@pytest.mark.parametrize(
    "options", [("--jobs", "0"), ("--jobs", "x"), ("--timeout", "-1"), ("--timeout", "nan"), ("--duration", "inf")]
)
def test_bad_numbers_are_usage(tmp_path: Path, options: tuple[str, ...]) -> None:
    arguments = ("--workflow", str(workflow_file(tmp_path)), "--server", NOWHERE)
    answer = call_e3("loadtest", *arguments, *options, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert options[0] in answer.stderr


def test_places_where_no_report_can_be_are_said_before_anything_is_sent(servers: Servers, tmp_path: Path) -> None:
    url = servers.url("sim")
    before = asked(url, "history").keys()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "page.html").mkdir()
    for output in ("file/report.json", "folder", ".", "n" * 300 + ".json", "page.out"):
        answer = load(tmp_path, url, "--jobs", "1", "--output", output)
        assert answer.returncode == 2, output
        assert "--output" in only_line(answer)
    assert asked(url, "history").keys() == before
    assert (tmp_path / "file").read_text() == "kept"


def test_a_long_name_is_written_after_all(servers: Servers, tmp_path: Path) -> None:
    name = "n" * 245 + ".json"
    assert load(tmp_path, servers.url("sim"), "--jobs", "1", "--output", name).returncode == 0
    assert json.loads((tmp_path / name).read_text())["summary"]["completed"] == 1


def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    workflow_file(tmp_path)
    arguments = ("--workflow", "page.json", "--server", NOWHERE, "--output", "closed/report.json")
    answer = run_e3("loadtest", *arguments, cwd=tmp_path, preexec_fn=like_anyone)
    assert answer.returncode == 2
    assert "closed" in answer.stderr


def test_a_metrics_log_that_cannot_be_written_is_a_warning(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "infra" / "observability" / "comfyui_metrics.ndjson").mkdir(parents=True)
    answer = load(tmp_path, servers.url("sim"), "--jobs", "2", "--json")
    assert answer.returncode == 0
    assert "cannot be written" in answer.stderr
    assert json.loads(answer.stdout)["environment"]["metrics_log"] is None


def test_others_at_the_server_are_warned_about_and_left_alone(slow: ServerProcess, tmp_path: Path) -> None:
    others = picture()
    others["2"]["inputs"]["images"] = ["3", 0]
    others["3"] = node("Sleep", value=["1", 0], seconds=2.0)
    body = {"prompt": others, "prompt_id": "11111111-1111-4111-8111-111111111111"}
    request = urllib.request.Request(
        f"{slow.url}/prompt", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=5).close()
    answer = load(tmp_path, slow.url, "--jobs", "1", "--warmup", "0")
    assert "had 1 prompt of others" in answer.stderr
    entry = asked(slow.url, f"history/{body['prompt_id']}")[body["prompt_id"]]
    assert entry["status"]["status_str"] == "success"


@pytest.mark.parametrize(
    ("number", "code", "options"),
    [(signal.SIGINT, 130, ("--concurrency", "8")), (signal.SIGTERM, 143, ("--rate", "20/s", "--even"))],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_signal_in_the_middle_keeps_what_was_measured_and_leaves_nothing_behind(
    slow: ServerProcess, tmp_path: Path, number: int, code: int, options: tuple[str, ...]
) -> None:
    with started(tmp_path, slow.url, "--jobs", "500", "--warmup", "0", *options) as process:
        wait_until(lambda: ended_prompts(tmp_path) >= 2, "two prompts in the log, while it runs")
        process.send_signal(number)
        returncode, out, err = finished(process)
    assert returncode == code, err
    assert is_idle(slow.url)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    summary = report["summary"]
    assert summary["partial"] is True
    assert 2 <= summary["completed"] == summary["total_jobs"] == len(report["results"]) < 500
    assert summary["failed"] == summary["timeouts"] == 0
    assert summary["unfinished"] >= 1
    assert "stopped in the middle" in out
    assert "Traceback" not in err
    assert (tmp_path / "report.html").exists()


def test_a_signal_with_json_is_still_one_document(slow: ServerProcess, tmp_path: Path) -> None:
    with started(tmp_path, slow.url, "--jobs", "500", "--json", "--warmup", "0") as process:
        wait_until(lambda: ended_prompts(tmp_path) >= 1, "a prompt in the log")
        process.send_signal(signal.SIGINT)
        returncode, out, _ = finished(process)
    assert returncode == 130
    assert json.loads(out)["summary"]["partial"] is True


@pytest.mark.slow
def test_a_signal_while_it_warms_up_leaves_nothing_behind(slow: ServerProcess, tmp_path: Path) -> None:
    with started(tmp_path, slow.url, "--warmup", "100") as process:
        wait_until(lambda: not is_idle(slow.url), "the first prompt at the server")
        process.send_signal(signal.SIGTERM)
        returncode, _, err = finished(process)
    assert returncode == 143
    assert "Traceback" not in err
    assert is_idle(slow.url)


@pytest.mark.slow
def test_many_prompts_that_wait_are_all_taken_back_and_soon(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    server = simulator(tmp_path_factory.mktemp("flooded"), "--render-seconds", "1").start()
    try:
        with started(tmp_path, server.url, "--concurrency", "600", "--jobs", "600", "--warmup", "0") as process:
            wait_until(lambda: len(asked(server.url, "queue")["queue_pending"]) >= 500, "500 prompts in the queue", 60)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            returncode, _, err = finished(process)
        assert returncode == 130, err
        assert "Traceback" not in err
        assert is_idle(server.url)
        assert time.monotonic() - began < 10
    finally:
        server.kill()


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle_is_failed_rows_and_a_report(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    server = simulator(tmp_path_factory.mktemp("dying"), "--crash-after", "4", "--render-seconds", "0.02").start()
    try:
        answer = load(
            tmp_path, server.url, "--jobs", "8", "--concurrency", "2", "--warmup", "0", "--timeout", "2", "--json"
        )
    finally:
        server.kill()
    report = json.loads(answer.stdout)
    summary = report["summary"]
    assert answer.returncode == 0
    assert (summary["completed"], summary["failed"] + summary["timeouts"]) == (4, 4)
    assert not summary["partial"]
    assert all(row["error"] for row in report["results"] if row["status"] != "completed")


def test_nothing_completed_is_exit_1_and_a_report(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    server = simulator(tmp_path_factory.mktemp("failing"), "--failure-rate", "1").start()
    try:
        answer = load(tmp_path, server.url, "--jobs", "3", "--output", "report.json")
    finally:
        server.kill()
    assert answer.returncode == 1
    assert "0 of 3 completed, 3 failed" in answer.stdout
    assert answer.stdout.count("△ prompt ") == 3
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["p95_duration_sec"] is None


def test_a_baseline_twice_on_a_day(servers: Servers, tmp_path: Path) -> None:
    for jobs in ("2", "3"):
        answer = load(tmp_path, servers.url("sim"), "--jobs", jobs, "--baseline")
        assert answer.returncode == 0, answer.stderr
    (day,) = (tmp_path / "infra" / "observability" / "baselines").iterdir()
    assert len(day.name.split("-")) == 3  # the date
    reports = sorted(day.glob("load*.json"))
    assert [json.loads(path.read_text())["summary"]["completed"] for path in reports] == [2, 3]
    for path, jobs in zip(reports, (2, 3), strict=True):
        (log,) = day.glob(f"*_{path.stem}.ndjson")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert sum(line["event"] == "job.done" for line in lines) == jobs
        assert len({line["load_test"] for line in lines}) == 1
    readme = (day / "README.md").read_text(encoding="utf-8")
    facts = json.loads(reports[0].read_text())["environment"]
    for words in ("ComfyUI 0.33.0", "driver", facts["workflow"]["sha256"], "levels", "p95"):
        assert words in readme
    assert facts["machine"]["platform"] in readme
    assert not list((tmp_path / "infra" / "observability").glob("load*"))


def test_the_log_grows_while_it_runs(slow: ServerProcess, tmp_path: Path) -> None:
    seen: list[int] = []
    with started(tmp_path, slow.url, "--jobs", "4", "--concurrency", "1", "--warmup", "0") as process:

        def look() -> bool:
            seen.append(ended_prompts(tmp_path))
            return process.poll() is not None

        wait_until(look, "its end")
    assert {0, 1, 2, 3} <= set(seen)


def test_on_a_terminal_there_is_a_bar_and_ctrl_c_cleans_up(slow: ServerProcess, tmp_path: Path) -> None:
    workflow = str(workflow_file(tmp_path))
    arguments = ("--workflow", workflow, "--jobs", "60", "--concurrency", "2", "--warmup", "0", "--output", "r.json")
    with in_terminal("loadtest", "--server", slow.url, *arguments, cwd=tmp_path) as terminal:
        terminal.wait_for("━")
        terminal.wait_for("2 of 60 done")
        terminal.press_ctrl_c()
        assert terminal.finish() == 130
    screen = terminal.screen
    assert screen.has_cursor
    assert screen.strange == []
    assert "━" not in screen.text
    assert "stopped in the middle" in screen.text
    assert is_idle(slow.url)


def test_words_of_the_server_do_nothing_to_a_terminal(servers: Servers, tmp_path: Path) -> None:
    bad = page(sampler_name="\x1b[2J\nnope")
    answer = load(tmp_path, servers.url("sim"), graph=bad)
    assert answer.returncode == 1
    assert "\x1b" not in answer.stderr + answer.stdout
    only_line(answer)


def test_a_password_in_an_address_is_shown_nowhere(servers: Servers, tmp_path: Path) -> None:
    url = servers.url("sim").replace("://", "://someone:geheim@")
    answer = load(tmp_path, url, "--jobs", "1", "--json")
    assert answer.returncode == 0, answer.stderr
    assert "geheim" not in answer.stdout + answer.stderr
    for path in (tmp_path / "infra").rglob("*.*"):
        assert "geheim" not in path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_reader_that_leaves_does_not_cost_the_report(servers: Servers, tmp_path: Path) -> None:
    """`e3 loadtest | head -1`"""
    workflow_file(tmp_path)
    command = [sys.executable, "-m", "comfyui_agent", "loadtest", "--server", servers.url("sim"), "--output", "r.json"]
    command += ["--workflow", "page.json", "--jobs", "10", "--concurrency", "1..3"]
    ours, theirs = os.pipe()
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(theirs)
    os.read(ours, 10)
    os.close(ours)
    killer = threading.Timer(30, process.kill)
    killer.start()
    _, err = process.communicate()
    killer.cancel()
    assert "Traceback" not in err
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["completed"] == 30
