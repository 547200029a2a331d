"""Targets held against reports: what may be called met, what is missed, and what nobody has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict, quantity
from comfyui_agent.lab.sla.review import Evidence, Review, as_junit, review

STARTED = "2026-11-15T23:00:00.000Z"
TARGETS = Sla()
Report = LoadReport | ChaosReport


def rows(count: int = 100, duration: float = 10.0, every: float = 2.0, **changes: Any) -> list[dict[str, Any]]:
    """Prompts that are sent at even distances; 30 images a minute with none of the changes."""
    row = {"status": "completed", "duration_sec": duration, "cached": False, "error": None, "images": 1}
    return [{"index": n, "prompt_id": f"p{n}", "seconds": n * every, **row, **changes} for n in range(count)]


def load(
    results: list[dict[str, Any]], name: str = "load.json", *, is_parallel: bool = True, **summary: Any
) -> LoadReport:
    ends = [each["seconds"] + (each["duration_sec"] or 0) for each in results]
    facts = {"total_jobs": len(results), "mode": "closed", "wall_clock_sec": max(ends, default=0.0)} | summary
    environment = {"kind": "loadtest", "started_at": STARTED, "ended_at": "2026-11-15T23:59:00.000Z"}
    environment |= {"parameters": {"parallel_pages": is_parallel}}
    document = {"summary": facts, "results": results, "environment": environment}
    return LoadReport.model_validate({**document, "path": Path(name)})


def chaos(*results: dict[str, Any], name: str = "chaos.json", **summary: Any) -> ChaosReport:
    document = {"summary": {"total": len(results)} | summary, "results": results, "environment": {"kind": "chaos"}}
    return ChaosReport.model_validate({**document, "path": Path(name)})


def scenario(name: str, recovery: float | None, verdict: str = "passed") -> dict[str, Any]:
    return {"scenario": name, "verdict": verdict, "recovery_sec": recovery, "reason": "it stayed away"}


def judged(*reports: Report, targets: Sla = TARGETS) -> Review:
    return review([Evidence(report, ()) for report in reports], targets)


def found(target: Target, *reports: Report, targets: Sla = TARGETS) -> Finding:
    return next(each for each in judged(*reports, targets=targets).findings if each.target is target)


def words(*reports: Report, targets: Sla = TARGETS) -> dict[str, str]:
    return {str(each.target): str(each.verdict) for each in judged(*reports, targets=targets).findings}


def broken(results: list[dict[str, Any]], count: int, status: str = "failed") -> list[dict[str, Any]]:
    """The first ones ended badly, far apart from each other."""
    step = len(results) // max(1, count)
    return [
        each | {"status": status} if n % step == 0 and n // step < count else each for n, each in enumerate(results)
    ]


def test_a_good_load_test_and_a_good_chaos_run_meet_everything() -> None:
    books = load([each | {"level": 5} for each in rows()], mode="books", levels=[{"level": 5, "unit": "books at once"}])
    whole = judged(books, chaos(scenario("comfyui-crash", 31.5)))
    assert whole.verdict is TargetVerdict.MET
    assert whole.sentence == "All 6 targets are met."
    assert [each.measured for each in whole.findings] == [pytest.approx(28.8, abs=0.1), 5, 10, 0, 31.5, 0]


def test_a_load_test_alone_leaves_books_and_recovery_open() -> None:
    whole = judged(load(rows()))
    assert whole.verdict is TargetVerdict.NOT_MEASURED
    assert not whole.fails(strict=False)
    assert whole.fails(strict=True)
    assert whole.sentence == "Nothing is missed, 4 of 6 targets are met; not measured: books at once, recovery."


def test_one_miss_is_a_miss_of_the_whole() -> None:
    whole = judged(load(rows(duration=50.0)), chaos(scenario("gpu-oom", 1.0)))
    assert whole.verdict is TargetVerdict.MISSED
    assert whole.fails(strict=False)
    assert whole.sentence.startswith("Missed: latency p95. ")


@pytest.mark.parametrize(("every", "verdict"), [(2.9, "met"), (3.1, "missed")])
def test_throughput_is_images_by_the_wall_clock(every: float, verdict: str) -> None:
    finding = found(Target.THROUGHPUT, load(rows(every=every, duration=0.1)))
    assert str(finding.verdict) == verdict
    assert finding.measured == pytest.approx(100 / (99 * every + 0.1) * 60)


def test_prompts_with_several_images_count_all_of_them() -> None:
    assert found(Target.THROUGHPUT, load(rows(every=6.0, images=4))).verdict is TargetVerdict.MET


@pytest.mark.parametrize(("duration", "verdict"), [(45.0, "met"), (45.001, "missed")])
def test_latency_at_the_target_is_met_and_a_millisecond_more_is_missed(duration: float, verdict: str) -> None:
    finding = found(Target.LATENCY, load(rows(duration=duration)))
    assert str(finding.verdict) == verdict
    assert finding.measured_text != "45.0 s"


@pytest.mark.parametrize(("failed", "verdict"), [(0, "met"), (2, "met"), (3, "missed")])
def test_the_error_budget_is_a_share_of_all_prompts(failed: int, verdict: str) -> None:
    finding = found(Target.ERRORS, load(broken(rows(), failed)))
    assert (str(finding.verdict), finding.measured) == (verdict, failed / 100)


def test_a_prompt_that_timed_out_is_an_error_and_as_slow_as_it_was_waited_for() -> None:
    slow = [
        each | {"duration_sec": 420.0} if each["status"] == "timeout" else each for each in broken(rows(), 6, "timeout")
    ]
    report = load(slow, wall_clock_sec=208.0)
    assert words(report)["error_rate"] == "missed"
    latency = found(Target.LATENCY, report)
    assert latency.verdict is TargetVerdict.MISSED
    assert "6 of them given up" in latency.sentence


def test_failures_that_come_at_once_do_not_make_the_rest_look_slow_or_quick() -> None:
    quick = [each | {"duration_sec": 0.01} if each["status"] == "failed" else each for each in broken(rows(), 10)]
    assert found(Target.LATENCY, load(quick)).measured == 10.0


def test_twelve_jobs_show_neither_a_p95_nor_two_percent_of_errors() -> None:
    report = load(rows(12))
    assert words(report)["p95_seconds"] == words(report)["error_rate"] == "not measured"
    assert "run at least 20" in found(Target.LATENCY, report).sentence
    assert "at least 50 jobs" in found(Target.ERRORS, report).sentence
    assert words(load(rows(12, duration=60.0)))["p95_seconds"] == "missed"
    assert words(load(broken(rows(12), 1)))["error_rate"] == "missed"


@pytest.mark.parametrize(("allowed", "needed"), [(0.02, 50), (0.001, 1000), (0.0, 100), (0.5, 10)])
def test_how_many_jobs_an_error_budget_takes(allowed: float, needed: int) -> None:
    targets = Sla(error_rate=allowed)
    assert words(load(rows(needed)), targets=targets)["error_rate"] == "met"
    assert words(load(rows(needed - 1)), targets=targets)["error_rate"] == "not measured"


def test_where_no_error_is_allowed_one_is_a_miss() -> None:
    assert words(load(broken(rows(), 1)), targets=Sla(error_rate=0))["error_rate"] == "missed"


def test_nine_jobs_do_not_show_a_throughput() -> None:
    assert words(load(rows(9, duration=1.0)))["images_per_minute"] == "not measured"
    assert words(load(rows(9, every=9.0)))["images_per_minute"] == "missed"


def cached(count: int) -> list[dict[str, Any]]:
    return [each | {"cached": True, "duration_sec": 0.01} if n < count else each for n, each in enumerate(rows())]


def test_a_run_that_the_cache_answered_measured_neither_throughput_nor_latency() -> None:
    report = load(cached(11))
    assert words(report)["images_per_minute"] == words(report)["p95_seconds"] == "not measured"
    assert "11 of 100 answers came from the server's cache" in found(Target.LATENCY, report).sentence
    assert words(report)["error_rate"] == "met"


def test_a_few_cached_answers_are_left_out() -> None:
    some, none = load(cached(10)), load(rows())
    assert found(Target.LATENCY, some).measured == 10.0
    more, less = found(Target.THROUGHPUT, none).measured, found(Target.THROUGHPUT, some).measured
    assert more is not None
    assert less == pytest.approx(more * 0.9)


def test_cached_answers_do_not_thin_the_errors_out() -> None:
    half = [each | {"cached": n % 2 == 1} for n, each in enumerate(rows(200))]
    failing = [each | {"status": "failed"} if n in (0, 60, 120) else each for n, each in enumerate(half)]
    assert found(Target.ERRORS, load(failing)).measured == 3 / 100


def test_a_run_that_was_stopped_shows_misses_but_nothing_that_is_met() -> None:
    stopped = {"partial": True, "unfinished": 4}
    whole = words(load(rows(), **stopped))
    assert [whole[key] for key in ("images_per_minute", "p95_seconds", "error_rate", "error_spikes")] == [
        "not measured"
    ] * 4
    assert "stopped before its end" in found(Target.ERRORS, load(rows(), **stopped)).sentence
    assert words(load(rows(duration=60.0), **stopped))["p95_seconds"] == "missed"
    assert words(load(broken(rows(), 9), **stopped))["error_rate"] == "missed"


def test_a_stopped_run_is_slow_only_if_what_it_took_back_would_not_have_helped() -> None:
    slow = rows(20, every=6.0)
    assert words(load(slow, partial=True, unfinished=4))["images_per_minute"] == "missed"
    assert words(load(slow, partial=True, unfinished=40))["images_per_minute"] == "not measured"


def test_a_run_in_which_nothing_was_completed() -> None:
    whole = words(load(rows(status="failed")))
    assert whole["images_per_minute"] == whole["error_rate"] == whole["error_spikes"] == "missed"
    assert whole["p95_seconds"] == "not measured"


def test_a_run_without_any_job_measured_nothing() -> None:
    assert set(words(load([])).values()) == {"not measured"}


def test_an_open_loop_that_asked_for_less_did_not_measure_what_the_servers_can_do() -> None:
    gentle = rows(every=6.0, duration=2.0)
    finding = found(Target.THROUGHPUT, load(gentle, mode="open"))
    assert finding.verdict is TargetVerdict.NOT_MEASURED
    assert "only 10 images/min were asked for" in finding.sentence
    assert words(load(gentle))["images_per_minute"] == "missed"
    assert words(load(rows(every=2.0), mode="open"))["images_per_minute"] == "met"
    for too_much_at in (2.0, 6.0):
        overloaded = rows(every=too_much_at, duration=200.0)
        assert words(load(overloaded, mode="open"))["images_per_minute"] == "missed"


def ramp(
    *levels: tuple[float, float, float], mode: str = "closed", unit: str = "prompts at once", **more: Any
) -> LoadReport:
    """Levels as (number, seconds between prompts, duration)."""
    results, facts, begin = [], [], 0.0
    for number, every, duration in levels:
        own = rows(60, duration=duration, every=every, level=number)
        results += [each | {"seconds": each["seconds"] + begin} for each in own]
        wall = 59 * every + duration
        facts.append({"level": number, "unit": unit, "wall_clock_sec": wall})
        begin += wall
    return load(results, mode=mode, levels=facts, **more)


def test_a_ramp_is_judged_at_its_best_level_within_the_targets() -> None:
    report = ramp((1, 4.0, 4.0), (2, 2.0, 10.0), (4, 1.0, 60.0))
    assert words(report)["images_per_minute"] == words(report)["p95_seconds"] == "met"
    assert found(Target.LATENCY, report).measured == 10.0
    assert "at 2 prompts at once" in found(Target.THROUGHPUT, report).sentence


def test_a_ramp_that_keeps_the_targets_nowhere_is_judged_at_its_gentlest_level() -> None:
    finding = found(Target.LATENCY, ramp((4, 1.0, 90.0), (1, 4.0, 50.0)))
    assert (finding.verdict, finding.measured) == (TargetVerdict.MISSED, 50.0)


def test_only_the_last_level_of_a_stopped_ramp_is_partial() -> None:
    report = ramp((1, 2.0, 4.0), (2, 4.0, 10.0), partial=True, unfinished=3)
    assert words(report)["images_per_minute"] == "met"


def books(*levels: tuple[float, float, float], **more: Any) -> LoadReport:
    return ramp(*levels, mode="books", unit="books at once", **more)


@pytest.mark.parametrize(
    ("report", "verdict", "measured"),
    [
        (books((3, 2.0, 9.0), (5, 2.0, 20.0)), "met", 5),
        (books((5, 2.0, 20.0), (8, 2.0, 60.0)), "met", 5),
        (books((3, 2.0, 20.0), (5, 2.0, 60.0)), "missed", 3),
        (books((2, 2.0, 60.0), (3, 2.0, 60.0)), "missed", 0),
        (books((3, 2.0, 20.0)), "not measured", 3),
        (books((5, 2.0, 20.0), partial=True, unfinished=2), "not measured", None),
        (books((5, 2.0, 20.0), is_parallel=False), "not measured", 5),
        (books((5, 2.0, 60.0), is_parallel=False), "missed", 0),
        (books((2, 2.0, 60.0), (5, 2.0, 20.0)), "missed", 0),
    ],
    ids=[
        "five kept",
        "eight breached",
        "five breached",
        "two breached",
        "five not tried",
        "stopped",
        "one by one",
        "one by one, slow",
        "a fluke",
    ],
)
def test_books_at_once_are_those_that_keep_latency_and_errors(
    report: Report, verdict: str, measured: float | None
) -> None:
    finding = found(Target.CONCURRENCY, report)
    assert (str(finding.verdict), finding.measured) == (verdict, measured)


def test_books_page_by_page_prove_nothing_of_sixty_pages() -> None:
    finding = found(Target.CONCURRENCY, books((5, 2.0, 20.0), is_parallel=False))
    assert "but page by page: with 5 prompts in flight. Press again without --serial-pages." in finding.sentence


def test_the_rest_of_twelve_jobs_says_what_it_takes() -> None:
    whole = judged(load(rows(12)))
    assert {str(each.target): each.jobs_needed for each in whole.findings if each.jobs_needed} == {
        "p95_seconds": 20,
        "error_rate": 50,
    }
    assert whole.advice == (
        "This judges throughput and error spikes. For the rest: 20 jobs for latency p95, 50 jobs for errors "
        "(e3 loadtest --jobs 50), e3 loadtest --books 5 for books at once, e3 chaos all for recovery."
    )
    assert whole.as_json()["targets"][2]["jobs_needed"] == 20


@pytest.mark.parametrize(
    ("report", "target", "least", "said"),
    [
        (load(rows(1)), Target.LATENCY, 1, "The slowest of 1 job took 10 s, but 1 job is too few: run at least 20."),
        (load(rows(1)), Target.ERRORS, 1, "0 of 1 job failed or timed out, but it takes at least 50 jobs to see"),
        (load(rows(1)), Target.SPIKES, 1, "1 end with a time is too few to see a spike: "),
        (books((1, 2.0, 20.0)), Target.CONCURRENCY, 1, "1 book at once stayed within the latency and error targets."),
        (books((1, 2.0, 20.0)), Target.CONCURRENCY, 2, "1 book at once stayed within the targets, and more were not"),
        (books((1, 2.0, 60.0)), Target.CONCURRENCY, 1, "At 1 book at once the target for latency p95 was missed; "),
    ],
)
def test_one_is_written_in_the_singular(report: Report, target: Target, least: int, said: str) -> None:
    assert found(target, report, targets=Sla(concurrent_books=least)).sentence.startswith(said)
    assert (quantity(1.0, Target.CONCURRENCY), quantity(1.0, Target.SPIKES)) == ("1 book", "1 spike")


def test_prompts_at_once_are_no_books() -> None:
    assert words(ramp((60, 0.1, 10.0)))["concurrent_books"] == "not measured"


def test_recovery_is_the_longest_of_all_scenarios() -> None:
    finding = found(Target.RECOVERY, chaos(scenario("network-blip", 3.0), scenario("comfyui-crash", 121.0)))
    assert (finding.verdict, finding.measured) == (TargetVerdict.MISSED, 121.0)
    assert finding.sentence == "comfyui-crash took 121 s to recover, the longest of 2 scenarios."


def test_a_service_that_never_came_back_has_missed_the_recovery() -> None:
    report = chaos(scenario("network-blip", 3.0), scenario("comfyui-crash", None, "failed"))
    assert found(Target.RECOVERY, report).sentence == (
        "comfyui-crash failed, and no recovery was seen: it stayed away."
    )
    assert words(report)["recovery_seconds"] == "missed"


def test_a_scenario_that_breaks_nothing_says_nothing_of_recovery() -> None:
    report = chaos(scenario("prompt-validation", None, "failed"))
    assert words(report)["recovery_seconds"] == "not measured"
    assert judged(report).reports[0].notes == ["scenarios that failed: prompt-validation"]


def test_what_was_skipped_is_said_and_a_stopped_suite_meets_nothing() -> None:
    skipped = scenario("comfyui-crash", None, "skipped")
    assert "skipped: comfyui-crash" in found(Target.RECOVERY, chaos(scenario("gpu-oom", 3.0), skipped)).sentence
    assert words(chaos(scenario("gpu-oom", 3.0), partial=True))["recovery_seconds"] == "not measured"
    assert words(chaos(scenario("gpu-oom", 300.0), partial=True))["recovery_seconds"] == "missed"


def test_a_load_test_with_a_scenario_measures_recovery_and_nothing_else() -> None:
    report = load(rows(duration=90.0), mode="scenario", recovery_sec=12.0, scenario={"scenario": "gpu-oom"})
    assert words(report) == {str(each): "not measured" for each in Target} | {"recovery_seconds": "met"}


def test_of_several_reports_the_worst_counts_and_is_named() -> None:
    good, bad = load(rows(), "small.json"), load(rows(duration=50.0, every=2.5), "large.json")
    finding = found(Target.LATENCY, good, bad)
    assert (finding.verdict, finding.measured) == (TargetVerdict.MISSED, 50.0)
    assert finding.sentence.startswith("large.json: ")
    slower = found(Target.THROUGHPUT, good, bad)
    assert slower.verdict is TargetVerdict.MET
    assert slower.sentence.startswith("large.json: ")


def test_a_report_that_could_not_measure_does_not_undo_one_that_did() -> None:
    assert words(load(rows()), load(rows(12), "few.json"))["p95_seconds"] == "met"


def test_other_targets_at_the_time_and_the_simulator_are_noted() -> None:
    report = load(rows())
    report.environment.sla = {"p95_seconds": 60.0, "error_rate": 0.02}
    report.environment.servers = [ServerFacts(server="http://a:1", pytorch="simulated")]
    assert judged(report).reports[0].notes[:2] == [
        "it was measured on the simulator: it says nothing about a graphics card",
        "when it was measured, p95_seconds was 60; it is judged by 45",
    ]


def test_the_json_has_the_keys_that_scripts_read() -> None:
    document = judged(load(rows()), chaos(scenario("gpu-oom", 2.0))).as_json()
    assert document.keys() == {"verdict", "targets", "reports"}
    assert [each["target"] for each in document["targets"]] == [str(target) for target in Target]
    for each in document["targets"]:
        assert each.keys() == {"target", "wanted", "measured", "unit", "verdict", "sentence"}
    assert [each["path"] for each in document["reports"]] == ["load.json", "chaos.json"]


def test_junit_has_failures_and_skipped_ones() -> None:
    whole = judged(load(broken(rows(), 9)))
    suite = ElementTree.fromstring(as_junit(whole, strict=False))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "1", "2")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases["error_rate"] == ["failure"]
    assert cases["recovery_seconds"] == ["skipped"]
    assert cases["images_per_minute"] == ["system-out"]
    strictly = ElementTree.fromstring(as_junit(whole, strict=True))[0]
    assert (strictly.get("failures"), strictly.get("skipped")) == ("3", "0")


def test_junit_is_xml_whatever_a_report_says() -> None:
    odd = "\x00\x1b[31m</failure>]]>\ud800\ufffe\u2028&\r"
    bad = scenario("comfyui-crash", None, "failed") | {"reason": odd}
    text = as_junit(judged(chaos(bad, name=f"c{odd[2:4]}.json")), strict=False)
    failure = next(ElementTree.fromstring(text.encode("utf-8")).iter("failure"))
    assert failure.text is not None
    assert "</failure>]]>" in failure.text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("value", "beside", "text"),
    [(45.0, 45.0, "45 s"), (45.0004, 45.0, "45.0004 s"), (0.62345, 45.0, "0.623 s"), (12345.678, 45.0, "12346 s")],
)
def test_a_figure_beside_its_target_never_looks_the_same_by_rounding(value: float, beside: float, text: str) -> None:
    assert quantity(value, Target.LATENCY, beside) == text
