"""Servers that get no work because people paused them or a prompt there does not end."""

from __future__ import annotations

from dataclasses import dataclass

from comfyui_agent.domain.texts import TextEnum


class ServerState(TextEnum):
    """What people said about a server. In each state it gets nothing new."""

    PAUSED = "paused"
    """Its prompts go on, and their results are collected."""
    DRAINING = "draining"
    """Waiting prompts are withdrawn, running ones finish."""
    DRAINED = "drained"
    """It has no prompts of ours."""


@dataclass(frozen=True)
class ServerInState:
    """A server with a state, and whether it may have runs without an outcome."""

    server: str
    state: ServerState
    has_runs: bool


@dataclass(frozen=True)
class StuckPrompt:
    """A prompt that neither ends nor can be interrupted. Its server is stuck."""

    prompt_id: str
    server: str
    reason: str
    since: str


@dataclass(frozen=True)
class LostServer:
    """A server that does not answer, and how many jobs wait because of that."""

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
        """The time of day."""
        return self.since[11:19]


STUCK_REMEDY = "a prompt there does not end and cannot be interrupted: restart that ComfyUI"


@dataclass(frozen=True)
class ServerUse:
    """The models that a server has loaded, how often it loaded others, stayed with them and overtook older jobs so,
    and why it has no work; null if it has, or gets some."""

    loaded: str | None
    since: str | None
    loads: int
    stays: int
    overtakes: int
    unused: str | None

    @property
    def summary(self) -> str:
        loaded = f"has {self.loaded} loaded since {(self.since or '')[11:19]} UTC" if self.loaded else ""
        counts = f"{self.loads} loads, {self.stays} stays, {self.overtakes} overtakes" if self.loads else ""
        return "; ".join(filter(None, (loaded, counts, f"not used: {self.unused}" if self.unused else "")))
