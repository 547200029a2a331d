"""Baselines: report, page, log of that time and a README that says what was measured on what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.lab.load.files import lines_of, write_baseline
from comfyui_agent.lab.reports.environment import Environment
from comfyui_agent.lab.reports.load import LoadReport

RUN = "abcd1234"
TIMES = {"started_at": "2026-11-15T10:00:00.000Z", "ended_at": "2026-11-15T10:05:00.000Z"}
ENVIRONMENT = Environment.model_validate(TIMES)


def document(name: str = "book_medium", **summary: Any) -> dict[str, Any]:
    return {
        "summary": {
            "total_jobs": 12,
            "completed": 11,
            "failed": 1,
            "p95_duration_sec": 31.5,
            "images_per_minute": 21.0,
            "partial": False,
            "knee": None,
            "warnings": [],
            "avg_gpu_util": None,
            "mode": "closed",
            **summary,
        },
        "results": [],
        "environment": {
            **TIMES,
            "e3": "1.2.3",
            "machine": {"cpu": "A | B", "cores": 8, "platform": "Linux"},
            "servers": [
                {
                    "server": "http://x",
                    "comfyui_version": "0.7.0",
                    "python": "3.12",
                    "pytorch": "2.9",
                    "devices": [{"name": "RTX 5060 Ti", "vram_total_mb": 16000}],
                    "driver": "570.1",
                }
            ],
            "workflow": {"name": name, "sha256": "f" * 64, "nodes": 7},
            "parameters": {"mode": "closed", "levels": [4], "jobs": 12, "timeout": 420.0},
        },
    }


def report(name: str = "book_medium", **summary: Any) -> LoadReport:
    return LoadReport.model_validate(document(name, **summary))


def line(**facts: Any) -> str:
    return json.dumps({"timestamp": "2026-11-15 10:01:00.000", "event": "job.done", **facts}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.ndjson"
    path.write_text(line(load_test=RUN, prompt_id="ours"), encoding="utf-8")
    return path


def test_all_four_files_are_there_and_the_readme_says_what_was_measured_on_what(tmp_path: Path, log: Path) -> None:
    folder = tmp_path / "day"
    folder.mkdir()
    path = write_baseline(folder, report(), "<html></html>", log, RUN)
    assert path == folder / "load_book_medium.json"
    assert json.loads(path.read_text(encoding="utf-8")) == document()
    assert (folder / "load_book_medium.html").read_text() == "<html></html>"
    (kept,) = folder.glob("*.ndjson")
    assert kept.read_text() == log.read_text()
    told = (folder / "README.md").read_text(encoding="utf-8")
    for words in ("RTX 5060 Ti (16000 MB)", "570.1", "ComfyUI 0.7.0", "f" * 64, "levels [4]", "timeout 420.0"):
        assert words in told
    for words in ("| p95_duration_sec | 31.5 |", "| images_per_minute | 21.0 |", "A \\| B", "8 cores", kept.name):
        assert words in told
    assert "Partial" not in told


def test_a_second_one_of_a_day_stands_beside_the_first(tmp_path: Path, log: Path) -> None:
    first = write_baseline(tmp_path, report(), "one", log, RUN)
    kept = first.read_bytes()
    second = write_baseline(tmp_path, report(completed=12), "two", log, RUN)
    assert first.read_bytes() == kept
    assert second.name == "load_book_medium_2.json"
    told = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert told.count("# Baseline of ") == 1
    assert "\n## load_book_medium\n" in told
    assert "\n## load_book_medium_2\n" in told
    assert len(list(tmp_path.glob("*load*.ndjson"))) == 2


def test_what_a_person_wrote_into_the_readme_stays(tmp_path: Path, log: Path) -> None:
    (tmp_path / "README.md").write_text("# Before the driver update\nNotes.\n", encoding="utf-8")
    write_baseline(tmp_path, report(), "", log, RUN)
    assert (tmp_path / "README.md").read_text(encoding="utf-8").startswith("# Before the driver update\nNotes.\n\n## ")


def test_a_readme_that_is_no_utf8_does_not_cost_the_baseline(tmp_path: Path, log: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"caf\xe9\n")
    write_baseline(tmp_path, report(), "", log, RUN)
    assert b"## load_book_medium" in (tmp_path / "README.md").read_bytes()


@pytest.mark.parametrize(
    "name", ["../../etc", "Füchse 狐狸", "a | b", "x" * 300, "狐" * 100], ids=["dots", "scripts", "bar", "long", "wide"]
)
def test_odd_names_of_workflows_stay_in_the_folder(tmp_path: Path, log: Path, name: str) -> None:
    folder = tmp_path / "day"
    folder.mkdir()
    path = write_baseline(folder, report(name), "", log, RUN)
    assert path.parent == folder
    assert path.name.startswith("load_")
    assert len(list(folder.iterdir())) == 4


def test_a_partial_one_says_so_first(tmp_path: Path, log: Path) -> None:
    write_baseline(tmp_path, report(partial=True, warnings=["x|y\nz"]), "", log, RUN)
    told = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "**Partial" in told
    assert "- x\\|y z" in told


def test_a_server_of_which_nothing_is_known_is_no_trouble(tmp_path: Path, log: Path) -> None:
    bare = document()
    bare["environment"]["servers"] = [
        {"server": "http://x", "comfyui_version": None, "python": None, "pytorch": None, "devices": [], "driver": None}
    ]
    write_baseline(tmp_path, LoadReport.model_validate(bare), "", log, RUN)
    assert "no device known" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_log_keeps_this_run_and_what_agents_wrote_meanwhile_and_nothing_else(tmp_path: Path) -> None:
    ours = line(load_test=RUN, timestamp="2026-11-15 09:59:00.000")
    agents = line(id=7, timestamp="2026-11-15 10:04:59.999")
    lost = [
        line(id=6, timestamp="2026-11-15 09:59:59.999"),
        line(id=8, timestamp="2026-11-15 10:05:00.001"),
        line(load_test="other"),
        "half a li",
    ]
    path = tmp_path / "metrics.ndjson"
    path.write_text("".join([ours, agents, *lost]), encoding="utf-8")
    assert list(lines_of(path, RUN, ENVIRONMENT)) == [ours, agents]


def test_lines_of_any_kind_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.ndjson"
    ours = line(load_test=RUN)
    hostile = ["{}\n", "[]\n", "null\n", '{"timestamp": 5}\n', "\n", "[" * 100_000 + "\n", '"x"\n', "\x00\n"]
    path.write_text("".join([*hostile, ours]), encoding="utf-8")
    assert list(lines_of(path, RUN, ENVIRONMENT)) == [ours]


def test_lines_that_were_rotated_away_meanwhile_are_found(tmp_path: Path) -> None:
    path = tmp_path / "metrics.ndjson"
    first, second, third = (line(load_test=RUN, prompt_id=str(number)) for number in range(3))
    path.with_name("metrics.ndjson.2").write_text(first)
    path.with_name("metrics.ndjson.1").write_text(second)
    path.write_text(third)
    assert list(lines_of(path, RUN, ENVIRONMENT)) == [first, second, third]


def test_a_log_that_was_never_written_is_an_empty_one(tmp_path: Path) -> None:
    assert list(lines_of(tmp_path / "absent", RUN, ENVIRONMENT)) == []
