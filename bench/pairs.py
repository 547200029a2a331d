"""Two things measured in turn, several times in one run, so that what the machine does meanwhile happens to both."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from sizes import size

PAIRS = size(7, 1)


@dataclass
class Pairs:
    """What was measured of E3 and of its yardstick, pair by pair."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def add(self, ours: float, theirs: float) -> None:
        self.ours.append(ours)
        self.theirs.append(theirs)

    @property
    def ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def seen(self, unit: str, digits: int = 0) -> str:
        """Both medians and the spread of the pairs, in words."""
        mine, other = statistics.median(self.ours), statistics.median(self.theirs)
        spread = f"pairs {min(self.ratios):.2f} to {max(self.ratios):.2f}"
        return f"{mine:,.{digits}f}{unit} against {other:,.{digits}f}{unit}, {spread}"


def measure_pairs(
    ours: Callable[[int], float], theirs: Callable[[int], float], pairs: int = PAIRS, *, warm_up: bool = False
) -> Pairs:
    """Each is called with the number of the pair; who goes first changes from pair to pair."""
    if warm_up:
        ours(-1)
        theirs(-1)
    found = Pairs()
    for pair in range(pairs):
        if pair % 2:
            other = theirs(pair)
            mine = ours(pair)
        else:
            mine = ours(pair)
            other = theirs(pair)
        found.add(mine, other)
    return found
