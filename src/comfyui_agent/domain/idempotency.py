"""A wish that may be sent twice: what became of it the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Begun:
    """Nobody asked for this before: go on, then finish or drop the wish."""


@dataclass(frozen=True)
class Repeated:
    """It was done before; this was the answer."""

    status: int
    answer: str


@dataclass(frozen=True)
class Busy:
    """Somebody who is alive is at it."""


@dataclass(frozen=True)
class Different:
    """The key was used for another wish."""


@dataclass(frozen=True)
class TakenOver:
    """Somebody died over it. It is the caller's now; `made` is what was to be made, and may be there already."""

    made: str


Beginning: TypeAlias = Begun | Repeated | Busy | Different | TakenOver
"""What is found at the beginning of a wish."""
