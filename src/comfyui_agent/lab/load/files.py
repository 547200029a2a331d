"""What a load test writes beside its report: lines of the metrics log, and a baseline to compare others with."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from comfyui_agent.domain.events import EventName
from comfyui_agent.events.log import append, end_last_line, rotated
from comfyui_agent.lab.files import file_stem, today, unused, write_json, write_text
from comfyui_agent.lab.reports.environment import Environment as RunEnvironment
from comfyui_agent.lab.reports.load import LoadReport, Row

LOG_NAME = "comfyui_metrics"


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
        seconds = row.exec_sec if row.is_completed else row.duration_sec
        self._write(
            EventName.JOB_DONE if row.is_completed else EventName.JOB_FAILED,
            prompt_id=row.prompt_id,
            server=row.server,
            failure_class=row.failure_class,
            duration_sec=None if seconds is None else round(seconds, 3),
            wait_sec=None if row.queue_sec is None else round(row.queue_sec, 3),
            message=row.error,
        )

    def finish(self) -> None:
        self._write(EventName.LOAD_ENDED)

    def _write(self, event: EventName, **facts: Any) -> None:
        if self.trouble is not None:
            return
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        line = {"timestamp": now, "event": str(event), "load_test": self.run_id, **facts}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append(self.path, {key: value for key, value in line.items() if value is not None})
        except OSError as error:
            self.trouble = f"the metrics log {self.path} cannot be written: {error.strerror or error}"


def write_baseline(folder: Path, report: LoadReport, page: str, log: Path, run_id: str) -> Path:
    """Write `load_*.json` with its page, the log of its run and a README. Returns the path of the report."""
    name = unused(folder, f"load_{file_stem(report.environment.workflow.name or '')}", (".json", ".html"))
    write_json(folder / f"{name}.json", report.as_json())
    write_text(folder / f"{name}.html", page)
    kept = folder / f"{LOG_NAME}_{name}.ndjson"
    write_text(kept, "".join(lines_of(log, run_id, report.environment)))
    readme = folder / "README.md"
    before = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else f"# Baseline of {today()}\n"
    write_text(readme, before.rstrip("\n") + "\n\n" + _description(name, report, kept.name))
    return folder / f"{name}.json"


def lines_of(log: Path, run_id: str, environment: RunEnvironment) -> Iterator[str]:
    """The lines of the metrics log that a run wrote, and what agents wrote meanwhile."""
    times = (environment.started_at or "", environment.ended_at or "")
    began, ended = (time.replace("T", " ").rstrip("Z") for time in times)
    for path in [*reversed([*rotated(log)]), *([log] if log.exists() else [])]:
        with path.open(encoding="utf-8", errors="backslashreplace") as file:
            for line in file:
                try:
                    facts = json.loads(line)
                    is_ours = facts.get("load_test") == run_id or began <= facts["timestamp"] <= ended
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
                if is_ours and facts.get("load_test") in (None, run_id):
                    yield line if line.endswith("\n") else line + "\n"


def _description(name: str, report: LoadReport, log_name: str) -> str:
    loader = PackageLoader("comfyui_agent.lab.load")
    templates = Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 - no HTML
    templates.filters |= {"cell": lambda text: " ".join(str(text).replace("|", "\\|").split()), "json": json.dumps}
    figures = report.summary.as_json().items()
    return templates.get_template("baseline.md").render(
        name=name,
        summary=report.summary,
        environment=report.environment,
        machine={key: report.environment.machine.get(key) for key in ("cpu", "cores", "platform")},
        workflow=report.environment.workflow,
        figures={key: value for key, value in figures if isinstance(value, (int, float))},
        log_name=log_name,
    )
