"""Servers that people take out of work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Halt(str, Enum):
    """How far a server is out of work. In each of these it gets nothing new."""

    PAUSED = "paused"
    """What it has runs on and is brought home."""
    DRAINING = "draining"
    """What waits there is taken back, what runs there finishes."""
    DRAINED = "drained"
    """Nothing of ours is there any more."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class HaltedServer:
    """A server that is out of work, and whether a run without an outcome may still be there."""

    server: str
    halt: Halt
    has_runs: bool
