"""What is known of each prompt of a load test."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from comfyui_agent.lab.measurement.moments import utc_text


class RowStatus(str, Enum):
    """How a prompt ended. Every row counts under exactly one of them."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt, from the post to its result. Times are seconds; what was not measured is None."""

    index: int
    prompt_id: str
    status: RowStatus
    duration_sec: float | None = None
    queue_sec: float | None = None
    exec_sec: float | None = None
    transfer_sec: float | None = None
    cached: bool = False
    error: str | None = None
    failure_class: str | None = None
    server: str = ""
    workflow: str = ""
    level: float = 0.0
    started_at: str = ""
    ended_at: str = ""
    seconds: float = 0.0
    """When it was sent, since the run began."""
    images: int = 0
    bytes: int = 0

    @property
    def is_completed(self) -> bool:
        return self.status is RowStatus.COMPLETED

    @property
    def ended_seconds(self) -> float:
        return self.seconds + (self.duration_sec or 0.0)

    def as_json(self) -> dict[str, Any]:
        return {key: _rounded(value) for key, value in (asdict(self) | {"status": str(self.status)}).items()}


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


class RunClock:
    """The time of one run: seconds since it began, and the same moments by the calendar."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_at = time.time()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def seconds_of(self, moment: float) -> float:
        """A monotonic moment as seconds of this run."""
        return moment - self._began

    def seconds_of_time(self, moment: float) -> float:
        """A moment by the calendar, in seconds since the epoch, as seconds of this run."""
        return moment - self._began_at

    def at(self, seconds: float) -> str:
        """UTC, as ISO 8601 writes it."""
        return utc_text(self._began_at + seconds)
