"""Two load tests compared: noise is called noise, and a real change is found."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.lab.load.comparison import compare
from comfyui_agent.lab.reports.chaos import ChaosReport, ChaosSummary
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport

Rows = list[dict[str, Any]]
TIMES = ("p50_duration_sec", "p95_duration_sec", "avg_duration_sec", "images_per_minute")


def on_its_own(seed: int, count: int = 200, slower: float = 1.0) -> Rows:
    """Prompts sent one after another: no wait, and no duration depends on another one."""
    chance, rows, now = random.Random(seed), [], 0.0
    for index in range(count):
        seconds = slower * chance.lognormvariate(0, 0.2)
        rows.append(row(index, now, seconds, 0.0))
        now += seconds
    return rows


def queued(seed: int, count: int = 200, slower: float = 1.0, at_once: int = 4) -> Rows:
    """Some prompts at once at a server that renders one at a time: each waits for those before it."""
    chance, rows, free = random.Random(seed), [], 0.0
    waiting = [(0.0, number) for number in range(at_once)]
    for index in range(count):
        sent, _ = heapq.heappop(waiting)
        begin = max(free, sent)
        free = begin + slower * chance.lognormvariate(0, 0.2)
        rows.append(row(index, sent, free - sent, begin - sent))
        heapq.heappush(waiting, (free, index + at_once))
    return rows


def row(index: int, sent: float, duration: float, wait: float, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "prompt_id": f"p{index}",
        "status": "completed",
        "duration_sec": duration,
        "queue_sec": wait,
        "exec_sec": duration - wait,
        "cached": False,
        "error": None,
        "seconds": sent,
        "images": 1,
        **changes,
    }


def report(rows: Rows, name: str = "a.json", environment: dict[str, Any] | None = None, **summary: Any) -> LoadReport:
    wall = max((each["seconds"] + each["duration_sec"] for each in rows), default=0.0)
    summary = {"total_jobs": len(rows), "mode": "closed", "partial": False, "wall_clock_sec": wall} | summary
    facts = {"kind": "loadtest", "workflow": {"name": "book", "sha256": "1"}, "parameters": {"levels": [4]}}
    document = {"summary": summary, "results": rows, "environment": facts | (environment or {})}
    return LoadReport.model_validate({**document, "path": Path(name)})


def verdicts(a: Rows, b: Rows) -> dict[str, str]:
    return {each["metric"]: each["verdict"] for each in compare(report(a), report(b)).as_json()["metrics"]}


def wrongly_called(made: Any, pairs: int) -> dict[str, int]:
    """How often each figure, and the whole, was said to differ between two runs of one distribution."""
    called: Counter[str] = Counter()
    for pair in range(pairs):
        comparison = compare(report(made(2 * pair)), report(made(2 * pair + 1)))
        called.update(metric.metric for metric in comparison.metrics if metric.verdict.value in ("better", "worse"))
        called["the verdict"] += comparison.verdict.startswith("B is ")
    return called


@pytest.mark.slow
@pytest.mark.parametrize("made", [on_its_own, queued])
def test_two_runs_of_one_distribution_are_called_noise_in_nearly_all_of_a_hundred_cases(made: Any) -> None:
    wrong = wrongly_called(made, 100)
    assert {name: count for name, count in wrong.items() if count > 9} == {}
    assert wrong["the verdict"] < 5


@pytest.mark.parametrize("made", [on_its_own, queued])
def test_fifteen_percent_slower_is_found_and_put_in_figures(made: Any) -> None:
    for pair in range(3):
        a, b = made(2 * pair), made(2 * pair + 1, slower=1.15)
        found = {metric.metric: metric for metric in compare(report(a), report(b)).metrics}
        for name in ("p50_duration_sec", "avg_duration_sec", "p50_exec_sec", "images_per_minute"):
            assert found[name].verdict.value == "worse", (pair, name)
        mean = found["avg_duration_sec"]
        assert mean.low is not None
        assert mean.high is not None
        assert mean.low < 0.15 < mean.high
        assert compare(report(a), report(b)).verdict.startswith("B is worse in ")


def test_faster_is_better_and_more_throughput_is_better() -> None:
    found = verdicts(on_its_own(1, slower=1.3), on_its_own(2))
    assert [found[name] for name in TIMES] == ["better"] * 4


def in_moods(seed: int, count: int = 600) -> Rows:
    """A server without a queue that is slow for a while and quick for a while, as a card that gets hot is."""
    chance, rows, now, mood = random.Random(seed), [], 0.0, 0.0
    for index in range(count):
        mood = 0.97 * mood + chance.gauss(0, 0.1)
        rows.append(row(index, now, math.exp(mood), 0.0, exec_sec=None))
        now += math.exp(mood)
    return rows


@pytest.mark.slow
def test_neighbours_that_are_alike_do_not_pass_for_evidence() -> None:
    assert {name: wrong for name, wrong in wrongly_called(in_moods, 40).items() if wrong > 4} == {}


def test_a_few_jobs_in_one_queue_are_too_few() -> None:
    """28 jobs, four at a time: each time holds those of three others."""
    assert verdicts(queued(1, 28), queued(2, 28, slower=1.2))["avg_duration_sec"] == "too few"
    assert verdicts(on_its_own(1, 28), on_its_own(2, 28, slower=1.2))["avg_duration_sec"] == "worse"


def test_the_interval_of_a_median_is_as_wide_as_theory_has_it() -> None:
    """For lognormal times the median of n scatters by 1.2533 sigma / sqrt(n)."""
    median = compare(report(on_its_own(1, 10_000)), report(on_its_own(2, 10_000, slower=1.1))).metrics[0]
    assert median.low is not None
    assert median.high is not None
    expected = 1.96 * 1.2533 * 0.2 * math.sqrt(2 / 10_000)
    assert 0.6 * expected < math.log((1 + median.high) / (1 + median.low)) / 2 < 1.7 * expected


def test_the_same_reports_give_the_same_answer() -> None:
    first, second = (compare(report(queued(1)), report(queued(2))).as_json() for _ in range(2))
    assert first == second


def test_a_report_compared_with_itself_differs_in_nothing() -> None:
    same = report(queued(1))
    comparison = compare(same, same)
    assert {metric.verdict.value for metric in comparison.metrics} == {"noise"}
    assert comparison.verdict.startswith("Nothing but noise")
    assert comparison.cautions == []


@pytest.mark.parametrize("count", [1, 9])
def test_fewer_than_ten_values_are_too_few(count: int) -> None:
    found = verdicts(on_its_own(1, count), on_its_own(2, 200))
    assert [found[name] for name in (*TIMES, "success_rate")] == ["too few"] * 5
    comparison = compare(report(on_its_own(1, count)), report(on_its_own(2, count)))
    assert comparison.verdict == "Too little was measured to tell A and B apart."


def test_a_percentile_that_rests_on_two_jobs_is_too_few() -> None:
    found = verdicts(on_its_own(1, 40), on_its_own(2, 40))
    assert (found["p95_duration_sec"], found["avg_duration_sec"]) == ("too few", "noise")


def test_nothing_at_all_is_not_measured() -> None:
    comparison = compare(report([]), report(on_its_own(1)))
    assert {metric.verdict.value for metric in comparison.metrics} == {"not measured"}
    assert "not measured in A" in comparison.metrics[0].sentence


def test_durations_that_never_vary_can_still_differ() -> None:
    steady = [row(index, index * 2.0, 2.0, 0.0) for index in range(50)]
    slower = [row(index, index * 2.5, 2.5, 0.0) for index in range(50)]
    assert verdicts(steady, slower)["p50_duration_sec"] == "worse"
    assert verdicts(steady, steady)["p50_duration_sec"] == "noise"


def with_failures(count: int, failed: int) -> Rows:
    rows = on_its_own(1, count)
    return [each | {"status": "failed"} if place < failed else each for place, each in enumerate(rows)]


@pytest.mark.parametrize(
    ("failed_in_a", "failed_in_b", "verdict"), [(0, 0, "noise"), (1, 4, "noise"), (1, 20, "worse"), (20, 1, "better")]
)
def test_errors_are_judged_as_shares(failed_in_a: int, failed_in_b: int, verdict: str) -> None:
    comparison = compare(report(with_failures(100, failed_in_a)), report(with_failures(100, failed_in_b)))
    (found,) = (metric for metric in comparison.metrics if metric.metric == "success_rate")
    assert found.verdict.value == verdict
    assert found.change == pytest.approx((failed_in_a - failed_in_b) / 100)


def test_the_interval_of_shares_is_newcombes() -> None:
    """Newcombe (1998), method 10: 56 of 70 against 48 of 80 is 0.2, from 0.0524 to 0.3339."""
    comparison = compare(report(with_failures(80, 32)), report(with_failures(70, 14)))
    (found,) = (metric for metric in comparison.metrics if metric.metric == "success_rate")
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))


def test_answers_from_the_cache_are_left_out_of_the_times_and_said() -> None:
    rows = on_its_own(1)
    some = [
        each | {"cached": True, "duration_sec": 0.01} if place % 20 == 0 else each for place, each in enumerate(rows)
    ]
    comparison = compare(report(rows), report(some))
    assert comparison.metrics[0].b == pytest.approx(comparison.metrics[0].a, rel=0.05)
    assert "10 of 200 answers of B came from the cache: left out of the times." in comparison.cautions
    many = [each | {"cached": place % 4 == 0} for place, each in enumerate(rows)]
    assert verdicts(rows, many)["images_per_minute"] == "not measured"
    assert verdicts(rows, many)["cached_share"] == "worse"


@pytest.mark.parametrize(
    ("environment", "summary", "words"),
    [
        ({"workflow": {"name": "film", "sha256": "2"}}, {}, "The workflow differs: book in A, film in B"),
        ({}, {"mode": "open"}, "The mode differs: closed in A, open in B"),
        ({"parameters": {"levels": [8]}}, {}, "The load (levels) differs: 4 in A, 8 in B"),
        ({"parameters": {"levels": [4], "timeout": 10}}, {}, "The parameter timeout differs: unknown in A, 10 in B"),
        ({"servers": [{"comfyui_version": "0.4"}]}, {}, "The ComfyUI version differs: none in A, 0.4 in B"),
        ({"servers": [{"devices": [{"name": "RTX"}]}]}, {}, "The graphics card differs: none in A, RTX in B"),
        ({"e3": "9"}, {}, "The version of E3 differs: unknown in A, 9 in B"),
        ({}, {"partial": True}, "B was stopped before its end"),
    ],
)
def test_what_makes_two_runs_unlike_is_said(environment: dict[str, Any], summary: dict[str, Any], words: str) -> None:
    comparison = compare(report(on_its_own(1)), report(on_its_own(2), "b.json", environment, **summary))
    assert any(words in caution for caution in comparison.cautions)


def test_a_verdict_on_different_things_sends_to_the_cautions() -> None:
    other = report(on_its_own(2), "b.json", {"workflow": {"name": "film", "sha256": "2"}})
    assert compare(report(on_its_own(1)), other).verdict.endswith("the runs were not alike, see the cautions.")


def test_another_seed_another_server_and_another_place_are_no_difference() -> None:
    facts = {"parameters": {"levels": [4], "seed": 5, "servers": ["http://b:8188"], "output": "b.json"}}
    assert compare(report(on_its_own(1)), report(on_its_own(2), "b.json", facts)).cautions == []


def test_chaos_cannot_be_compared() -> None:
    chaos = ChaosReport(path=Path("chaos.json"), summary=ChaosSummary(total=1))
    with pytest.raises(BadReport, match=r"chaos.json is a chaos report"):
        compare(report(on_its_own(1)), chaos)


def test_rows_without_times_have_no_throughput() -> None:
    timeless = [{key: value for key, value in each.items() if key != "seconds"} for each in on_its_own(1)]
    whole = report(on_its_own(1))
    without = LoadReport.model_validate(whole.as_json() | {"results": timeless})
    found = {metric.metric: metric.verdict.value for metric in compare(whole, without).metrics}
    assert (found["images_per_minute"], found["avg_duration_sec"]) == ("not measured", "noise")


def test_the_json_has_the_keys_that_pages_and_scripts_read() -> None:
    document = compare(report(on_its_own(1)), report(on_its_own(2), "b.json")).as_json()
    assert document.keys() == {"a", "b", "cautions", "metrics", "verdict"}
    assert (document["a"]["name"], document["b"]["name"]) == ("a.json", "b.json")
    for metric in document["metrics"]:
        assert metric.keys() == {"metric", "unit", "a", "b", "change", "low", "high", "verdict", "sentence"}


def test_ten_thousand_rows_each_take_less_than_two_seconds() -> None:
    a, b = report(queued(1, 10_000)), report(queued(2, 10_000))
    began = time.process_time()
    compare(a, b)
    assert time.process_time() - began < 2
