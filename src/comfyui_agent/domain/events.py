"""What happens, in the words of the metrics log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class EventName(str, Enum):
    """The names that scripts and dashboards rely on. Alerts are for a person to see."""

    JOB_SUBMITTED = "job.submitted"
    JOB_STARTED = "job.started"
    JOB_DONE = "job.done"
    JOB_FAILED = "job.failed"
    JOB_RETRY = "job.retry"
    JOB_CANCELLED = "job.cancelled"
    SERVER_UP = "server.up"
    SERVER_DOWN = "server.down"
    SERVER_DRAINED = "server.drained"
    ALERT_SERVER = "alert.server"
    ALERT_MEMORY = "alert.memory"
    ALERT_DISK = "alert.disk"
    ALERT_FILE = "alert.file"
    ALERT_DATABASE = "alert.database"
    ALERT_POISON = "alert.poison"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Event:
    """One thing that happened. `id` counts up in the order of commits; 0 before it is recorded."""

    name: str
    timestamp: str = ""
    id: int = 0
    job_id: int | None = None
    config_name: str | None = None
    batch_id: str | None = None
    prompt_id: str | None = None
    server: str | None = None
    failure_class: str | None = None
    duration_sec: float | None = None
    wait_sec: float | None = None
    message: str | None = None

    def as_json(self) -> dict[str, Any]:
        """One line of the log: what does not apply is left out."""
        facts: dict[str, Any] = {"timestamp": self.timestamp, "event": self.name, "id": self.id}
        for key in ("job_id", "config_name", "batch_id", "prompt_id", "server", "failure_class", "duration_sec"):
            facts[key] = getattr(self, key)
        facts |= {"wait_sec": self.wait_sec, "message": self.message}
        return {key: value for key, value in facts.items() if value is not None}
