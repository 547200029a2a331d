"""The lines that a load test writes to the metrics log."""

from __future__ import annotations

import contextlib
import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from comfyui_agent.domain.events import EventName
from comfyui_agent.events.log import append, end_last_line
from comfyui_agent.lab.reports.load import Row


class LoadLog:
    """Writes a line for each prompt that ended. After a failure it writes no more and keeps the reason in `trouble`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = secrets.token_hex(4)
        self.trouble: str | None = None
        with contextlib.suppress(OSError):
            end_last_line(path)
        self._write(EventName.LOAD_STARTED)

    def ended(self, row: Row) -> None:
        facts: dict[str, Any] = {
            "prompt_id": row.prompt_id,
            "server": row.server,
            "failure_class": row.failure_class,
            "duration_sec": _rounded(row.exec_sec if row.is_completed else row.duration_sec),
            "wait_sec": _rounded(row.queue_sec),
            "message": row.error,
        }
        self._write(EventName.JOB_DONE if row.is_completed else EventName.JOB_FAILED, **facts)

    def finish(self) -> None:
        self._write(EventName.LOAD_ENDED)

    def _write(self, event: EventName, **facts: Any) -> None:
        if self.trouble is not None:
            return
        line = {"timestamp": _now(), "event": str(event), "load_test": self.run_id, **facts}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append(self.path, {key: value for key, value in line.items() if value is not None})
        except OSError as error:
            self.trouble = f"the metrics log {self.path} cannot be written: {error.strerror or error}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
