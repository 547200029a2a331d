"""The plots of a load test, each with its finding as the title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import facts, time_axis
from comfyui_agent.lab.pages.downsampling import MOST_DRAWN, Point
from comfyui_agent.lab.pages.lanes import Bar, Bars, Fill, Part
from comfyui_agent.lab.pages.marks import Look, Series
from comfyui_agent.lab.pages.plots import Axis, Band, Note, Plot, Target
from comfyui_agent.lab.pages.quantities import plain, rate, seconds, share, trimmed, wanted
from comfyui_agent.lab.pages.targets import against

Rows = Sequence[Mapping[str, Any]]
STATUSES = (("completed", Look.DOTS), ("failed", Look.TRIANGLES), ("timeout", Look.CROSSES))
PARTS = (("queue_sec", "Waiting in the queue"), ("exec_sec", "Executing"), ("transfer_sec", "Fetching the result"))
FILLS = (Fill.EMPTY, Fill.SOLID, Fill.STRIPED)


def latency_plot(results: Rows, levels: Rows, p95: float | None, target: float | None) -> Plot | None:
    """Each job at its start, how long it took, and how it ended."""
    by_status = {status: _points(results, status) for status, _ in STATUSES}
    points = [point for found in by_status.values() for point in found]
    if not points:
        return None
    time = time_axis.over(max(at for at, _ in points))
    worst = max(points, key=lambda point: point[1])
    bands = _level_bands(results)
    bad = len(by_status["failed"]) + len(by_status["timeout"])
    return Plot(
        f"95 % of the completed jobs took at most {against(p95, target)}"
        if p95 is not None
        else "No job was completed",
        f"{_drawn(len(points))}: when it was sent, and how long until its result could be "
        f"fetched{' or it had failed' if bad else ''}."
        + (f" The target of {wanted(seconds(target))} is for 95 % of them." if target is not None else "")
        + (f" The numbers above are the levels of load, in {unit_of(levels)}." if bands else ""),
        time.axis("Sent at, since the start"),
        Axis("Duration (s)"),
        [
            Series(f"{status} ({len(by_status[status]):,})", time.points(by_status[status]), look, has_line=False)
            for status, look in STATUSES
        ],
        _target(target),
        [Note((time.at(worst[0]), worst[1]), f"longest {seconds(worst[1])}", is_ringed=True)],
        [Band(time.at(band.start), time.at(band.end), band.text) for band in bands],
    )


def throughput_plot(levels: Rows, knee: Mapping[str, Any], target: float | None) -> Plot | None:
    """Images a minute at each level, with the knee; None for fewer than two levels."""
    points = _pairs(levels, "level", "images_per_minute")
    if len(points) < 2:
        return None
    unit = unit_of(levels)
    turn = facts.number(knee.get("level"))
    best = max(points, key=lambda point: point[1])
    if turn is None:
        title = f"Throughput is highest at {_at(best[0], unit)}, with {rate(best[1])}; no knee was found"
        notes = [Note(best, rate(best[1]))]
    else:
        height = dict(points).get(turn, facts.number(knee.get("images_per_minute")) or 0.0)
        reason = facts.text(knee.get("reason")).strip() or f"beyond {_at(turn, unit)} more load brings little"
        title = reason[:1].upper() + reason[1:]
        notes = [Note((turn, height), f"knee: {rate(height)}", is_ringed=True)]
    return Plot(
        title,
        "Completed images by the clock at each level of load. The knee is the level beyond which more load brings "
        "nearly nothing, or only errors.",
        _level_axis(points, unit),
        Axis("Throughput (images/min)"),
        [Series("", points)],
        [] if target is None else [Target(target, f"target: at least {wanted(rate(target))}")],
        notes,
    )


def level_latency_plot(levels: Rows, knee: Mapping[str, Any], target: float | None) -> Plot | None:
    """The p95 at each level, below the throughput: the price of pressing harder."""
    points, halves = _pairs(levels, "level", "p95_duration_sec"), _pairs(levels, "level", "p50_duration_sec")
    if len(points) < 2:
        return None
    unit = unit_of(levels)
    turn = facts.number(knee.get("level"))
    at = turn if turn in dict(points) else max(points)[0]
    assert at is not None
    value = dict(points)[at]
    over = [level for level, p95 in points if target is not None and p95 > target]
    if over:
        title = f"From {_at(min(over), unit)} on, the p95 is above the target of {wanted(seconds(target))}"
    else:
        title = f"At {_at(at, unit)} the p95 is {against(value, target)}"
    return Plot(
        title,
        "How long jobs take at each level: half of them at most the lower line, 95 % of them at most the upper.",
        _level_axis(points, unit),
        Axis("Duration (s)"),
        [Series("p95", points), Series("p50", halves, Look.SQUARES)],
        _target(target),
        [Note((at, value), seconds(value), is_ringed=at == turn)],
    )


def distribution_plot(results: Rows, summary: Mapping[str, Any], target: float | None) -> Plot | None:
    """Which share of the completed jobs took at most how long."""
    values = sorted(value for row in _of(results, "completed") if (value := _duration(row)) is not None)
    if not values:
        return None
    points = [(values[0], 0.0)] + [(value, 100 * (rank + 1) / len(values)) for rank, value in enumerate(values)]
    known = [(name, facts.number(summary.get(f"{name}_duration_sec"))) for name in ("p50", "p95", "p99")]
    notes = [
        Note((value, float(name[1:])), f"{name} {seconds(value)}") for name, value in known[:2] if value is not None
    ]
    if target is not None:
        within = sum(value <= target for value in values) / len(values)
        title = f"{share(within)} of the completed jobs were done within {wanted(seconds(target))}"
    else:
        title = f"Half of the completed jobs were done within {seconds(known[0][1])}"
    longest = f", the longest took {seconds(values[-1])}"
    p99 = known[2][1]
    return Plot(
        title,
        "Read across from a share to see how long so many of the jobs took at most"
        + (f": for 99 % it is {seconds(p99)}" if p99 is not None else "")
        + f"{longest}.",
        Axis("Duration (s)", 0.0 if values[0] < values[-1] / 2 else None),
        Axis("Completed jobs (%)", 0, 100),
        [Series("", points, has_marks=False, is_stepped=True)],
        [] if target is None else [Target(target, f"target {wanted(seconds(target))}", is_upright=True)],
        notes,
    )


def parts_plot(results: Rows, levels: Rows) -> Bars | None:
    """Queue, execution and transfer at each level; at each server if there was one level; on average."""
    done = _of(results, "completed")
    by_level = {value: [row for row in done if row.get("level") == value] for value in _distinct(done, "level")}
    by_server = {value: [row for row in done if row.get("server") == value] for value in _distinct(done, "server")}
    unit = unit_of(levels)
    if len(by_level) > 1:
        groups = {_at(facts.number(level), unit): rows for level, rows in by_level.items()}
    elif len(by_server) > 1:
        groups = {facts.text(server): rows for server, rows in by_server.items()}
    else:
        groups = {"All jobs": list(done)}
    bars = [bar for name, rows in groups.items() if (bar := _stack(name, rows)) is not None]
    total = _stack("", list(done))
    if not bars or total is None:
        return None
    sums = [value or 0.0 for value in total.values]
    largest = max(range(len(sums)), key=lambda number: sums[number])
    return Bars(
        f"{PARTS[largest][1]} takes {share(sums[largest] / sum(sums))} of a job's time"
        if sum(sums) > 0
        else "Jobs took no time that could be measured",
        "Mean of the completed jobs: how long they waited at the server, were executed, and how long until the result "
        "could be fetched.",
        "Mean duration (s)",
        [Part(name, fill) for (_, name), fill in zip(PARTS, FILLS, strict=True)],
        bars,
        is_stacked=True,
    )


def _stack(name: str, rows: Rows) -> Bar | None:
    found = [[value for row in rows if (value := facts.number(row.get(key))) is not None] for key, _ in PARTS]
    means = [sum(values) / len(values) if values else None for values in found]
    if all(mean is None for mean in means):
        return None
    return Bar(name, means, seconds(sum(mean or 0.0 for mean in means)))


def _points(results: Rows, status: str) -> list[Point]:
    found = []
    for row in _of(results, status):
        at, value = facts.number(row.get("seconds")), _duration(row)
        if at is not None and value is not None:
            found.append((at, value))
    return found


def _drawn(count: int) -> str:
    if count <= MOST_DRAWN:
        return f"Each mark is one of {counted(count, 'job')}"
    return f"Each mark is a job; of {count:,} the longest and the shortest of each stretch are drawn"


def _level_bands(results: Rows) -> list[Band]:
    """When which level was driven, if there were several."""
    levels: dict[float, list[float]] = {}
    for row in results:
        level, at = facts.number(row.get("level")), facts.number(row.get("seconds"))
        if level is not None and at is not None:
            levels.setdefault(level, []).append(at)
    starts = sorted((min(times), level) for level, times in levels.items())
    ends = [start for start, _ in starts[1:]] + [max((max(times) for times in levels.values()), default=0.0)]
    bands = [Band(start, end, _figure(level)) for (start, level), end in zip(starts, ends, strict=True)]
    return bands if len(bands) > 1 else []


def _pairs(levels: Rows, x: str, y: str) -> list[Point]:
    found = {}
    for row in levels:
        across, up = facts.number(row.get(x)), facts.number(row.get(y))
        if across is not None and up is not None:
            found[across] = up
    return sorted(found.items())


def _level_axis(points: Sequence[Point], unit: str) -> Axis:
    return Axis(f"Load ({unit})", ticks=[level for level, _ in points])


def _of(results: Rows, status: str) -> list[Mapping[str, Any]]:
    return [row for row in results if row.get("status") == status]


def _duration(row: Mapping[str, Any]) -> float | None:
    return facts.number(row.get("duration_sec"))


def _distinct(rows: Rows, key: str) -> list[Any]:
    return list(dict.fromkeys(row.get(key) for row in rows if isinstance(row.get(key), (str, int, float))))


def unit_of(levels: Rows) -> str:
    return next((unit for row in levels if (unit := facts.text(row.get("unit")).strip())), "prompts at once")


def _at(level: float | None, unit: str) -> str:
    """So many at once; one prompt, two prompts."""
    first, space, rest = unit.partition(" ")
    return f"{_figure(level)} {first.removesuffix('s') if level == 1 else first}{space}{rest}"


def _figure(level: float | None) -> str:
    return trimmed(plain(level))


def _target(value: float | None) -> list[Target]:
    return [] if value is None else [Target(value, f"target {wanted(seconds(value))}")]
