"""The page of profiles: what workflows cost, node by node, cold and warm."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import gpu_plots, profile_plots
from comfyui_agent.lab.pages.bars import Bars
from comfyui_agent.lab.pages.plots import Plot
from comfyui_agent.lab.pages.rendering import Mark, render
from comfyui_agent.lab.quantities import date, listed, memory, seconds, share
from comfyui_agent.lab.reports.profile import ProfileReport


def profile_page(reports: Sequence[ProfileReport], json_names: Sequence[str] = ()) -> str:
    """One or more profiles as one page that needs nothing else."""
    first = reports[0].environment
    servers = listed(list(dict.fromkeys(report.server for report in reports)))
    return render(
        "profile.html",
        kind="Profile, stopped early" if any(report.partial for report in reports) else "Profile",
        title=listed([report.name for report in reports]),
        stands=Mark("bad" if any(report.partial for report in reports) else "good", _sentence(reports)),
        subtitle=f"Started {date(first.started_at)} on {servers}.",
        warnings=_warnings(reports),
        profiles=[(report, _drawings(report)) for report in reports],
        node_name=profile_plots.node_name,
        environment=first,
        json_name=listed(json_names),
    )


def _drawings(report: ProfileReport) -> list[Plot | Bars | None]:
    bands = profile_plots.run_bands(report.runs)
    return [
        profile_plots.node_plot(report.nodes),
        profile_plots.run_plot(report.runs),
        gpu_plots.memory_plot(report.gpu_trace, report.vram_total_mb, bands),
        gpu_plots.utilisation_plot(report.gpu_trace, bands),
    ]


def _sentence(reports: Sequence[ProfileReport]) -> str:
    if len(reports) == 1:
        return _cost(reports[0])
    slowest = max(reports, key=lambda report: report.duration_sec or 0.0)
    largest = max(reports, key=lambda report: report.peak_vram_mb or 0.0)
    return (
        f"{counted(len(reports), 'workflow')} profiled: {slowest.name} takes longest, {seconds(slowest.duration_sec)} "
        f"warm; {largest.name} needs most memory, {memory(largest.peak_vram_mb)}."
    )


def _cost(report: ProfileReport) -> str:
    if report.duration_sec is None:
        text = f"{seconds(report.cold_duration_sec)} a run when cold, none was measured warm"
    else:
        text = f"{seconds(report.duration_sec)} a run when warm, {seconds(report.cold_duration_sec)} cold"
    if report.peak_vram_mb is not None:
        total = f" of {memory(report.vram_total_mb)}" if report.vram_total_mb else ""
        text += f", with {memory(report.peak_vram_mb)}{total} GPU memory at its peak"
    if report.nodes and report.nodes[0].share is not None:
        text += f"; {profile_plots.node_name(report.nodes[0])} takes {share(report.nodes[0].share)} of a warm run"
    return text + "."


def _warnings(reports: Sequence[ProfileReport]) -> list[str]:
    found = []
    for report in reports:
        prefix = f"{report.name}: " if len(reports) > 1 else ""
        if report.partial:
            found.append(f"{prefix}Stopped before its end; the figures are of the runs until then.")
        found += [prefix + warning for warning in report.warnings]
    return found
