"""How long a simulated piece of work takes: fixed, or drawn from a distribution."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

LONGEST = 1_000_000.0
FORMS = "a number of seconds such as 0.5, uniform:A:B, or lognormal:MEDIAN:SIGMA"


@dataclass(frozen=True)
class Duration:
    """Seconds, fixed or random: at least 0, at most LONGEST."""

    form: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, spec: str) -> Duration:
        """Read a SPEC of the command line; ValueError names the forms that are right."""
        name, *numbers = spec.split(":")
        try:
            if name in ("uniform", "lognormal"):
                first, second = (float(number) for number in numbers)
                duration = cls(name, first, second)
            else:
                duration = cls("fixed", float(spec))
        except ValueError:
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}") from None
        duration._check(spec)
        return duration

    def _check(self, spec: str) -> None:
        numbers_fit = all(0 <= number <= LONGEST for number in (self.first, self.second))
        ordered = self.form != "uniform" or self.first <= self.second
        if not numbers_fit or not ordered:
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}, with numbers from 0 to {LONGEST:.0f}")

    def draw(self, dice: random.Random) -> float:
        if self.form == "uniform":
            return dice.uniform(self.first, self.second)
        if self.form == "lognormal" and self.first > 0:
            return math.exp(min(math.log(LONGEST), dice.normalvariate(math.log(self.first), self.second)))
        return self.first


AT_ONCE = Duration("fixed", 0.0)
