"""The page of a load test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import facts, gpu_plots, load_plots
from comfyui_agent.lab.pages.markup import LONGEST_TEXT, Html, element
from comfyui_agent.lab.pages.page import Page, Tile, figure, notices, paragraph, section, table, tiles, verdict
from comfyui_agent.lab.pages.quantities import date, plain, rate, said, seconds, share, trimmed
from comfyui_agent.lab.pages.quantities import whole as figures
from comfyui_agent.lab.pages.scenario import scenario_section
from comfyui_agent.lab.pages.targets import TONES, Judged, judged
from comfyui_agent.lab.sla.verdicts import TargetVerdict, standing

MOST_ERRORS = 40
NUMBERS = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""Ids, ports and sizes in the text of an error."""


def load_page(report: Mapping[str, Any], json_name: str = "") -> str:
    """A load test as a page that needs nothing else. What the report lacks is shown as a dash or left out."""
    summary, environment = facts.part(report.get("summary")), facts.part(report.get("environment"))
    results, sla = facts.rows(report.get("results")), facts.part(environment.get("sla"))
    targets = judged(report)
    workflow = facts.text(facts.part(environment.get("workflow")).get("name")) or "unnamed workflow"
    is_partial = summary.get("partial") is True
    return Page(
        "Load test, stopped early" if is_partial else "Load test",
        f"{workflow} on {_servers(summary, environment)}",
        _stands(summary, targets),
        _subtitle(summary, environment),
        [
            notices([*_partial(summary), *facts.texts(summary.get("warnings"))]),
            tiles(_tiles(summary, targets)),
            _reasons(targets),
            _latency(summary, results, sla),
            _levels(summary, sla),
            section("Where the time goes", figure(load_plots.parts_plot(results, facts.rows(summary.get("levels"))))),
            _gpu(environment),
            section("Servers", _server_table(summary)),
            _errors(results),
            scenario_section(facts.part(summary.get("scenario")), sla) if summary.get("scenario") else Html(),
        ],
        environment,
        json_name,
    ).text()


