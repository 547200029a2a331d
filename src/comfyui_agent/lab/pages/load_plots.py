"""The plots of a load test, each with its finding as the title."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.pages.figures import (
    Axis,
    Band,
    Lane,
    Lanes,
    Note,
    Plot,
    Point,
    Series,
    Target,
    stacked,
    time_axis,
)
from comfyui_agent.lab.quantities import against, plain, rate, seconds, share, trimmed, wanted
from comfyui_agent.lab.reports.load import KneeFacts, LevelSummary, LoadSummary, Row, RowStatus

LOOKS = {RowStatus.COMPLETED: "dots", RowStatus.FAILED: "triangles", RowStatus.TIMEOUT: "crosses"}
PARTS = {
    "queue_sec": ("Waiting in the queue", "empty"),
    "exec_sec": ("Executing", "solid"),
    "transfer_sec": ("Fetching the result", "striped"),
}


def latency_plot(rows: Sequence[Row], summary: LoadSummary, target: float | None) -> Plot | None:
    """Each job at its start, how long it took, and how it ended."""
    by_status = {status: _points(rows, status) for status in LOOKS}
    points = [point for found in by_status.values() for point in found]
    if not points:
        return None
    series = [
        Series(f"{status} ({len(by_status[status]):,})", by_status[status], look, has_line=False)
        for status, look in LOOKS.items()
    ]
    longest = max(points, key=lambda point: point[1])
    p95 = summary.p95_duration_sec
    return Plot(
        "No job was completed" if p95 is None else f"95 % of the completed jobs took at most {against(p95, target)}",
        time_axis("Sent at, since the start", series),
        Axis("Duration (s)"),
        series,
        _target(target),
        [Note(longest, f"longest {seconds(longest[1])}", is_ringed=True)],
        _level_bands(rows),
    )


def throughput_plot(levels: Sequence[LevelSummary], knee: KneeFacts | None, target: float | None) -> Plot | None:
    """Images a minute at each level, with the knee; None for fewer than two levels."""
    points = _pairs(levels, "images_per_minute")
    if len(points) < 2:
        return None
    unit = unit_of(levels)
    best = max(points, key=lambda point: point[1])
    if knee is None or knee.level is None:
        title = f"Throughput is highest at {level_text(best[0], unit)}, with {rate(best[1])}; no knee was found"
        notes = [Note(best, rate(best[1]))]
    else:
        height = dict(points).get(knee.level, knee.images_per_minute or 0.0)
        title = knee.reason[:1].upper() + knee.reason[1:]
        notes = [Note((knee.level, height), f"knee: {rate(height)}", is_ringed=True)]
    return Plot(
        title,
        _level_axis(points, unit),
        Axis("Throughput (images/min)"),
        [Series("", points)],
        [] if target is None else [Target(target, f"target: at least {wanted(rate(target))}")],
        notes,
    )


def level_latency_plot(levels: Sequence[LevelSummary], knee: KneeFacts | None, target: float | None) -> Plot | None:
    """The p95 at each level: the price of pressing harder."""
    points, halves = _pairs(levels, "p95_duration_sec"), _pairs(levels, "p50_duration_sec")
    if len(points) < 2:
        return None
    unit = unit_of(levels)
    turn = None if knee is None else knee.level
    at, value = next((point for point in points if point[0] == turn), max(points))
    over = [level for level, p95 in points if target is not None and p95 > target]
    if over:
        title = f"From {level_text(min(over), unit)} on, the p95 is above the target of {wanted(seconds(target))}"
    else:
        title = f"At {level_text(at, unit)} the p95 is {against(value, target)}"
    return Plot(
        title,
        _level_axis(points, unit),
        Axis("Duration (s)"),
        [Series("p95", points), Series("p50", halves, "squares")],
        _target(target),
        [Note((at, value), seconds(value), is_ringed=at == turn)],
    )


def distribution_plot(rows: Sequence[Row], summary: LoadSummary, target: float | None) -> Plot | None:
    """Which share of the completed jobs took at most how long."""
    values = sorted(row.duration_sec for row in rows if row.is_completed and row.duration_sec is not None)
    if not values:
        return None
    points = [(value, 100 * (rank + up) / len(values)) for rank, value in enumerate(values) for up in (0, 1)]
    marked = {50.0: summary.p50_duration_sec, 95.0: summary.p95_duration_sec}
    notes = [Note((value, at), f"p{at:.0f} {seconds(value)}") for at, value in marked.items() if value is not None]
    if target is not None:
        within = sum(value <= target for value in values) / len(values)
        title = f"{share(within)} of the completed jobs were done within {wanted(seconds(target))}"
    else:
        title = f"Half of the completed jobs were done within {seconds(summary.p50_duration_sec)}"
    return Plot(
        title,
        Axis("Duration (s)", 0.0 if values[0] < values[-1] / 2 else None),
        Axis("Completed jobs (%)", 0, 100),
        [Series("", points, has_marks=False)],
        [] if target is None else [Target(target, f"target {wanted(seconds(target))}", is_upright=True)],
        notes,
    )


def parts_plot(rows: Sequence[Row], levels: Sequence[LevelSummary]) -> Lanes | None:
    """Queue, execution and transfer: at each level, else at each server, else of all jobs."""
    done = [row for row in rows if row.is_completed]
    by_level, by_server = dict.fromkeys(row.level for row in done), dict.fromkeys(row.server for row in done)
    unit = unit_of(levels)
    if len(by_level) > 1:
        groups = {level_text(level or 0.0, unit): [row for row in done if row.level == level] for level in by_level}
    elif len(by_server) > 1:
        groups = {server: [row for row in done if row.server == server] for server in by_server}
    else:
        groups = {"All jobs": done}
    means = {name: _means(found) for name, found in groups.items()}
    known = {name: found for name, found in means.items() if any(mean is not None for mean in found)}
    if not known:
        return None
    sums = [mean or 0.0 for mean in _means(done)]
    whole, (largest, (name, _)) = sum(sums), max(zip(sums, PARTS.values(), strict=True), key=lambda part: part[0])
    fills = [fill for _, fill in PARTS.values()]
    return Lanes(
        f"{name} takes {share(largest / whole)} of a job's time"
        if whole > 0
        else "Jobs took no time that could be measured",
        "Mean duration (s)",
        [
            Lane(group, [seconds(sum(mean or 0.0 for mean in found))], stacked(fills, found))
            for group, found in known.items()
        ],
        dict(PARTS.values()),
    )


def unit_of(levels: Sequence[LevelSummary]) -> str:
    return next((level.unit for level in levels if level.unit), "prompts at once")


def _means(rows: Sequence[Row]) -> list[float | None]:
    """The mean of each part; None where no job has it."""
    found = [[value for row in rows if (value := getattr(row, key)) is not None] for key in PARTS]
    return [fmean(values) if values else None for values in found]


def _points(rows: Sequence[Row], status: RowStatus) -> list[Point]:
    return [
        (row.seconds, row.duration_sec)
        for row in rows
        if row.status is status and row.seconds is not None and row.duration_sec is not None
    ]


def _level_bands(rows: Sequence[Row]) -> list[Band]:
    """When each level was driven, if there were several."""
    times: dict[float, list[float]] = {}
    for row in rows:
        if row.level is not None and row.seconds is not None:
            times.setdefault(row.level, []).append(row.seconds)
    starts = sorted((min(found), level) for level, found in times.items())
    ends = [start for start, _ in starts[1:]] + [max((max(found) for found in times.values()), default=0.0)]
    bands = [Band(start, end, trimmed(plain(level))) for (start, level), end in zip(starts, ends, strict=True)]
    return bands if len(bands) > 1 else []


def _pairs(levels: Sequence[LevelSummary], key: str) -> list[Point]:
    values = {level.level: getattr(level, key) for level in levels}
    return sorted((level, value) for level, value in values.items() if level is not None and value is not None)


def _level_axis(points: Sequence[Point], unit: str) -> Axis:
    return Axis(f"Load ({unit})", ticks=[level for level, _ in points])


def _target(value: float | None) -> list[Target]:
    return [] if value is None else [Target(value, f"target {wanted(seconds(value))}")]
