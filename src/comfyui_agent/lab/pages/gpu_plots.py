"""Memory and utilisation of the graphics cards over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from comfyui_agent.lab.pages.marks import LOOKS, Series
from comfyui_agent.lab.pages.plots import Axis, Band, Note, Plot, Target
from comfyui_agent.lab.pages.scales import time_unit
from comfyui_agent.lab.pages.shapes import Point
from comfyui_agent.lab.quantities import memory, share
from comfyui_agent.lab.reports.environment import GpuSample, ServerFacts

MOST_STRETCHES = 150


def memory_plot(trace: Sequence[GpuSample], total_mb: float | None, bands: Sequence[Band] = ()) -> Plot | None:
    """Memory in use; None if no sample has it. Bands are in seconds."""
    by_server = _by_server(trace, "gpu_mem_mb")
    points = [point for found in by_server.values() for point in found]
    if not points:
        return None
    peak = max(points, key=lambda point: point[1])
    of_total = f" of {memory(total_mb)}" if total_mb else ""
    return _plot(
        f"GPU memory peaks at {memory(peak[1])}{of_total}",
        "Memory in use on the card over time" + (f"; all that it has are {memory(total_mb)}." if total_mb else "."),
        Axis("GPU memory (GB)"),
        {server: [(at, value / 1024) for at, value in found] for server, found in by_server.items()},
        [Target(total_mb / 1024, f"card: {memory(total_mb)}")] if total_mb else [],
        bands,
        [Note((peak[0], peak[1] / 1024), memory(peak[1]))],
    )


def utilisation_plot(trace: Sequence[GpuSample], bands: Sequence[Band] = ()) -> Plot | None:
    """How busy the cards were; None if no sample has it, as with servers on other machines."""
    by_server = _by_server(trace, "gpu_util")
    points = [point for found in by_server.values() for point in found]
    if not points:
        return None
    busy = [value for at, value in points if not bands or any(band.start <= at <= band.end for band in bands)]
    mean = fmean(busy or [value for _, value in points])
    when = " while a run is going" if bands and busy else ""
    is_smoothed = any(len(found) > MOST_STRETCHES for found in by_server.values())
    smooth = ", each point the mean of a short stretch" if is_smoothed else ""
    return _plot(
        f"GPU utilisation is {share(mean / 100)} on average{when}",
        f"Utilisation of the busiest card over time{smooth}. "
        "Near 100 % the card is the limit; well below, something else is.",
        Axis("GPU utilisation (%)", 0, 100),
        {server: smoothed(found) for server, found in by_server.items()},
        [Target(mean, f"mean {mean:.0f} %")],
        bands,
    )


def _plot(
    title: str,
    sentence: str,
    y: Axis,
    by_server: Mapping[str, Sequence[Point]],
    targets: Sequence[Target],
    bands: Sequence[Band],
    notes: Sequence[Note] = (),
) -> Plot:
    unit = time_unit(max(at for found in by_server.values() for at, _ in found))
    names = sorted(by_server)
    series = [
        Series(name if len(names) > 1 else "", unit.points(by_server[name]), look, has_marks=False)
        for name, look in zip(names, LOOKS * len(names), strict=False)
    ]
    return Plot(
        title,
        sentence,
        Axis(f"Time since the start ({unit.name})"),
        y,
        series,
        targets,
        [Note((note.point[0] / unit.size, note.point[1]), note.text) for note in notes],
        [Band(band.start / unit.size, band.end / unit.size, band.text) for band in bands],
    )


def smoothed(points: Sequence[Point]) -> list[Point]:
    """The means of short stretches: the utilisation of a card jumps from sample to sample."""
    if len(points) <= MOST_STRETCHES:
        return list(points)
    ends = [number * len(points) // MOST_STRETCHES for number in range(MOST_STRETCHES + 1)]
    stretches = [points[start:end] for start, end in pairwise(ends)]
    return [(fmean(at for at, _ in each), fmean(value for _, value in each)) for each in stretches]


def _by_server(trace: Sequence[GpuSample], key: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for sample in trace:
        value = getattr(sample, key)
        if sample.seconds is not None and value is not None:
            found.setdefault(sample.server, []).append((sample.seconds, value))
    return found


def largest_card(servers: Sequence[ServerFacts]) -> float | None:
    """The most memory among servers, in MB: of all cards of a server together, as it is sampled."""
    return max((sum(device.vram_total_mb or 0 for device in server.devices) for server in servers), default=0) or None
