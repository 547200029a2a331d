"""Errors that come in a heap are found in the log and in the report; errors here and there are not."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, TargetVerdict
from comfyui_agent.lab.sla.spikes import End, ends_of, find_spikes, is_spike, judge_spikes

BUDGET = 0.02


def ends(failing: set[int], count: int = 200, every: float = 1.0) -> list[End]:
    return [End(number * every, number in failing, "oom") for number in range(count)]


def test_failures_in_a_row_are_one_spike_with_its_begin_and_end() -> None:
    (spike,) = find_spikes(ends(set(range(100, 120))), BUDGET)
    assert spike == [End(number, True, "oom") for number in range(100, 120)]


def test_failures_far_apart_are_no_spike() -> None:
    assert find_spikes(ends({10, 90, 170}), BUDGET) == []


def test_two_heaps_are_two_spikes() -> None:
    found = find_spikes(ends({*range(10, 20), *range(150, 160)}), BUDGET)
    assert [(spike[0].at, spike[-1].at) for spike in found] == [(10, 19), (150, 159)]


@pytest.mark.parametrize(
    ("failures", "of", "budget", "spike"),
    [
        (2, 2, 0.02, False),
        (3, 3, 0.02, True),
        (3, 10, 0.02, True),
        (3, 60, 0.02, False),
        (6, 60, 0.02, False),
        (7, 60, 0.02, True),
        (3, 1000, 0.0, True),
        (60, 60, 0.5, False),
        (40, 1000, 0.02, False),
        (41, 1000, 0.02, True),
    ],
)
def test_what_a_spike_is(failures: int, of: int, budget: float, spike: bool) -> None:
    assert is_spike(failures, of, budget) is spike


def test_the_window_is_a_minute_and_not_more() -> None:
    assert find_spikes([End(at, True) for at in (0.0, 30.0, 59.9)], BUDGET) != []
    assert find_spikes([End(at, True) for at in (0.0, 30.0, 60.0)], BUDGET) == []


def test_a_service_that_just_spends_its_budget_has_no_spikes() -> None:
    """Ten hours of a prompt a second, one of fifty failing by chance: at most a few windows look like a heap."""
    chance = random.Random(3)
    assert len(find_spikes([End(float(at), chance.random() < BUDGET) for at in range(36_000)], BUDGET)) <= 10


def test_the_order_of_lines_does_not_matter() -> None:
    some = ends(set(range(50, 60)))
    assert find_spikes(reversed(some), BUDGET) == find_spikes(some, BUDGET)


STARTED, ENDED = "2026-11-15T23:00:00.000Z", "2026-11-15T23:05:00.000Z"
BEGAN = 1_794_783_600.0


def report(folder: Path, statuses: str = "." * 60, **environment: Any) -> LoadReport:
    """A run with a prompt a second; `x` is one that failed."""
    rows = [
        {"prompt_id": f"p{n}", "status": "failed" if mark == "x" else "completed", "seconds": n, "duration_sec": 1.0}
        for n, mark in enumerate(statuses)
    ]
    facts = {"kind": "loadtest", "started_at": STARTED, "ended_at": ENDED, **environment}
    summary = {"total_jobs": len(rows), "mode": "closed"}
    document = {"summary": summary, "results": rows, "environment": facts}
    return LoadReport.model_validate({**document, "path": folder / "load.json"})


def line(minute: int, second: int, event: str = "job.failed", **facts: Any) -> str:
    return json.dumps({"timestamp": f"2026-11-15 23:{minute:02}:{second:02}.000", "event": event, **facts})


def log(folder: Path, *lines: str, name: str = "metrics.ndjson") -> Path:
    path = folder / name
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8", errors="surrogatepass")
    return path


def judged(report: LoadReport, *logs: Path) -> tuple[Finding, list[str]]:
    finding, notes = judge_spikes(report, logs, Sla())
    assert finding is not None
    return finding, notes


def test_a_spike_in_the_log_is_a_miss_that_says_when_and_why(tmp_path: Path) -> None:
    heap = [line(3, second, failure_class="oom", prompt_id=f"other{second}") for second in range(10, 20)]
    finding, notes = judged(report(tmp_path), log(tmp_path, *heap))
    assert (finding.verdict, finding.measured) == (TargetVerdict.MISSED, 1)
    assert "10 of 10 failed from 2026-11-15 23:03:10 to 2026-11-15 23:03:19 UTC, mostly oom" in finding.sentence
    assert notes == []


def test_retries_are_failures_too_and_pages_are_not_counted_twice(tmp_path: Path) -> None:
    retries = [line(3, second, "job.retry", prompt_id=f"a{second}") for second in range(3)]
    pages = [line(4, second, "book.page.failed", prompt_id=f"b{second}") for second in range(30)]
    run = ends_of(report(tmp_path), [log(tmp_path, *retries, *pages)])
    assert (run.logged, sum(end.is_failure for end in run.ends)) == (3, 3)


def test_before_and_after_the_run_is_not_of_the_run(tmp_path: Path) -> None:
    before = [line(minute, second) for minute in (6, 30) for second in range(10)]
    finding, notes = judged(report(tmp_path), log(tmp_path, *before))
    assert finding.verdict is TargetVerdict.MET
    assert "tells nothing of this run" in notes[0]


def test_lines_of_another_load_test_are_left_out(tmp_path: Path) -> None:
    others = [line(3, second, load_test="other", prompt_id=f"x{second}") for second in range(10)]
    own = [line(0, second, "job.done", load_test="own", prompt_id=f"p{second}") for second in range(10)]
    assert judged(report(tmp_path), log(tmp_path, *others, *own))[0].verdict is TargetVerdict.MET
    named = report(tmp_path, load_test="other")
    assert judged(named, log(tmp_path, *others, *own))[0].verdict is TargetVerdict.MISSED


def test_each_prompt_counts_once_however_it_is_reported(tmp_path: Path) -> None:
    own = [line(0, second, "job.done", prompt_id=f"p{second}") for second in range(10)]
    run = report(tmp_path)
    assert len(ends_of(run, [log(tmp_path, *own, *own)]).ends) == 60


def test_without_a_log_the_rows_tell(tmp_path: Path) -> None:
    finding, notes = judged(report(tmp_path, "." * 40 + "x" * 10 + "." * 50))
    assert finding.verdict is TargetVerdict.MISSED
    assert "from 2026-11-15 23:00:41 to 2026-11-15 23:00:50 UTC, mostly failed" in finding.sentence
    assert notes == ["no metrics log was found: spikes were looked for in the report's own rows"]


def test_a_log_that_cannot_be_read_is_noted_and_the_rows_tell(tmp_path: Path) -> None:
    finding, notes = judged(report(tmp_path), tmp_path / "gone.ndjson")
    assert finding.verdict is TargetVerdict.MET
    assert notes == [f"{tmp_path / 'gone.ndjson'} cannot be read: No such file or directory"]


def test_lines_that_are_none_are_counted_and_passed_over(tmp_path: Path) -> None:
    odd = [
        *("rubbish", '{"event": "job.failed"', '{"event": "job.failed", "timestamp": 5}', '["job.failed"]'),
        *('{"timestamp": "2026-11-15 23:03:00", "event": ["job.failed"]}', "", '{"x": ' + "[" * 9999 + '"job.'),
        line(3, 1, prompt_id=["odd"], load_test={}, failure_class=7),
    ]
    run = ends_of(report(tmp_path), [log(tmp_path, *odd)])
    assert run.logged == 1
    assert run.notes == ["lines of the metrics log that could not be read: 5"]


def test_an_older_file_of_a_log_that_was_rotated_meanwhile_is_read(tmp_path: Path) -> None:
    heap = [line(3, second, prompt_id=f"a{second}") for second in range(10)]
    older = log(tmp_path, *heap, name="metrics.ndjson.1")
    newer = log(tmp_path, line(4, 0, "job.done", prompt_id="b"))
    os.utime(older, (BEGAN + 200, BEGAN + 200))
    assert judged(report(tmp_path), newer)[0].verdict is TargetVerdict.MISSED
    os.utime(older, (BEGAN - 1, BEGAN - 1))
    assert judged(report(tmp_path), newer)[0].verdict is TargetVerdict.MET


def test_too_few_ends_show_no_spike_and_no_absence_of_one(tmp_path: Path) -> None:
    assert judged(report(tmp_path, "." * 9))[0].verdict is TargetVerdict.NOT_MEASURED
    assert judged(report(tmp_path, "." * 10))[0].verdict is TargetVerdict.MET
    assert judged(report(tmp_path, "xxx"))[0].verdict is TargetVerdict.MISSED


def test_a_report_without_any_time_has_not_measured_spikes(tmp_path: Path) -> None:
    whole = report(tmp_path)
    rows = [{"prompt_id": each.prompt_id, "status": "failed", "duration_sec": 1.0} for each in whole.results]
    timeless = LoadReport.model_validate(whole.as_json() | {"results": rows})
    assert judged(timeless)[0].verdict is TargetVerdict.NOT_MEASURED


def test_where_faults_were_made_on_purpose_spikes_are_not_judged(tmp_path: Path) -> None:
    made = report(tmp_path)
    made.summary.mode = "scenario"
    assert judge_spikes(made, [], Sla()) == (None, [])
