"""An attempt: one run of a job, under one prompt id, at one server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NewType

from comfyui_agent.domain.rows import parsed

AttemptId = NewType("AttemptId", int)

DONE = "done"
"""The outcome of an attempt that gave the result; every other outcome is a failure class."""


@dataclass(frozen=True)
class Attempt:
    """One run. It is open, and its prompt may be taken over, until it has an outcome."""

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
    """What was filled in for the server, by place."""

    def as_json(self) -> dict[str, Any]:
        """The row as scripts read it, what is JSON as objects."""
        return asdict(self) | {"error": parsed(self.error), "sent": parsed(self.sent)}
