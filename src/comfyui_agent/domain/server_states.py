"""Servers that get no work: people take them out, or a prompt there does not end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ServerState(str, Enum):
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
class ServerInState:
    """A server that is out of work, and whether a run without an outcome may still be there."""

    server: str
    halt: ServerState
    has_runs: bool


@dataclass(frozen=True)
class StuckPrompt:
    """A prompt that does not end and cannot be interrupted; its server is stuck while it has it."""

    prompt_id: str
    server: str
    reason: str
    since: str


@dataclass(frozen=True)
class LostServer:
    """A server that does not answer, and how many jobs wait for it or another because of that."""

    server: str
    jobs: int
    since: str

    @property
    def words(self) -> str:
        return f"{self.jobs:,} wait{'s' if self.jobs == 1 else ''} for {self.name} (no answer since {self.time} UTC)"

    @property
    def name(self) -> str:
        return self.server.partition("://")[2]

    @property
    def time(self) -> str:
        """Of the day, as people read it."""
        return self.since[11:19]


STUCK_REMEDY = "a prompt there does not end and cannot be interrupted: restart that ComfyUI"
