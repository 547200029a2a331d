"""The plan of a load test: what is sent where, how many at once or how often, and for how long."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, NoReturn

from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.domain.values import BadValues, parse
from comfyui_agent.lab.payloads import Payload

PAGES_OF_A_BOOK = 12
JOBS_OF_A_LEVEL = 5
FEWEST_JOBS = 20
MOST_LEVELS = 100


class Mode(TextEnum):
    """What is held steady. In a closed loop the next prompt waits for one to end; in an open loop none waits."""

    CLOSED = "closed"
    OPEN = "open"
    BOOKS = "books"

    @property
    def unit(self) -> str:
        return {Mode.CLOSED: "prompts at once", Mode.OPEN: "prompts/min", Mode.BOOKS: "books at once"}[self]


def level_text(level: float, unit: str) -> str:
    """`4 prompts at once`, `1 book at once`, `20 prompts/min`."""
    one = {"prompts at once": "prompt at once", "books at once": "book at once", "prompts/min": "prompt/min"}
    return f"{level:g} {one.get(unit, unit) if level == 1 else unit}".rstrip()


class BadPlan(ValueError):
    """Options that do not fit together, in one line."""


@dataclass(frozen=True)
class LoadPlan:
    """One load test. `levels` has one number, or several for a ramp: prompts at once, prompts a minute, or books."""

    servers: tuple[str, ...]
    payloads: tuple[Payload, ...]
    mode: Mode = Mode.CLOSED
    levels: tuple[float, ...] = (1.0,)
    jobs: int | None = None
    duration: float | None = None
    timeout: float = 420.0
    warmup: int = 1
    same_seeds: bool = False
    even_arrivals: bool = False
    pages: int = PAGES_OF_A_BOOK
    parallel_pages: bool = True
    seed: int = field(default_factory=lambda: secrets.randbelow(2**32))
    """Different for each run, because a server's cache knows the prompts of the run before."""

    def jobs_of(self, level: float) -> int | None:
        """How many prompts a level sends; None where its duration alone says when it ends."""
        if self.mode is Mode.BOOKS:
            return int(level) * self.pages
        if self.jobs is not None or self.duration is not None:
            return self.jobs
        if self.mode is Mode.OPEN:
            return max(FEWEST_JOBS, int(level))
        return max(FEWEST_JOBS, JOBS_OF_A_LEVEL * int(max(self.levels)))  # the same at each level: ends weigh the same

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"mode": str(self.mode), "levels": [plain_level(level) for level in self.levels]}
        facts |= {name: getattr(self, name) for name in ("jobs", "duration", "timeout", "warmup", "same_seeds", "seed")}
        if self.mode is Mode.BOOKS:
            facts |= {"pages": self.pages, "parallel_pages": self.parallel_pages}
        if self.mode is Mode.OPEN:
            facts |= {"arrivals": "even" if self.even_arrivals else "poisson"}
        return facts


def read_levels(text: str, option: str, *, whole: bool) -> tuple[float, ...]:
    """`4`, `1,2,4,8` or `1..8`: one level, or the steps of a ramp, in the language of sweeps."""
    try:
        values = [token.text for token in parse(text, read_lines=_refuse, draw=_refuse)]
        levels = tuple(int(value) if whole else float(value) for value in values)
    except (BadValues, ValueError) as error:
        reason = str(error) if isinstance(error, BadValues) else f"{text!r} is not a list of numbers"
        raise BadPlan(f"{option}: {reason}; write 4, or 1,2,4,8 or 1..8 for a ramp") from None
    if len(levels) > MOST_LEVELS or any(level <= 0 or level != level or level > 1e6 for level in levels):
        raise BadPlan(f"{option}: levels are numbers above 0, at most {MOST_LEVELS} of them")
    if list(levels) != sorted(set(levels)):
        raise BadPlan(f"{option}: the levels of a ramp go up, each once; this is {text!r}")
    return levels


def read_rates(text: str) -> tuple[float, ...]:
    """Prompts a minute: `20`, `20/min`, `0.5/s`, or steps such as `10..60:10`."""
    number, slash, unit = text.partition("/")
    if slash and unit not in ("s", "min"):
        raise BadPlan(f"--rate: {text!r} has the unit {unit!r}: write 20/min or 0.5/s")
    factor = 60.0 if unit == "s" else 1.0
    return tuple(level * factor for level in read_levels(number, "--rate", whole=False))


def _refuse(name_or_count: str | int) -> NoReturn:
    raise BadValues(f"@FILE and random:COUNT cannot stand here ({name_or_count})")


def plain_level(level: float) -> float:
    """A whole number as an int, so that reports write 4 and not 4.0."""
    return int(level) if level == int(level) else level
