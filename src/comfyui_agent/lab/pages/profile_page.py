"""The page of profiles: what workflows cost, node by node, cold and warm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import facts, gpu_plots, profile_plots
from comfyui_agent.lab.pages.markup import Html, element, joined
from comfyui_agent.lab.pages.page import Page, Tile, figure, notices, paragraph, section, table, tiles, verdict
from comfyui_agent.lab.pages.quantities import date, listed, memory, said, seconds, share, whole

Report = Mapping[str, Any]


def profile_page(reports: Sequence[Report], json_names: Sequence[str] = ()) -> str:
    """Profiles as one page that needs nothing else. What a report lacks is shown as a dash or left out."""
    known = [facts.part(report) for report in reports]
    environments = [facts.part(report.get("environment")) for report in known]
    shared = environments[0] if environments else {}
    return Page(
        "Profile, stopped early" if any(_is_partial(report) for report in known) else "Profile",
        listed([_name(report) for report in known]) or "Nothing was profiled",
        _stands(known),
        f"Started {date(shared.get('started_at'))} on {_servers(known)}.",
        [
            notices(_warnings(known)),
            section("Side by side", _overview(known)) if len(known) > 1 else Html(),
            *(_workflow(report, is_only=len(known) == 1) for report in known),
        ],
        shared,
        listed(list(json_names)),
    ).text()


def _stands(reports: Sequence[Report]) -> Html:
    if not reports:
        return verdict("dim", "No workflow was profiled.")
    tone = "bad" if any(map(_is_partial, reports)) else "good"
    if len(reports) == 1:
        return verdict(tone, _in_words(reports[0]))
    slowest = max(reports, key=lambda report: _number(report, "duration_sec") or 0.0)
    largest = max(reports, key=lambda report: _number(report, "peak_vram_mb") or 0.0)
    return verdict(
        tone,
        f"{counted(len(reports), 'workflow')} profiled: {_name(slowest)} takes longest, "
        f"{seconds(_number(slowest, 'duration_sec'))} warm; {_name(largest)} needs most memory, "
        f"{memory(_number(largest, 'peak_vram_mb'))}.",
    )


def _in_words(report: Report) -> str:
    warm, cold = _number(report, "duration_sec"), _number(report, "cold_duration_sec")
    text = f"{seconds(warm)} a run when warm, {seconds(cold)} cold"
    if warm is None:
        text = f"{seconds(cold)} a run when cold, none was measured warm"
    peak, total = _number(report, "peak_vram_mb"), _number(report, "vram_total_mb")
    if peak is not None:
        text += f", with {memory(peak)}{f' of {memory(total)}' if total else ''} GPU memory at its peak"
    nodes = facts.rows(report.get("nodes"))
    if nodes and (part := facts.number(nodes[0].get("share"))) is not None:
        text += f"; {profile_plots.node_name(nodes[0])} takes {share(part)} of a warm run"
    return text + "."


def _warnings(reports: Sequence[Report]) -> list[str]:
    found = []
    for report in reports:
        prefix = f"{_name(report)}: " if len(reports) > 1 else ""
        if _is_partial(report):
            found.append(f"{prefix}Stopped before its end; the figures are of the runs until then.")
        found += [prefix + warning for warning in facts.texts(report.get("warnings"))]
    return found


def _overview(reports: Sequence[Report]) -> Html:
    rows = [
        [
            _name(report),
            seconds(_number(report, "duration_sec")),
            seconds(_number(report, "cold_duration_sec")),
            seconds(_number(report, "model_load_sec")),
            seconds(_number(report, "sampling_sec")),
            seconds(_number(report, "transfer_sec")),
            memory(_number(report, "peak_vram_mb")),
            _fit(report),
        ]
        for report in reports
    ]
    heads = ["Workflow", "Warm", "Cold", "Model load", "Sampling", "Transfer", "Peak memory", "Fit at once"]
    return table("", heads, rows)


def _workflow(report: Report, is_only: bool) -> Html:
    runs, nodes, trace = (facts.rows(report.get(key)) for key in ("runs", "nodes", "gpu_trace"))
    bands = profile_plots.run_bands(runs)
    fits = facts.text(facts.part(report.get("fits_at_once")).get("sentence")).strip()
    return section(
        "What it costs" if is_only else _name(report),
        tiles(_tiles(report)),
        paragraph(fits),
        figure(profile_plots.node_plot(nodes)),
        figure(profile_plots.run_plot(runs)),
        figure(gpu_plots.memory_plot(trace, _number(report, "vram_total_mb"), bands)),
        figure(gpu_plots.utilisation_plot(trace, bands)),
        _node_table(nodes),
        _run_table(runs),
    )


def _tiles(report: Report) -> list[Tile]:
    total = _number(report, "vram_total_mb")
    return [
        Tile("Warm run", seconds(_number(report, "duration_sec")), "median"),
        Tile("Cold run", seconds(_number(report, "cold_duration_sec")), "models loaded first"),
        Tile("Model load", seconds(_number(report, "model_load_sec")), "cold"),
        Tile("Sampling", seconds(_number(report, "sampling_sec")), "warm, median"),
        Tile("Transfer", seconds(_number(report, "transfer_sec")), "median"),
        Tile("Peak GPU memory", memory(_number(report, "peak_vram_mb")), f"of {memory(total)}" if total else ""),
        Tile("Idle GPU memory", memory(_number(report, "idle_vram_mb")), "before any run"),
        Tile("Fit at once", _fit(report), "by memory"),
    ]


def _node_table(nodes: Sequence[Report]) -> Html:
    rows = [
        [
            joined(profile_plots.node_name(node), element("small", f"node {said(node.get('node_id'))}")),
            seconds(facts.number(node.get("cold_sec"))),
            seconds(facts.number(node.get("warm_sec"))),
            share(facts.number(node.get("share"))),
            whole(facts.number(node.get("steps"))) if facts.amount(node.get("steps")) else said(None),
        ]
        for node in nodes
    ]
    return table("Nodes", ["Node", "Cold", "Warm", "Share of warm", "Steps"], rows)


def _run_table(runs: Sequence[Report]) -> Html:
    keys = ("duration_sec", "queue_sec", "model_load_sec", "sampling_sec", "other_sec", "transfer_sec")
    rows = [
        [
            f"{number} {facts.text(run.get('kind'))}{', cached' if run.get('cached') is True else ''}",
            *(seconds(facts.number(run.get(key))) for key in keys),
            memory(facts.number(run.get("peak_vram_mb"))),
        ]
        for number, run in enumerate(runs, start=1)
    ]
    heads = ["Run", "Duration", "Queue", "Model load", "Sampling", "Other", "Transfer", "Peak memory"]
    return table("Runs", heads, rows)


def _fit(report: Report) -> str:
    count = facts.number(facts.part(report.get("fits_at_once")).get("count"))
    return said(None) if count is None else f"{count:.0f}"


def _servers(reports: Sequence[Report]) -> str:
    return listed(list(dict.fromkeys(said(report.get("server")) for report in reports))) or "no server"


def _name(report: Report) -> str:
    return facts.text(facts.part(report.get("workflow")).get("name")).strip() or "unnamed workflow"


def _number(report: Report, key: str) -> float | None:
    return facts.number(report.get(key))


def _is_partial(report: Report) -> bool:
    return report.get("partial") is True
