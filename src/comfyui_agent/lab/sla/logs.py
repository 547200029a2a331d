"""How the prompts of a run ended, by the metrics log and by the rows of its report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.domain.events import EventName
from comfyui_agent.events.log import rotated
from comfyui_agent.lab.reports.fields import as_moment
from comfyui_agent.lab.reports.load import LoadReport

FAILURES = frozenset({EventName.JOB_FAILED.value, EventName.JOB_RETRY.value})
"""A run that failed counts, also if its job runs again."""
ENDS = FAILURES | {EventName.JOB_DONE.value}
SLACK_SECONDS = 1.0
"""Lines are written a little after the event."""


@dataclass(frozen=True, order=True)
class End:
    """A run that ended: when (seconds since 1970), how, and why."""

    at: float
    is_failure: bool
    why: str = ""


@dataclass(frozen=True)
class LoggedEnd:
    """A line of the log about an end. Ids are empty where the line has none."""

    end: End
    prompt_id: str
    load_test: str


@dataclass
class Reading:
    """How the prompts of a run ended according to logs, by prompt id where there is one, and what could not be read."""

    ends: dict[str, End] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    bad_lines: int = 0
    troubles: list[str] = field(default_factory=list)


def read_logs(paths: Iterable[Path], report: LoadReport) -> Reading:
    """The ends that logs hold for the time of a run, without those of other load tests.

    A log that cannot be read is listed in `troubles`; it is not an error.
    """
    reading = Reading()
    began, ended = report.environment.began, report.environment.ended
    if began is None or ended is None:
        return reading
    lines: list[LoggedEnd] = []
    for path in _with_rotated(paths, began):
        try:
            with path.open("rb") as file:
                found = _ends_in(file, reading)
                lines += [each for each in found if began <= each.end.at + SLACK_SECONDS <= ended + 2 * SLACK_SECONDS]
            reading.paths.append(path)
        except OSError as error:
            reading.troubles.append(f"{path} cannot be read: {os.strerror(error.errno) if error.errno else error}")
    prompts = {row.prompt_id for row in report.rows if row.prompt_id}
    own = {line.load_test for line in lines if line.prompt_id in prompts} | {report.environment.load_test or "", ""}
    for number, line in enumerate(lines):
        if line.load_test in own:
            reading.ends[f"{line.prompt_id or number} {line.end.is_failure}"] = line.end
    return reading


def ends_of(report: LoadReport, reading: Reading) -> list[End]:
    """All ends of a run, each once: those of the log, then those of the report that the log does not have."""
    logged = {key.rpartition(" ")[0] for key in reading.ends}
    ends = list(reading.ends.values())
    began = report.environment.began if report.has_times else None
    for row in report.rows:
        at = as_moment(row.ended_at)
        if at is None and began is not None:
            at = began + row.ended_seconds
        if at is not None and (not row.prompt_id or row.prompt_id not in logged):
            ends.append(End(at, not row.is_completed, row.failure_class or str(row.status)))
    return ends


def _with_rotated(paths: Iterable[Path], began: float) -> list[Path]:
    """Logs, each after its rotated files that were still written when the run began."""
    found: list[Path] = []
    for path in paths:
        older = [each for each in rotated(path) if each.is_file() and each.stat().st_mtime >= began]
        found += [*reversed(older), path]
    return list(dict.fromkeys(found))


def _ends_in(file: Iterable[bytes], reading: Reading) -> Iterator[LoggedEnd]:
    """Other lines are skipped without being parsed."""
    for line in file:
        if b'"job.' not in line:
            reading.bad_lines += bool(line.strip()) and not line.lstrip().startswith(b"{")
            continue
        try:
            facts = json.loads(line)
            at, event = as_moment(facts["timestamp"]), facts["event"]
            is_end = event in ENDS
        except (ValueError, KeyError, TypeError, RecursionError):
            reading.bad_lines += 1
            continue
        if at is not None and is_end:
            prompt_id, load_test, why = (
                str(facts.get(key) or "") for key in ("prompt_id", "load_test", "failure_class")
            )
            yield LoggedEnd(End(at, event in FAILURES, why[:60]), prompt_id, load_test)
