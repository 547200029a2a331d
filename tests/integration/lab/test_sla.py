"""`e3 sla check`: verdicts for people, for scripts and for CI."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support.terminal import in_terminal, like_anyone
from support.workspaces import call_e3, run_e3

STARTED, ENDED = "2026-11-15T23:00:00.000Z", "2026-11-15T23:05:00.000Z"


def load(path: Path, duration: float = 10.0, count: int = 60, **environment: Any) -> Path:
    """A report with two prompts a second."""
    rows = [
        {
            "index": n,
            "prompt_id": f"p{n}",
            "status": "completed",
            "duration_sec": duration,
            "seconds": n / 2,
            "images": 1,
        }
        for n in range(count)
    ]
    summary = {"total_jobs": count, "mode": "closed", "wall_clock_sec": count / 2 + duration}
    facts = {"kind": "loadtest", "started_at": STARTED, "ended_at": ENDED, **environment}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"summary": summary, "results": rows, "environment": facts}), encoding="utf-8")
    return path


def chaos(path: Path, recovery: float = 31.0) -> Path:
    results = [{"scenario": "comfyui-crash", "verdict": "passed", "recovery_sec": recovery}]
    document = {"summary": {"kind": "chaos", "total": 1}, "results": results, "environment": {"kind": "chaos"}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def failures(path: Path) -> Path:
    stamp = "2026-11-15 23:03:{:02}.000"
    lines = [{"timestamp": stamp.format(n), "event": "job.failed", "prompt_id": f"x{n}"} for n in range(20)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


def check(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return call_e3("sla", "check", *map(str, arguments), cwd=folder)


def verdicts(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {each["target"]: each["verdict"] for each in json.loads(answer.stdout)["targets"]}


def test_a_sentence_and_a_line_for_each_target_that_need_no_colour(tmp_path: Path) -> None:
    answer = check(tmp_path, load(tmp_path / "load.json", duration=50.0), chaos(tmp_path / "chaos.json"))
    first, *lines = answer.stdout.splitlines()
    assert (answer.returncode, answer.stderr) == (1, "")
    assert first == "Missed: latency p95. 4 of 6 targets are met; not measured: books at once."
    assert [line.split("  ")[0] for line in lines[:6]] == [
        *("● met", "○ not measured", "△ missed", "● met", "● met", "● met"),
    ]
    assert "Latency p95    50 s" in lines[2]
    assert len({line.index("≥") if "≥" in line else line.index("≤") for line in lines[:5]}) == 1


def test_on_a_terminal_it_says_the_same(tmp_path: Path) -> None:
    load(tmp_path / "load.json")
    with in_terminal("sla", "check", "load.json", cwd=tmp_path) as terminal:
        assert terminal.finish() == 0
        shown, screen = terminal.text, terminal.screen
    assert screen.strange == []
    for word in ("Nothing is missed", "● met", "○ not measured", "Throughput", "≤ 45 s", "0 of 60 jobs failed"):
        assert word in shown


def test_what_is_not_measured_fails_only_strictly(tmp_path: Path) -> None:
    report = load(tmp_path / "load.json")
    assert check(tmp_path, report).returncode == 0
    assert check(tmp_path, report, "--strict").returncode == 1
    assert json.loads(check(tmp_path, report, "--json", "--strict").stdout)["verdict"] == "not measured"


def test_the_targets_are_those_of_the_workspace(tmp_path: Path) -> None:
    report = load(tmp_path / "load.json")
    (tmp_path / "site" / "config").mkdir(parents=True)
    config = tmp_path / "site" / "config" / "global_config.yaml"
    config.write_text("sla:\n  p95_seconds: 9\n", encoding="utf-8")
    assert verdicts(check(tmp_path, report, "--json"))["p95_seconds"] == "met"
    for there in (["-C", tmp_path / "site"], ["--config", config]):
        answer = check(tmp_path, report, "--json", *there)
        assert (answer.returncode, verdicts(answer)["p95_seconds"]) == (1, "missed")


def test_a_folder_of_a_baseline_is_its_reports_and_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "baselines" / "2026-11-15"
    load(folder / "load_small.json")
    load(folder / "load_large.json", duration=20.0)
    assert verdicts(check(tmp_path, folder, "--json"))["error_spikes"] == "met"
    failures(folder / "comfyui_metrics.ndjson")
    answer = check(tmp_path, folder, folder / "load_small.json", "--json")
    document = json.loads(answer.stdout)
    assert (answer.returncode, verdicts(answer)["error_spikes"]) == (1, "missed")
    assert [Path(each["path"]).name for each in document["reports"]] == ["load_large.json", "load_small.json"]
    assert document["targets"][2]["measured"] == 20.0


def test_the_log_is_the_named_one_else_that_beside_the_report_else_the_reports_own(tmp_path: Path) -> None:
    report = load(tmp_path / "reports" / "load.json", metrics_log="logs/own.ndjson")
    assert verdicts(check(tmp_path, report, "--json"))["error_spikes"] == "met"
    failures(tmp_path / "logs" / "own.ndjson")
    assert verdicts(check(tmp_path / "logs", report, "-C", tmp_path, "--json"))["error_spikes"] == "missed"
    (tmp_path / "reports" / "beside.ndjson").write_text("", encoding="utf-8")
    assert verdicts(check(tmp_path, report, "--json"))["error_spikes"] == "met"
    named = check(tmp_path, report, "--log", tmp_path / "logs" / "own.ndjson", "--json")
    assert verdicts(named)["error_spikes"] == "missed"


def test_junit_is_written_also_when_the_verdict_is_bad(tmp_path: Path) -> None:
    place = tmp_path / "new" / "sla.xml"
    answer = check(tmp_path, load(tmp_path / "load.json", duration=50.0), "--junit", place)
    suite = ElementTree.parse(place).getroot()[0]
    assert answer.returncode == 1
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "1", "2")
    assert [path.name for path in place.parent.iterdir()] == ["sla.xml"]


def test_junit_that_cannot_be_written_is_said_after_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    answer = check(tmp_path, load(tmp_path / "load.json"), "--junit", tmp_path / "file" / "sla.xml")
    assert answer.returncode == 1
    assert answer.stdout.startswith("Nothing is missed")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: cannot write ")
    assert "--junit" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no.json"], "there is no file no.json"),
        (["rubbish.json"], "rubbish.json is not JSON"),
        (["empty"], "empty holds no report: load_*.json or chaos_*.json were looked for"),
        (["load.json", "--log", "no.ndjson"], "there is no log no.ndjson"),
        (["load.json", "-C", "nowhere"], "there is no folder nowhere"),
        ([], "Missing argument"),
        (["load.json", "--lax"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_a_usage_error(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rubbish.json").write_text("{", encoding="utf-8")
    load(tmp_path / "load.json")
    answer = check(tmp_path, *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("e3: ")
    assert words in line


def test_what_a_report_says_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    path = chaos(tmp_path / "chaos.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["results"][0] |= {"verdict": "failed", "recovery_sec": None, "reason": "\x1b[2Jgone\nand more"}
    path.write_text(json.dumps(document), encoding="utf-8")
    answer = check(tmp_path, path)
    assert "\x1b" not in answer.stdout
    assert "no recovery was seen: \\x1b[2Jgone and more" in answer.stdout


def test_a_report_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    path = load(tmp_path / "load.json")
    path.chmod(0)
    answer = run_e3("sla", "check", str(path), cwd=tmp_path, preexec_fn=like_anyone)
    assert (answer.returncode, answer.stderr) == (2, f"e3: {path} cannot be read: Permission denied\n")
