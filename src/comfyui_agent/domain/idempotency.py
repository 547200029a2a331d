"""Requests with an idempotency key: what is known about a key when a request arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Begun:
    """The key is new. Carry the request out, then finish or drop it."""


@dataclass(frozen=True)
class Repeated:
    """The request was carried out before. This was the answer."""

    status: int
    answer: str


@dataclass(frozen=True)
class Busy:
    """A live process is carrying it out."""


@dataclass(frozen=True)
class Different:
    """The key was used for another request."""


@dataclass(frozen=True)
class TakenOver:
    """The process that carried it out died. The caller goes on; `made` may exist already."""

    made: str


Beginning: TypeAlias = Begun | Repeated | Busy | Different | TakenOver
