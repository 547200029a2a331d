"""The report of a run: exact keys, levels that were not finished claim nothing, and servers that add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.document import build_report
from comfyui_agent.lab.load.measured import LoadRun
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.load.rows import Row, RowStatus, RunClock
from comfyui_agent.lab.load.sentences import headline, summary_lines
from comfyui_agent.lab.load.summary import LevelRun
from comfyui_agent.lab.payloads import Payload

PAGE = Payload.of("page", {"1": {"class_type": "X", "inputs": {"seed": 1}}})


class Trace:
    samples: tuple[Any, ...] = ()
    source = "none"


def rows(count: int, seconds: float = 1.0, status: RowStatus = RowStatus.COMPLETED, **facts: Any) -> tuple[Row, ...]:
    images = int(status is RowStatus.COMPLETED)
    return tuple(
        Row(n, f"id{n}", status, seconds, images=images, **({"server": "http://a"} | facts)) for n in range(count)
    )


def report(*levels: LevelRun, mode: Mode = Mode.CLOSED, **facts: Any) -> dict[str, Any]:
    plan = LoadPlan(("http://a",), (PAGE,), mode, tuple(level.level for level in levels) or (1.0,))
    run = LoadRun(plan, RunClock(), [{"server": "http://a"}], Trace(), list(levels), [], **facts)  # type: ignore[arg-type]
    return build_report(run, Sla())


def test_three_keys_on_top_and_every_promised_figure() -> None:
    found = report(LevelRun(4.0, rows(12), 3.0))
    assert list(found) == ["summary", "results", "environment"]
    assert set(found["summary"]) >= {
        *("total_jobs", "completed", "failed", "timeouts", "avg_duration_sec", "p50_duration_sec"),
        *("p90_duration_sec", "p95_duration_sec", "p99_duration_sec", "images_per_minute", "success_rate"),
        *("cached_jobs", "wall_clock_sec", "partial", "levels", "knee", "servers", "warnings"),
    }
    assert "concurrent_books" not in found["summary"]
    assert found["environment"]["kind"] == "loadtest"
    assert found["environment"]["workflow"]["sha256"] == PAGE.digest
    assert json.loads(json.dumps(found)) == found


def test_levels_add_up_to_the_whole_and_so_do_servers() -> None:
    both = rows(6) + rows(4, server="http://b")
    summary = report(LevelRun(1.0, both, 10.0), LevelRun(2.0, both, 5.0))["summary"]
    assert summary["wall_clock_sec"] == 15.0
    for key in ("total_jobs", "completed", "failed", "timeouts"):
        assert sum(each[key] for each in summary["levels"]) == summary[key]
        assert sum(each[key] for each in summary["servers"]) == summary[key]
    assert sum(each["images_per_minute"] for each in summary["servers"]) == pytest.approx(summary["images_per_minute"])


def test_a_level_of_which_nothing_ended_is_no_rise_of_errors() -> None:
    """Stopped in the first moments of the second level: nothing failed there."""
    summary = report(
        LevelRun(1.0, rows(12), 12.0), LevelRun(2.0, (), 0.0, is_whole=False), is_partial=True, unfinished=2
    )["summary"]
    assert summary["knee"] is None


def test_a_level_that_was_not_finished_moves_no_knee() -> None:
    """Stopped after one of many: its throughput is that of its beginning, in which nothing has ended yet."""
    steady = [LevelRun(float(level), rows(12, level=float(level)), 12.0 / level) for level in (1, 2)]
    summary = report(*steady, LevelRun(4.0, rows(1, level=4.0), 1.0, is_whole=False), is_partial=True, unfinished=3)[
        "summary"
    ]
    assert summary["knee"] is None


def test_books_that_were_not_finished_are_not_said_to_be_within_the_targets() -> None:
    done = LevelRun(1.0, rows(12), 12.0)
    summary = report(done, LevelRun(5.0, rows(1), 1.0, is_whole=False), mode=Mode.BOOKS, is_partial=True, unfinished=5)[
        "summary"
    ]
    assert summary["concurrent_books"] == 1


def test_concurrent_books_are_the_most_that_kept_latency_and_errors() -> None:
    slow, failing = rows(10, 46.0), rows(9) + rows(1, 1.0, RowStatus.FAILED)
    levels = [LevelRun(1.0, rows(10), 1.0), LevelRun(2.0, rows(10, 45.0), 1.0)]
    for bad in (slow, failing):
        summary = report(*levels, LevelRun(3.0, bad, 1.0), mode=Mode.BOOKS)["summary"]
        assert summary["concurrent_books"] == 2
        assert [each["within_sla"] for each in summary["levels"]] == [True, True, False]
    assert report(LevelRun(1.0, slow, 1.0), mode=Mode.BOOKS)["summary"]["concurrent_books"] == 0


def test_more_books_than_a_number_that_failed_do_not_count() -> None:
    levels = [LevelRun(1.0, rows(10), 1.0), LevelRun(2.0, rows(10, 46.0), 1.0), LevelRun(3.0, rows(10), 1.0)]
    assert report(*levels, mode=Mode.BOOKS)["summary"]["concurrent_books"] == 1


def test_a_run_without_a_single_row_is_a_report_all_the_same() -> None:
    for levels in ((), (LevelRun(1.0, (), 0.0),)):
        found = report(*levels, is_partial=True)
        assert found["summary"]["total_jobs"] == 0
        assert found["summary"]["p95_duration_sec"] is None
        assert summary_lines(found["summary"])


def test_cached_answers_are_warned_about() -> None:
    summary = report(LevelRun(1.0, rows(3, cached=True) + rows(1), 1.0))["summary"]
    assert summary["cached_jobs"] == 3
    assert any("3 of 4 prompts were answered from the server's cache" in each for each in summary["warnings"])


def test_the_words_say_what_failed_and_what_was_stopped() -> None:
    mixed = rows(58) + rows(1, 1.0, RowStatus.FAILED) + rows(1, 1.0, RowStatus.TIMEOUT)
    assert headline(report(LevelRun(4.0, mixed, 41.3))["summary"]) == (
        "58 of 60 completed, 1 failed, 1 timed out, in 41.3 s."
    )
    stopped = report(LevelRun(4.0, rows(2), 2.0), is_partial=True, unfinished=4)["summary"]
    assert "stopped in the middle, 4 prompts taken back" in headline(stopped)
