"""Fewer points to draw, none of the extremes lost."""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, float]

MOST_DRAWN = 1_500


def thinned(points: Sequence[Point], most: int = MOST_DRAWN) -> list[Point]:
    """At most so many of the points, by x: of each stretch its lowest and its highest, and the first and the last."""
    ordered = sorted(points, key=lambda point: point[0])
    if len(ordered) <= most:
        return ordered
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(ordered) - 1}
    for stretch in range(stretches):
        numbers = range(stretch * len(ordered) // stretches, (stretch + 1) * len(ordered) // stretches)
        kept.add(min(numbers, key=lambda number: ordered[number][1]))
        kept.add(max(numbers, key=lambda number: ordered[number][1]))
    return [ordered[number] for number in sorted(kept)]
