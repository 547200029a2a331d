"""The page of a load test: how it stands, the plots with their targets and knee, warnings first, errors counted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.sla.load_targets import judge_load
from unit.lab.pages.made import SLA, Parsed, heights, level, line, load_page, load_report, marks, percent, row


def page_of(report: dict[str, Any]) -> Parsed:
    return Parsed(load_page(report))


def stands(page: Parsed) -> str:
    return next(
        text
        for (tag, found), text in zip(page.elements, page.texts, strict=True)
        if tag == "span" and found.get("class") == "verdict"
    ).strip()


def figure(report: dict[str, Any], title: str) -> Parsed:
    """The figure whose finding begins so."""
    found = re.findall(r"<figure>.*?</figure>", load_page(report), re.DOTALL)
    return next(each for each in map(Parsed, found) if each.said("h3")[0].startswith(title))


def table(page: Parsed) -> str:
    return " | ".join(text.strip() for text in page.said("td") if text.strip())


def steady(failed: int = 0, duration: float = 10.0, **changed: Any) -> dict[str, Any]:
    """A hundred jobs at one level in four minutes, some of which failed."""
    report = load_report(
        total_jobs=100,
        completed=100 - failed,
        failed=failed,
        wall_clock_sec=240.0,
        images_per_minute=(100 - failed) / 4,
        p95_duration_sec=duration,
        levels=[],
        knee=None,
        **changed,
    )
    statuses = ["failed"] * failed + ["completed"] * (100 - failed)
    report["results"] = [row(at, at * 2.4, duration, status) for at, status in enumerate(statuses)]
    return report


def test_one_sentence_says_how_it_stands() -> None:
    assert stands(page_of(steady())) == (
        "100 of 100 jobs done, at 25.0 images/min: 3 targets met (Throughput, Latency p95 and Errors), none missed."
    )
    assert stands(page_of(steady(failed=3))) == (
        "97 of 100 jobs done, 3 failed, at 24.2 images/min: 1 target missed (Errors), 2 met."
    )


def test_of_a_ramp_the_best_level_is_reported() -> None:
    assert stands(page_of(load_report())).startswith("10 of 11 jobs done, 1 failed, at up to 24.0 images/min")


def test_the_mark_on_top_is_good_only_if_all_is() -> None:
    assert page_of(steady()).said("span", "mark")[0] == "●"
    for flawed in (steady(partial=True), steady(duration=50.0), steady(failed=1)):
        assert page_of(flawed).said("span", "mark")[0] == "△"


def test_a_run_that_sent_nothing_says_so() -> None:
    assert stands(page_of(load_report(total_jobs=0, completed=0, failed=0))) == "Nothing was measured."


def test_targets_stand_beside_what_was_measured_with_the_reason() -> None:
    page = page_of(steady(failed=2, duration=50.0, recovery_sec=200.0))
    assert page.said("dt") == ["Throughput", "Latency p95", "Errors", "Recovery"]
    below = [" ".join(text.split()) for text in page.said("span", "verdict")[1:5]]
    assert below == ["met, ≥ 20 images/min", "missed, ≤ 45 s", "met, ≤ 2 %", "missed, ≤ 120 s"]
    assert [reason.partition(":")[0] for reason in page.said("li")] == page.said("dt")


def test_the_page_judges_as_the_sla_check_does() -> None:
    report = load_report()
    findings = judge_load(LoadReport.model_validate(report), Sla.model_validate(SLA))
    page = page_of(report)
    told = [text.strip().partition(",")[0] for text in page.said("span", "verdict")[1:4]]
    assert told == [str(finding.verdict) for finding in findings]
    assert page.said("li") == [f"{finding.target.label}: {finding.sentence}" for finding in findings]


def test_without_targets_figures_are_shown_and_nothing_is_judged() -> None:
    report = steady()
    del report["environment"]["sla"]
    page = page_of(report)
    assert page.said("dt") == ["Throughput", "Latency p95", "Errors"]
    assert "25.0 images/min" in stands(page)
    assert not {"met", "missed"} & set(page.whole.split())


def test_a_partial_run_is_marked_and_warnings_come_before_the_figures() -> None:
    page = page_of(load_report(partial=True, unfinished=7, warnings=["the cache answered 3 prompts"]))
    assert page.said("p", "kind") == ["Load test, stopped early"]
    assert stands(page).startswith("Stopped early: 10 of 11 jobs done")
    first, second = page.said("li")[:2]
    assert "stopped before its end. 7 jobs had not ended then." in first
    assert second == "the cache answered 3 prompts"
    tags = [found.get("class") for _, found in page.elements]
    assert tags.index("notices") < tags.index("tiles")


def test_a_whole_run_is_not_called_partial() -> None:
    page = page_of(load_report())
    assert "stopped" not in page.whole.lower()
    assert page.named("ul", "notices") == []


def test_latency_over_time_shows_each_status_and_the_target() -> None:
    shown = figure(load_report(), "95 % of the completed jobs took at most 18.6 s, within the target of 45 s")
    assert shown.said("span", "series") == ["completed (10)", "failed (1)"]
    assert len(marks(shown, "dots")) == 10
    (target,) = shown.named("line", "target")
    assert all(y > percent(target["y1"]) for _, y in marks(shown, "dots"))
    assert shown.said("text", "target") == ["target 45 s"]
    assert shown.said("text", "note") == ["longest 30.0 s"]
    assert shown.said("text", "name") == ["1", "4"]


def test_a_p95_above_the_target_says_so() -> None:
    assert figure(load_report(p95_duration_sec=50.0), "95 % of the completed jobs took at most 50.0 s, above")


def test_the_knee_is_ringed_at_its_level_and_its_throughput() -> None:
    levels = [level(1, 10, 6), level(2, 20, 7), level(4, 24, 12), level(8, 24.5, 50)]
    shown = figure(load_report(levels=levels), "Throughput flattens at 4")
    (ring,) = shown.named("circle", "ring")
    assert marks(shown, "dots")[2] == (percent(ring["cx"]), percent(ring["cy"]))
    assert shown.said("text", "note") == ["knee: 24.0 images/min"]
    assert shown.said("text", "target") == ["target: at least 20 images/min"]


def test_the_p95_of_levels_is_a_plot_of_its_own_with_its_target() -> None:
    levels = [level(1, 10, 6), level(2, 20, 7), level(4, 24, 12), level(8, 24.5, 50)]
    shown = figure(load_report(levels=levels), "From 8 prompts at once on, the p95 is above the target of 45 s")
    (target,) = shown.named("line", "target")
    assert [y < percent(target["y1"]) for _, y in marks(shown, "dots")] == [False, False, False, True]
    assert shown.said("span", "series") == ["p95", "p50"]


def test_without_a_knee_the_best_level_is_reported() -> None:
    assert figure(load_report(knee=None), "Throughput is highest at 4 prompts at once, with 24.0 images/min; no knee")


def test_one_level_has_no_plot_of_levels() -> None:
    assert "How much it takes" not in page_of(load_report(levels=[level(4, 24, 19)], knee=None)).whole


def test_the_distribution_marks_the_percentiles_at_their_height() -> None:
    report = load_report()
    shown = figure(report, "100 % of the completed jobs were done within 45 s")
    assert shown.said("text", "note") == ["p50 14.5 s", "p95 18.6 s"]
    ticks = heights(shown)
    assert line(shown)[-1][1] == ticks["100"]
    median = shown.named("circle", "point")[0]
    assert percent(median["cy"]) == pytest.approx((ticks["40"] + ticks["60"]) / 2, abs=0.2)


def test_parts_of_the_time_are_shown_by_level_or_by_server() -> None:
    by_level = figure(load_report(), "Waiting in the queue takes 50.0 % of a job's time")
    assert by_level.said("span", "lane-name") == ["1 prompt at once", "4 prompts at once"]
    one_level = load_report()
    one_level["results"] = [row(0, 0, 8.0), row(1, 1, 8.0, server="http://other:8188")]
    by_server = figure(one_level, "Waiting in the queue")
    assert by_server.said("span", "lane-name") == ["http://127.0.0.1:8188", "http://other:8188"]
    assert by_server.said("span", "note") == ["8.00 s", "8.00 s"]


def test_gpu_memory_and_utilisation_are_drawn_if_there_is_a_trace() -> None:
    report = load_report()
    shown = figure(report, "GPU memory peaks at 6.4 GB of 16.0 GB")
    assert shown.said("text", "target") == ["card: 16.0 GB"]
    highest = line(shown)[-1][1]
    assert percent(shown.named("circle", "point")[0]["cy"]) == highest
    card = percent(shown.named("line", "target")[0]["y1"])
    assert (100 - highest) / (100 - card) == pytest.approx((4096 + 64 * 39) / 16384, abs=0.01)
    assert figure(report, "GPU utilisation is 82.0 % on average")
    for sample in report["environment"]["gpu_trace"]:
        sample["gpu_util"] = None
    assert "utilisation" not in page_of(report).whole
    report["environment"]["gpu_trace"] = []
    assert "GPU memory" not in page_of(report).whole


def test_errors_are_grouped_whatever_ids_they_carry() -> None:
    report = load_report()
    report["results"] += [
        row(11, 22.0, 3.0, "failed", error="out of memory at 0x7f31ffffffff"),
        row(12, 23.0, 420.0, "timeout", error="no result within 420 s"),
    ]
    text = table(page_of(report))
    assert "2 | out of memory at 0x7f31aabbccdd | 10" in text
    assert "1 | no result within 420 s | 12" in text
    assert "0x7f31ffffffff" not in text


def test_servers_and_levels_have_their_tables() -> None:
    page = page_of(load_report())
    assert "http://127.0.0.1:8188 | 11 | 10 | 1 | 0" in table(page)
    assert page.said("caption") == ["Durations of completed jobs", "Levels of load"]


@pytest.mark.slow
def test_many_results_make_a_small_page() -> None:
    report = load_report()
    report["results"] = [row(at, at / 10, 5 + at % 9, error=None) for at in range(20_000)]
    text = load_page(report)
    assert len(text) < 400_000
    assert "of 20,000 the longest and the shortest of each stretch are drawn" in text
