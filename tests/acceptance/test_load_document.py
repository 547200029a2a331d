"""The commands of the load test's document, from the folder and with the flags that it prints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.sim.process import ServerProcess, simulator
from support.load import wait_until
from support.workspaces import call_e3

CHECKOUT = Path(__file__).parents[2]
SUMMARY = {
    *("total_jobs", "completed", "failed", "timeouts", "avg_duration_sec", "p50_duration_sec", "p95_duration_sec"),
    *("images_per_minute", "success_rate", "cached_jobs", "wall_clock_sec"),
}
COMMAND = (
    *("run_load_test.py", "--server", "SERVER", "--workflow", "../samples/book_medium.json", "--jobs", "12"),
    *("--concurrency", "4", "--timeout", "420", "--output", "../../observability/load_2024-06-xx.json"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = simulator(tmp_path_factory.mktemp("server"), "--render-seconds", "0.02").start()
    yield server
    server.kill()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folders of this checkout that the document names, where a test may write."""
    for name in ("samples", "load_test"):
        shutil.copytree(CHECKOUT / "infra" / "comfyui" / name, tmp_path / "infra" / "comfyui" / name)
    return tmp_path


def harness(checkout: Path, server: ServerProcess, *more: str) -> subprocess.Popen[str]:
    arguments = [server.url if word == "SERVER" else word for word in COMMAND]
    return subprocess.Popen(
        [sys.executable, *arguments, *more],
        cwd=checkout / "infra" / "comfyui" / "load_test",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def summaries(folder: Path) -> list[dict[str, Any]]:
    """`jq '.summary' FOLDER/load*.json`"""
    files = sorted(map(str, folder.glob("load*.json")))
    assert files
    jq = shutil.which("jq")
    if jq is None:
        return [json.loads(Path(file).read_text(encoding="utf-8"))["summary"] for file in files]
    told = subprocess.run([jq, "-c", ".summary", *files], capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def test_the_harness_runs_as_printed_while_its_log_can_be_followed(checkout: Path, server: ServerProcess) -> None:
    log = checkout / "infra" / "observability" / "comfyui_metrics.ndjson"
    process = harness(checkout, server)
    wait_until(lambda: log.exists() and "job.done" in log.read_text(encoding="utf-8"), "a line in the log")
    grew_meanwhile = process.poll() is None
    assert "12 of 12 completed" in finish(process)
    assert grew_meanwhile
    (summary,) = summaries(checkout / "infra" / "observability")
    assert set(summary) >= SUMMARY
    assert (summary["total_jobs"], summary["completed"], summary["failed"], summary["timeouts"]) == (12, 12, 0, 0)
    assert summary["success_rate"] == 1
    report = json.loads((checkout / "infra" / "observability" / "load_2024-06-xx.json").read_text(encoding="utf-8"))
    assert report["environment"]["parameters"]["levels"] == [4]
    assert report["environment"]["parameters"]["timeout"] == 420
    judged = call_e3("sla", "check", "infra/observability/load_2024-06-xx.json", cwd=checkout)
    assert judged.returncode == 0, judged.stderr
    assert (
        "This judges throughput and error spikes. For the rest: 20 jobs for latency p95, 50 jobs for errors "
        "(e3 loadtest --jobs 50), e3 loadtest --books 5 for books at once, e3 chaos all for recovery."
    ) in judged.stdout


@pytest.mark.slow
def test_a_baseline_of_it_holds_all_that_the_document_asks_for(checkout: Path, server: ServerProcess) -> None:
    finish(harness(checkout, server, "--baseline"))
    (day,) = (checkout / "infra" / "observability" / "baselines").iterdir()
    (summary,) = summaries(day)
    assert summary["completed"] == 12
    assert list(day.glob("*.ndjson"))
    readme = (day / "README.md").read_text(encoding="utf-8")
    report = json.loads(next(day.glob("load*.json")).read_text(encoding="utf-8"))
    for fact in (report["environment"]["workflow"]["sha256"], "driver", "cores", "jobs 12", "p95_duration_sec"):
        assert fact in readme


def test_the_requirements_install_this_checkout_and_nothing_from_elsewhere() -> None:
    folder = CHECKOUT / "infra" / "comfyui" / "load_test"
    words = [
        line.split()
        for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    installed = [line[0] for line in words if len(line) == 1]
    assert [(folder / each).resolve() for each in installed] == [CHECKOUT]
    for option, path in (line for line in words if len(line) == 2):
        assert option in ("-c", "--constraint")
        assert (folder / path).is_file()


def test_its_help_is_that_of_the_command_and_names_every_flag_of_the_document(checkout: Path) -> None:
    command = [sys.executable, "run_load_test.py", "--help"]
    folder = checkout / "infra" / "comfyui" / "load_test"
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=True).stdout
    for flag in ("--server", "--workflow", "--jobs", "--concurrency", "--timeout", "--output", "--scenario"):
        assert flag in told
