"""A report file is read back, or refused in one line that says what it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.reports import reading
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.fields import as_moment, as_number
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport, read_report
from comfyui_agent.lab.sla.load_targets import levels_of

ROW = {
    "index": 0,
    "prompt_id": "p0",
    "status": "completed",
    "duration_sec": 2.5,
    "queue_sec": 0.5,
    "exec_sec": 2.0,
    "cached": False,
    "error": None,
}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "summary": {"total_jobs": 1, "wall_clock_sec": 2.5},
        "results": [ROW],
        "environment": {"kind": "loadtest", "started_at": "2026-11-15T23:10:01.250Z"},
    } | changes


def written(folder: Path, content: Any) -> Path:
    path = folder / "report.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def load_test(path: Path) -> LoadReport:
    report = read_report(path)
    assert isinstance(report, LoadReport)
    return report


def test_the_keys_of_the_contract_alone_are_enough(tmp_path: Path) -> None:
    report = load_test(written(tmp_path, document()))
    assert (report.summary.mode, report.is_partial) == ("", False)
    (row,) = report.rows
    assert (row.is_completed, row.duration_sec, row.queue_sec, row.images) == (True, 2.5, 0.5, 1)
    assert not report.has_times


def test_rows_come_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    rows = [ROW | {"index": 0, "seconds": 0.0, "duration_sec": 9.0}, ROW | {"index": 1, "seconds": 1.0}]
    report = load_test(written(tmp_path, document(results=rows)))
    assert [row.index for row in report.rows] == [1, 0]
    assert report.has_times


def test_without_seconds_the_times_of_day_tell_when(tmp_path: Path) -> None:
    rows = [ROW | {"ended_at": "2026-11-15T23:10:11.250Z"}, ROW | {"started_at": "2026-11-15T23:10:02.250Z"}]
    report = load_test(written(tmp_path, document(results=rows)))
    assert sorted(row.ended_seconds for row in report.rows) == pytest.approx([3.5, 10.0])


def test_the_levels_of_a_ramp_have_their_own_rows(tmp_path: Path) -> None:
    rows = [ROW | {"index": 0, "level": 4}, ROW | {"index": 1, "level": 1}, ROW | {"index": 2, "level": 4}]
    levels = [{"level": 4, "unit": "prompts at once", "wall_clock_sec": 9.0}, {"level": 1, "wall_clock_sec": 3.0}]
    report = load_test(written(tmp_path, document(results=rows, summary={"total_jobs": 3, "levels": levels})))
    assert [(each.number, len(each.rows), each.wall_clock_sec) for each in levels_of(report, Sla())] == [
        (1, 1, 3.0),
        (4, 2, 9.0),
    ]


def test_one_level_is_the_whole_run(tmp_path: Path) -> None:
    levels = [{"level": 5, "unit": "books at once", "wall_clock_sec": 1.0}]
    summary = {"total_jobs": 1, "wall_clock_sec": 2.5, "levels": levels}
    report = load_test(written(tmp_path, document(summary=summary, results=[ROW | {"level": 5}])))
    (level,) = levels_of(report, Sla())
    assert (level.number, level.where, level.wall_clock_sec, len(level.rows)) == (5, "", 2.5, 1)


def test_what_is_no_number_is_unknown_and_no_error(tmp_path: Path) -> None:
    odd = ROW | {"duration_sec": "long", "queue_sec": -1, "exec_sec": True, "images": None, "level": [], "cached": "no"}
    (row,) = load_test(written(tmp_path, document(results=[odd]))).rows
    assert (row.duration_sec, row.queue_sec, row.exec_sec, row.cached) == (None, None, None, False)


def test_a_row_that_does_not_say_how_it_ended_counts_as_failed(tmp_path: Path) -> None:
    (row,) = load_test(written(tmp_path, document(results=[ROW | {"status": "fine"}]))).rows
    assert not row.is_completed


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    assert load_test(written(tmp_path, b"\xef\xbb\xbf" + json.dumps(document()).encode())).rows
    assert load_test(written(tmp_path, json.dumps(document()).encode("utf-16"))).rows


def test_a_chaos_report_is_known_by_its_kind(tmp_path: Path) -> None:
    chaos = {"summary": {"kind": "chaos", "total": 1}, "results": [{"scenario": "gpu-oom"}], "environment": {}}
    report = read_report(written(tmp_path, chaos))
    assert isinstance(report, ChaosReport)
    assert [each.scenario for each in report.results] == ["gpu-oom"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON: it is nested too deeply"),
        ([1], "is not a report: a report is a JSON object with summary, results and environment"),
        ({}, "is not a report: it has no summary and no results and no environment"),
        ({"total_jobs": 3}, "is the summary of a report alone: the whole report is wanted"),
        ({"gpu_trace": [], "nodes": [], "environment": {}}, "is a profile (e3 profile)"),
        (document(results={}), "is not a report: it has no results"),
        (document(results=[3]), "its results are not a list of objects"),
        (document(summary={}), "is not a whole report: its summary has no total_jobs"),
        (document(summary={"total_jobs": "many"}), "its summary has no total_jobs"),
        (document(environment={"kind": "bench"}), "is a report of the kind 'bench'"),
        (document(environment={"kind": "chaos"}), "its summary has no total"),
        (document(environment={"kind": ["odd"]}), "is a report of the kind"),
    ],
)
def test_anything_else_is_one_line_that_names_the_file(tmp_path: Path, content: Any, words: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadReport) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path} ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_a_folder_and_a_pipe_are_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "no.json", "there is no file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "plain"),
    ):
        with pytest.raises(BadReport, match=words):
            read_report(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, document())
    monkeypatch.setattr(reading, "LARGEST", path.stat().st_size - 1)
    with pytest.raises(BadReport, match="too large"):
        read_report(path)
    monkeypatch.setattr(reading, "LARGEST", path.stat().st_size)
    assert load_test(path).rows


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 10**400, [], {}])
def test_only_finite_numbers_are_numbers(value: Any) -> None:
    assert as_number(value) is None


@pytest.mark.parametrize(
    "text", ["2026-11-15T12:00:00.000Z", "2026-11-15 12:00:00.000", "2026-11-15T13:00:00+01:00", "2026-11-15T12:00:00"]
)
def test_times_of_reports_and_of_the_log_are_the_same_moment(text: str) -> None:
    assert as_moment(text) == 1_794_744_000.0


@pytest.mark.parametrize("value", [None, 5, "", "yesterday", "9999-99-99"])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert as_moment(value) is None
