"""What a measurement must reach, what it reached, and how that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One measured promise."""

    what: str
    goal: str
    reached: str
    met: bool
    why: str = ""

    def text(self) -> str:
        mark = "met   " if self.met else "MISSED"
        reason = f"  ({self.why})" if self.why else ""
        return f"{mark}  {self.what}: goal {self.goal}, reached {self.reached}{reason}"


def at_least(what: str, goal: float, reached: float, unit: str = "", why: str = "") -> Line:
    met = reached >= goal
    return Line(what, f"≥ {_figure(goal)}{unit}", f"{_figure(reached)}{unit}", met, "" if met else why)


def at_most(what: str, goal: float, reached: float, unit: str = "", why: str = "") -> Line:
    met = reached <= goal
    return Line(what, f"≤ {_figure(goal)}{unit}", f"{_figure(reached)}{unit}", met, "" if met else why)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
