"""The pages of comparisons, profiles and chaos runs."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from comfyui_agent.lab.quantities import DASH, MINUS
from unit.lab.pages.made import (
    Parsed,
    chaos_page,
    chaos_report,
    compare_page,
    comparison,
    percent,
    profile_page,
    profile_report,
)


def figures(text: str) -> list[Parsed]:
    return [Parsed(found) for found in re.findall(r"<figure>.*?</figure>", text, re.DOTALL)]


def cells(page: Parsed) -> str:
    return " | ".join(text.strip() for text in page.said("td") if text.strip())


def marks(text: str) -> list[str]:
    """The marks of verdicts in the order of the page."""
    return Parsed(text).said("span", "mark")


def test_a_comparison_says_its_verdict_and_its_cautions_first() -> None:
    page = Parsed(compare_page(comparison()))
    assert "B is worse in p95 duration (+20 %)." in page.whole
    assert page.said("li")[0] == "The driver differs: 575 in A, 576 in B."
    assert page.said("li")[1:3] == ["p95_duration_sec in words", "images_per_minute in words"]
    assert page.said("h1") == ["bare.json and container.json"]
    assert marks(compare_page(comparison()))[0] == "△"


def test_a_comparison_draws_every_change_that_was_measured() -> None:
    (shown,) = figures(compare_page(comparison()))
    assert shown.said("h3") == ["Of 3 figures: 1 worse, 2 within noise"]
    assert shown.said("span", "lane-name") == ["p95 duration", "images per minute", "success rate"]
    assert shown.said("span", "note") == ["+20 %", f"{MINUS}2 %", "+1 points"]
    assert shown.said("span", "series") == ["worse", "noise"]


def test_a_comparison_lists_all_figures_with_their_intervals() -> None:
    text = cells(Parsed(compare_page(comparison())))
    assert "p95 duration | 10.0 s | 12.0 s | +20 % | +10 to +40 %" in text
    assert f"success rate | 95.0 % | 96.0 % | +1 points | {MINUS}1 to +3 points" in text
    assert f"p50 queue | 10.0 s | 10.0 s | {DASH} | {DASH}" in text


def test_an_interval_without_end_is_reported_and_drawn() -> None:
    report = comparison()
    report["metrics"][0] |= {"low": -0.5, "high": math.exp(50)}
    page = compare_page(report)
    assert f"{MINUS}50 % to any" in cells(Parsed(page))


def test_what_differs_between_the_two_is_marked() -> None:
    page = Parsed(compare_page(comparison()))
    assert [text.strip() for text in page.said("b")] == ["≠ container.json", "≠ 2026-11-16T23:10:00Z", "≠ 576"]


def test_nothing_but_noise_is_no_alarm() -> None:
    report = comparison()
    for metric in report["metrics"]:
        metric["verdict"] = "noise"
    assert marks(compare_page(report))[0] == "○"


def test_a_profile_says_what_a_run_costs() -> None:
    page = Parsed(profile_page([profile_report()]))
    assert (
        "7.00 s a run when warm, 19.0 s cold, with 9.0 GB of 16.0 GB GPU memory at its peak; "
        "KSampler takes 90.0 % of a warm run." in page.whole
    )
    assert "One fits at once." in page.said("p")


def test_a_profile_draws_nodes_runs_and_the_card() -> None:
    titles = [shown.said("h3")[0] for shown in figures(profile_page([profile_report()]))]
    assert titles == [
        "KSampler costs most: 6.00 s warm, 90.0 % of a warm run",
        "Loading models adds 12.0 s to a cold run",
        "GPU memory peaks at 9.0 GB of 16.0 GB",
        "GPU utilisation is 50.0 % on average while a run is going",
    ]


def test_nodes_are_drawn_costliest_first_cold_or_warm() -> None:
    shown = figures(profile_page([profile_report()]))[0]
    assert shown.said("span", "lane-name") == ["CheckpointLoaderSimple", "KSampler"]
    assert shown.said("span", "note") == ["0 s", "12.0 s", "6.00 s", "6.50 s"]


def test_runs_are_shaded_when_they_were() -> None:
    report = profile_report()
    report["gpu_trace"] = [{"seconds": at, "gpu_mem_mb": 1024 * at} for at in range(41)]
    shown = figures(profile_page([report]))[2]
    band = shown.named("rect", "band")[0]
    assert percent(band["x"]) == pytest.approx(100 / 40, abs=0.01)
    assert percent(band["width"]) == pytest.approx(100 * 19 / 40, abs=0.01)
    assert shown.said("text", "name") == ["cold", "warm"]


def test_a_profile_without_warm_runs_speaks_of_cold_ones() -> None:
    report = profile_report() | {"duration_sec": None}
    for node in report["nodes"]:
        node |= {"warm_sec": None, "share": None}
    text = profile_page([report])
    assert "19.0 s a run when cold, none was measured warm" in Parsed(text).whole
    shown = figures(text)[0]
    assert shown.said("h3") == ["CheckpointLoaderSimple costs most: 12.0 s cold"]
    assert shown.said("span", "note") == ["12.0 s", "6.50 s"]


def test_utilisation_is_the_mean_while_runs_are_going() -> None:
    report = profile_report()
    report["gpu_trace"] = [{"seconds": at, "gpu_util": 90 if 1 <= at <= 28 else 0} for at in range(60)]
    assert figures(profile_page([report]))[-1].said("h3")[0].startswith("GPU utilisation is 90.0 % on average")


def test_several_profiles_stand_side_by_side() -> None:
    large = profile_report() | {"workflow": {"name": "book_large"}, "duration_sec": 16.0, "peak_vram_mb": 12288}
    page = Parsed(profile_page([profile_report(), large], ["a.json", "b.json"]))
    assert page.said("h1") == ["book_medium and book_large"]
    assert "2 workflows profiled: book_large takes longest, 16.0 s warm; book_large needs most memory, 12.0 GB." in (
        page.whole
    )
    assert page.said("h2") == ["Side by side", "book_medium", "book_large"]
    assert "All numbers of this page are in a.json and b.json" in page.whole


def test_a_profile_that_was_stopped_says_so() -> None:
    page = Parsed(profile_page([profile_report() | {"partial": True, "warnings": ["the cache answered run 2"]}]))
    assert page.said("p", "kind") == ["Profile, stopped early"]
    assert page.said("li") == [
        "Stopped before its end; the figures are of the runs until then.",
        "the cache answered run 2",
    ]


def test_a_chaos_run_names_what_failed_and_the_slowest_recovery() -> None:
    page = Parsed(chaos_page(chaos_report()))
    assert (
        "1 of 2 scenarios passed, 1 failed (network-blip); "
        "the slowest recovery took 150 s, above the target of 120 s." in page.whole
    )
    assert marks(chaos_page(chaos_report()))[:3] == ["△", "●", "△"]


def test_each_scenario_has_its_verdict_its_checks_and_its_stages() -> None:
    text = chaos_page(chaos_report())
    page = Parsed(text)
    assert page.said("h2") == ["Verdicts", "comfyui-crash", "network-blip"]
    assert page.whole.count("Expected: it goes on") == 2
    assert "pages done | 12 | 11" in cells(page)
    assert "alert | 6.00 s | alert! | 23:10:06.2" in cells(page)
    assert "12 jobs in this scenario: 11 done, 1 failed." in page.whole
    recoveries, crash, blip = figures(text)
    assert recoveries.said("span", "note") == ["40.0 s", "150 s"]
    assert crash.said("h3") == ["Work went on after 40.0 s, within the target of 120 s"]
    assert blip.said("h3") == ["Work went on after 150 s, above the target of 120 s"]
    assert crash.said("span", "lane-name") == ["fault", "alert", "recovered"]


def test_stages_are_drawn_in_the_order_of_time() -> None:
    report = chaos_report()
    report["results"][0]["stages"].reverse()
    assert figures(chaos_page(report))[1].said("span", "lane-name") == ["fault", "alert", "recovered"]


def test_a_check_that_says_nothing_did_not_hold() -> None:
    report: dict[str, Any] = chaos_report()
    del report["results"][0]["checks"][0]["passed"]
    report["results"] = report["results"][:1]
    page = Parsed(chaos_page(report))
    assert [text.strip() for text in page.said("span", "verdict")][-1] == "failed"
    assert "0 of 1" in page.said("td")


def test_a_scenario_that_was_skipped_is_neither_good_nor_bad() -> None:
    report = chaos_report()
    report["results"] = [{"scenario": "gpu-oom", "verdict": "skipped", "reason": "no GPU here"}]
    report["summary"] = {"total": 1, "verdict": "passed"}
    text = chaos_page(report)
    assert set(marks(text)) == {"○"}
    assert "0 of 1 scenario passed, 1 skipped (gpu-oom)." in Parsed(text).whole
