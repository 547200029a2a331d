"""Memory and utilisation of the graphics cards over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from comfyui_agent.lab.pages.figures import LOOKS, Axis, Band, Note, Plot, Point, Series, Target, time_axis
from comfyui_agent.lab.quantities import memory, share
from comfyui_agent.lab.reports.environment import GpuSample, ServerFacts

TIME = "Time since the start"
MOST_STRETCHES = 150


def memory_plot(trace: Sequence[GpuSample], total_mb: float | None, bands: Sequence[Band] = ()) -> Plot | None:
    """Memory in use; None if no sample has it. Bands are in seconds."""
    series = _series(trace, "gpu_mem_mb")
    if not series:
        return None
    peak = max((point for one in series for point in one.points), key=lambda point: point[1])
    of_total = f" of {memory(total_mb)}" if total_mb else ""
    return Plot(
        f"GPU memory peaks at {memory(peak[1])}{of_total}",
        time_axis(TIME, series),
        Axis("GPU memory (GB)", unit=1024),
        series,
        [Target(total_mb, f"card: {memory(total_mb)}")] if total_mb else [],
        [Note(peak, memory(peak[1]))],
        bands,
    )


def utilisation_plot(trace: Sequence[GpuSample], bands: Sequence[Band] = ()) -> Plot | None:
    """How busy the cards were; None if no sample has it, as with servers on other machines."""
    series = _series(trace, "gpu_util")
    if not series:
        return None
    points = [point for one in series for point in one.points]
    busy = [value for at, value in points if not bands or any(band.start <= at <= band.end for band in bands)]
    mean = fmean(busy or [value for _, value in points])
    when = " while a run is going" if bands and busy else ""
    return Plot(
        f"GPU utilisation is {share(mean / 100)} on average{when}",
        time_axis(TIME, series),
        Axis("GPU utilisation (%)", 0, 100),
        [replace(one, points=_smoothed(one.points)) for one in series],
        [Target(mean, f"mean {mean:.0f} %")],
        bands=bands,
    )


def _smoothed(points: Sequence[Point]) -> Sequence[Point]:
    """The means of short stretches: the utilisation of a card jumps from sample to sample."""
    if len(points) <= MOST_STRETCHES:
        return points
    ends = [number * len(points) // MOST_STRETCHES for number in range(MOST_STRETCHES + 1)]
    stretches = [points[start:end] for start, end in pairwise(ends)]
    return [(fmean(at for at, _ in each), fmean(value for _, value in each)) for each in stretches]


def _series(trace: Sequence[GpuSample], key: str) -> list[Series]:
    """One per server, named if there are several."""
    found: dict[str, list[Point]] = {}
    for sample in trace:
        value = getattr(sample, key)
        if sample.seconds is not None and value is not None:
            found.setdefault(sample.server, []).append((sample.seconds, value))
    return [
        Series(name if len(found) > 1 else "", found[name], look, has_marks=False)
        for name, look in zip(sorted(found), LOOKS * len(found), strict=False)
    ]


def largest_card(servers: Sequence[ServerFacts]) -> float | None:
    """The most memory among servers, in MB: of all cards of a server together, as it is sampled."""
    return max((sum(device.vram_total_mb or 0 for device in server.devices) for server in servers), default=0) or None