def _stands(summary: Mapping[str, Any], targets: Sequence[Judged]) -> Html:
    completed, total = facts.amount(summary.get("completed")), facts.amount(summary.get("total_jobs"))
    if not total:
        return verdict("dim", "Nothing was measured.")
    failed, timeouts = facts.amount(summary.get("failed")), facts.amount(summary.get("timeouts"))
    parts = [f"{completed:,} of {counted(total, 'job')} done"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{timeouts:,} timed out"] if timeouts else []
    text = ", ".join(parts) + f", {_throughput(summary)}"
    verdicts = {each.target: each.verdict for each in targets if each.verdict is not None}
    told = standing(verdicts)
    text += f": {told}." if told else "."
    missed = TargetVerdict.MISSED in verdicts.values()
    is_partial = summary.get("partial") is True
    prefix = "Stopped early: " if is_partial else ""
    return verdict("bad" if missed or is_partial or completed < total else "good", prefix + text)


def _throughput(summary: Mapping[str, Any]) -> str:
    """Images a minute; of a ramp those of its best level."""
    rates = [facts.number(level.get("images_per_minute")) for level in facts.rows(summary.get("levels"))]
    if len(rates) > 1:
        return f"at up to {rate(max((each for each in rates if each is not None), default=None))}"
    return f"at {rate(facts.number(summary.get('images_per_minute')))}"


def _servers(summary: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    names = [facts.text(row.get("server")) for row in facts.rows(summary.get("servers"))]
    names = names or [facts.text(row.get("server")) for row in facts.rows(environment.get("servers"))]
    return (names[0] or "one server") if len(names) == 1 else counted(len(names), "server") if names else "a server"


def _subtitle(summary: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    modes = {"closed": "closed loop", "open": "open loop", "books": "whole books", "scenario": "with a fault"}
    mode = facts.text(summary.get("mode"))
    took = seconds(facts.number(summary.get("wall_clock_sec")))
    return f"Started {date(environment.get('started_at'))}, ran {took}, {modes.get(mode, mode) or 'mode unknown'}."


def _partial(summary: Mapping[str, Any]) -> list[str]:
    if summary.get("partial") is not True:
        return []
    unfinished = facts.amount(summary.get("unfinished"))
    left = f" {counted(unfinished, 'job')} had not ended then." if unfinished else ""
    return [f"This run was stopped before its end.{left} All figures are of what was measured until then."]


def _tiles(summary: Mapping[str, Any], targets: Sequence[Judged]) -> list[Tile]:
    shown = [target.tile() for target in targets]
    cached = facts.amount(summary.get("cached_jobs"))
    if cached:
        shown.append(Tile("Answered by the cache", counted(cached, "job"), verdict("bad", "these measured nothing")))
    return shown


def _reasons(targets: Sequence[Judged]) -> Html:
    """What each verdict rests on."""
    reasons = [f"{each.name}: {each.finding.sentence}" for each in targets if each.finding]
    return element("ul", *(element("li", reason) for reason in reasons), class_="words") if reasons else Html()


def _latency(summary: Mapping[str, Any], results: Sequence[Mapping[str, Any]], sla: Mapping[str, Any]) -> Html:
    target = facts.number(sla.get("p95_seconds"))
    p95 = facts.number(summary.get("p95_duration_sec"))
    rows = [
        [
            name,
            *(
                seconds(facts.number(summary.get(f"{kind}_{key}")))
                for kind in ("avg", "p50", "p90", "p95", "p99", "max")
            ),
        ]
        for name, key in (
            ("From sending to the result", "duration_sec"),
            ("Waiting in the queue", "queue_sec"),
            ("Executing", "exec_sec"),
            ("Fetching the result", "transfer_sec"),
        )
        if any(facts.number(summary.get(f"{kind}_{key}")) is not None for kind in ("avg", "p50", "p95"))
    ]
    return section(
        "How long jobs take",
        figure(load_plots.latency_plot(results, facts.rows(summary.get("levels")), p95, target)),
        figure(load_plots.distribution_plot(results, summary, target)),
        table("Durations of completed jobs", ["Stretch", "Mean", "p50", "p90", "p95", "p99", "Longest"], rows),
    )


def _levels(summary: Mapping[str, Any], sla: Mapping[str, Any]) -> Html:
    levels, knee = facts.rows(summary.get("levels")), facts.part(summary.get("knee"))
    throughput = facts.number(sla.get("images_per_minute"))
    rows = [
        [
            trimmed(plain(facts.number(row.get("level")))),
            figures(facts.number(row.get("total_jobs"))),
            figures(facts.number(row.get("completed"))),
            figures(facts.number(row.get("failed"))),
            figures(facts.number(row.get("timeouts"))),
            plain(facts.number(row.get("images_per_minute"))),
            seconds(facts.number(row.get("p50_duration_sec"))),
            seconds(facts.number(row.get("p95_duration_sec"))),
            share(facts.number(row.get("success_rate"))),
            _within(row.get("within_sla")),
        ]
        for row in levels
    ]
    unit = load_plots.unit_of(levels)
    outcomes = ["Jobs", "Done", "Failed", "Timed out", "Images/min", "p50", "p95", "Success", "Latency and errors"]
    heads = [unit[:1].upper() + unit[1:], *outcomes]
    return section(
        "How much it takes",
        figure(load_plots.throughput_plot(levels, knee, throughput)),
        figure(load_plots.level_latency_plot(levels, knee, facts.number(sla.get("p95_seconds")))),
        table("Levels of load", heads, rows if len(rows) > 1 else [], texts=(9,)),
    )


def _within(value: Any) -> str:
    found = (
        TargetVerdict.NOT_MEASURED
        if not isinstance(value, bool)
        else TargetVerdict.MET
        if value
        else TargetVerdict.MISSED
    )
    return verdict(TONES[found], str(found))


def _gpu(environment: Mapping[str, Any]) -> Html:
    trace = facts.rows(environment.get("gpu_trace"))
    total = gpu_plots.largest_card(facts.rows(environment.get("servers")))
    return section("GPU", figure(gpu_plots.memory_plot(trace, total)), figure(gpu_plots.utilisation_plot(trace)))


def _server_table(summary: Mapping[str, Any]) -> Html:
    rows = [
        [
            said(row.get("server")),
            figures(facts.number(row.get("total_jobs"))),
            figures(facts.number(row.get("completed"))),
            figures(facts.number(row.get("failed"))),
            figures(facts.number(row.get("timeouts"))),
            plain(facts.number(row.get("images_per_minute"))),
            seconds(facts.number(row.get("p50_duration_sec"))),
            seconds(facts.number(row.get("p95_duration_sec"))),
        ]
        for row in facts.rows(summary.get("servers"))
    ]
    return table("", ["Server", "Jobs", "Done", "Failed", "Timed out", "Images/min", "p50", "p95"], rows)


def _errors(results: Sequence[Mapping[str, Any]]) -> Html:
    """Errors that differ only in numbers and ids together, the most frequent first, with the first of each in full."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for row in results:
        status = facts.text(row.get("status"))
        if status in ("failed", "timeout"):
            reason = facts.text(row.get("error")).strip()[:LONGEST_TEXT] or "no reason was given"
            same = (status, NUMBERS.sub("#", reason))
            counts[same] += 1
            first.setdefault(same, (reason, said(row.get("index"))))
    rows = [
        [figures(count), verdict("bad", "timed out" if same[0] == "timeout" else "failed"), *first[same]]
        for same, count in counts.most_common(MOST_ERRORS)
    ]
    rest = len(counts) - len(rows)
    more = f"{counted(rest, 'other error')} can be found in the JSON file." if rest > 0 else ""
    return section("Errors", table("", ["Jobs", "Ended", "Error", "First job"], rows, texts=(1, 2)), paragraph(more))
