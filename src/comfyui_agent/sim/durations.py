"""How long a simulated piece of work takes: fixed, or drawn from a distribution."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

FORMS = "a number of seconds such as 0.5, uniform:A:B, or lognormal:MEDIAN:SIGMA"


@dataclass(frozen=True)
class Duration:
    """A rule that gives seconds; `draw` never returns a negative number."""

    form: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, spec: str) -> Duration:
        """Read a SPEC as typed on the command line; ValueError says what would be right."""
        name, _, rest = spec.partition(":")
        try:
            if not rest:
                duration = cls("fixed", float(name))
            else:
                first, second = (float(part) for part in rest.split(":"))
                duration = cls(name, first, second)
        except ValueError:
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}") from None
        duration._check(spec)
        return duration

    def _check(self, spec: str) -> None:
        numbers_fit = all(math.isfinite(number) and number >= 0 for number in (self.first, self.second))
        ordered = self.form != "uniform" or self.first <= self.second
        if self.form not in ("fixed", "uniform", "lognormal") or not numbers_fit or not ordered:
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}, with numbers from 0 up")

    def draw(self, dice: random.Random) -> float:
        if self.form == "uniform":
            return dice.uniform(self.first, self.second)
        if self.form == "lognormal" and self.first > 0:
            return dice.lognormvariate(math.log(self.first), self.second)
        return self.first


AT_ONCE = Duration("fixed", 0.0)
