"""An attempt: one run of a job, under one prompt id, at one server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NewType

from comfyui_agent.domain.texts import parsed

AttemptId = NewType("AttemptId", int)

DONE = "done"
"""The outcome of an attempt that gave the result. Every other outcome is a failure class."""


@dataclass(frozen=True)
class Attempt:
    """One run. While it has no outcome it is open, and another agent may adopt its prompt."""

    id: AttemptId
    number: int
    server: str | None
    prompt_id: str | None
    worker_id: str | None
    started_at: str | None
    running_seconds: float | None
    ended_at: str | None
    outcome: str | None
    error: str | None
    sent: str | None = None
    """The values filled in for the server, by place, as JSON."""

    def as_json(self) -> dict[str, Any]:
        """The row for scripts, with JSON columns as objects."""
        return asdict(self) | {"error": parsed(self.error), "sent": parsed(self.sent)}
