"""The report of a run: exact keys, levels that were not finished claim nothing, and servers that add up."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from comfyui_agent.cli.load_view import headline, summary_lines
from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.document import build_report
from comfyui_agent.lab.load.measurement import LevelRun, LoadRun
from comfyui_agent.lab.load.plan import LoadPlan, Mode
from comfyui_agent.lab.measurement.machine import RunClock
from comfyui_agent.lab.pages.load_page import load_page
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.environment import ReportKind, ServerFacts
from comfyui_agent.lab.reports.load import LoadReport, Row, RowStatus
from comfyui_agent.lab.reports.sla import standing, verdicts_in
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.web.report_summary import line_of_document

PAGE = Payload.of("page", {"1": {"class_type": "X", "inputs": {"seed": 1}}})


class Trace:
    samples: tuple[Any, ...] = ()
    source = "none"


def rows(count: int, seconds: float = 1.0, status: RowStatus = RowStatus.COMPLETED, **facts: Any) -> tuple[Row, ...]:
    known = {"status": status, "duration_sec": seconds, "images": int(status is RowStatus.COMPLETED)}
    known |= {"server": "http://a"} | facts
    return tuple(Row.model_validate({"index": n, "prompt_id": f"id{n}"} | known) for n in range(count))


def report(*levels: LevelRun, mode: Mode = Mode.CLOSED, **facts: Any) -> LoadReport:
    plan = LoadPlan(("http://a",), (PAGE,), mode, tuple(level.level for level in levels) or (1.0,))
    run = LoadRun(plan, RunClock(), [ServerFacts(server="http://a")], Trace(), list(levels), [], **facts)  # type: ignore[arg-type]
    return build_report(run, Sla())


def level(number: float, of: Sequence[Row]) -> LevelRun:
    """A level as it is driven: one after another, each result a second after the one before."""
    seconds = 1000.0 * number
    each = [row.model_copy(update={"index": n, "level": number, "seconds": seconds + n}) for n, row in enumerate(of)]
    return LevelRun(float(number), tuple(each), float(len(each)))


FINE = {"images_per_minute": "met", "p95_seconds": "met", "error_rate": "met"}


@pytest.mark.parametrize(
    ("levels", "targets"),
    [
        ([level(4, rows(12))], FINE | {"p95_seconds": "not measured", "error_rate": "not measured"}),
        ([level(4, rows(60))], FINE),
        ([level(4, rows(60, 46.0))], FINE | {"p95_seconds": "missed"}),
        ([level(1, rows(12)), level(4, rows(60)), level(8, rows(60, 46.0))], FINE),
    ],
    ids=["few", "fine", "slow", "ramp"],
)
def test_summary_levels_page_and_list_of_reports_agree_on_what_was_met(
    levels: list[LevelRun], targets: dict[str, str]
) -> None:
    found = report(*levels)
    read = LoadReport.model_validate(found.as_json())
    assert {str(each.target): str(each.verdict) for each in judge_load(read, Sla())} == targets
    assert found.summary.targets == targets
    told = standing(verdicts_in(found.summary))
    assert f": {told}." in load_page(found)
    assert told in "\n".join(summary_lines(found.summary))
    line = line_of_document(ReportKind.LOAD, json.dumps(found.as_json()))
    assert told in line.text
    assert line.needs_attention is ("missed" in targets.values())
    if len(levels) > 1:
        cells = re.findall(r"not measured|met|missed", load_page(found).partition("Levels of load")[2])
        assert cells[:3] == ["not measured", "met", "missed"]
    else:
        judged = [targets["p95_seconds"], targets["error_rate"]]
        expected = False if "missed" in judged else None if "not measured" in judged else True
        assert [each.within_sla for each in found.summary.levels] == [expected]


def test_three_keys_on_top_and_every_promised_figure() -> None:
    found = report(LevelRun(4.0, rows(12), 3.0)).as_json()
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
    summary = report(LevelRun(1.0, both, 10.0), LevelRun(2.0, both, 5.0)).as_json()["summary"]
    assert summary["wall_clock_sec"] == 15.0
    for key in ("total_jobs", "completed", "failed", "timeouts"):
        assert sum(each[key] for each in summary["levels"]) == summary[key]
        assert sum(each[key] for each in summary["servers"]) == summary[key]
    assert sum(each["images_per_minute"] for each in summary["servers"]) == pytest.approx(summary["images_per_minute"])


def step(number: float, seconds: float, failed: int = 0, **facts: Any) -> LevelRun:
    each = rows(20, level=number) + rows(failed, 1.0, RowStatus.FAILED, level=number)
    return LevelRun(number, each, seconds, **facts)


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([step(1.0, 20.0), step(2.0, 10.0)], "none up to the last level: throughput still rose"),
        ([step(1.0, 20.0, 5), step(2.0, 40.0, 5)], "none: no level was sound"),
        ([step(1.0, 20.0, 5), step(2.0, 10.0, 5)], "none: no level was sound"),
        ([step(1.0, 20.0), step(2.0, 40.0, is_whole=False)], "none: too few sound levels"),
    ],
    ids=["rising", "errors and falling", "errors and rising", "stopped"],
)
def test_where_there_is_no_knee_it_is_said_why(levels: list[LevelRun], words: str) -> None:
    assert f"  knee        {words}" in "\n".join(summary_lines(report(*levels).summary))


def test_a_level_of_which_nothing_ended_is_no_rise_of_errors() -> None:
    """Stopped in the first moments of the second level: nothing failed there."""
    summary = report(
        LevelRun(1.0, rows(12), 12.0), LevelRun(2.0, (), 0.0, is_whole=False), is_partial=True, unfinished=2
    ).summary
    assert summary.knee is None


def test_a_level_that_was_not_finished_moves_no_knee() -> None:
    """Stopped after one of many: its throughput is that of its beginning, in which nothing has ended yet."""
    steady = [LevelRun(float(level), rows(12, level=float(level)), 12.0 / level) for level in (1, 2)]
    stopped = LevelRun(4.0, rows(1, level=4.0), 1.0, is_whole=False)
    assert report(*steady, stopped, is_partial=True, unfinished=3).summary.knee is None


def test_books_that_were_not_finished_are_not_said_to_be_within_the_targets() -> None:
    stopped = replace(level(5, rows(60)), is_whole=False)
    summary = report(level(4, rows(60)), stopped, mode=Mode.BOOKS, is_partial=True, unfinished=5).summary
    assert summary.concurrent_books == 4
    assert [each.within_sla for each in summary.levels] == [True, None]


def test_concurrent_books_are_the_most_that_kept_latency_and_errors() -> None:
    slow, failing = rows(60, 46.0), rows(48) + rows(2, 1.0, RowStatus.FAILED)
    for bad in (slow, failing):
        levels = [level(1, rows(12)), level(2, rows(60, 45.0)), level(3, bad)]
        summary = report(*levels, mode=Mode.BOOKS).summary
        assert summary.concurrent_books == 2
        assert [each.within_sla for each in summary.levels] == [None, True, False], "12 jobs are too few"
    assert report(level(1, slow), mode=Mode.BOOKS).summary.concurrent_books == 0
    assert "concurrent_books" not in report(level(1, rows(12)), mode=Mode.BOOKS).as_json()["summary"]


def test_more_books_than_a_number_that_failed_do_not_count() -> None:
    levels = [level(1, rows(60)), level(2, rows(60, 46.0)), level(3, rows(60))]
    assert report(*levels, mode=Mode.BOOKS).summary.concurrent_books == 1


def test_a_run_without_a_single_row_is_a_report_all_the_same() -> None:
    for levels in ((), (LevelRun(1.0, (), 0.0),)):
        found = report(*levels, is_partial=True)
        assert found.summary.total_jobs == 0
        assert found.summary.p95_duration_sec is None
        assert summary_lines(found.summary)


def test_cached_answers_are_warned_about() -> None:
    summary = report(LevelRun(1.0, rows(3, cached=True) + rows(1), 1.0)).summary
    assert summary.cached_jobs == 3
    assert any("3 of 4 prompts were answered from the server's cache" in each for each in summary.warnings)


def test_the_words_say_what_failed_and_what_was_stopped() -> None:
    mixed = rows(58) + rows(1, 1.0, RowStatus.FAILED) + rows(1, 1.0, RowStatus.TIMEOUT)
    assert headline(report(LevelRun(4.0, mixed, 41.3)).summary) == (
        "58 of 60 completed, 1 failed, 1 timed out, in 41.3 s."
    )
    stopped = report(LevelRun(4.0, rows(2), 2.0), is_partial=True, unfinished=4).summary
    assert "stopped in the middle, 4 prompts taken back" in headline(stopped)
