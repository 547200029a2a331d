"""How the prompts of a run ended, by the metrics log and by the rows of its report."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    """A run that ended: when (seconds since 1970), how, and why. Ids are those of a line of the log, if it has them."""

    at: float
    is_failure: bool
    why: str = ""
    prompt_id: str = ""
    load_test: str = ""


@dataclass(frozen=True)
class RunEnds:
    """How the prompts of a run ended, each once; how many of them are in the logs; and notes on the logs."""

    ends: list[End]
    logged: int
    notes: list[str]


def ends_of(report: LoadReport, logs: Sequence[Path]) -> RunEnds:
    """By the metrics logs, without lines of other load tests; by the report's rows for what the logs lack."""
    began, ended = report.environment.began, report.environment.ended
    lines: list[End] = []
    notes, was_read, bad_lines = [], [], 0
    is_known = began is not None and ended is not None
    since, until = (began or 0.0) - SLACK_SECONDS, (ended or 0.0) + SLACK_SECONDS
    for path in _with_rotated(logs, began or 0.0) if is_known else ():
        try:
            found, bad = _read_log(path)
        except OSError as error:
            notes.append(f"{path} cannot be read: {os.strerror(error.errno) if error.errno else error}")
            continue
        lines += [each for each in found if since <= each.at <= until]
        was_read.append(str(path))
        bad_lines += bad
    prompts = {row.prompt_id for row in report.rows if row.prompt_id}
    own = {line.load_test for line in lines if line.prompt_id in prompts} | {report.environment.load_test or "", ""}
    logged = {
        (line.prompt_id or number, line.is_failure): line for number, line in enumerate(lines) if line.load_test in own
    }
    if not logs:
        notes.append("no metrics log was found: spikes were looked for in the report's own rows")
    elif was_read and not logged:
        names = ", ".join(was_read)
        notes.append(f"{names} tells nothing of this run: spikes were looked for in the report's own rows")
    if bad_lines:
        notes.append(f"lines of the metrics log that could not be read: {bad_lines}")
    ends = _ends_of_rows(report, without={prompt_id for prompt_id, _ in logged})
    return RunEnds([*logged.values(), *ends], len(logged), notes)


def _ends_of_rows(report: LoadReport, without: Collection[object]) -> Iterator[End]:
    began = report.environment.began if report.has_times else None
    for row in report.rows:
        at = as_moment(row.ended_at)
        if at is None and began is not None:
            at = began + row.ended_seconds
        if at is not None and row.prompt_id not in without:
            yield End(at, not row.is_completed, row.failure_class or str(row.status))


def _with_rotated(paths: Iterable[Path], began: float) -> list[Path]:
    """Logs, each after its rotated files that were still written when the run began."""
    found: list[Path] = []
    for path in paths:
        older = [each for each in rotated(path) if each.is_file() and each.stat().st_mtime >= began]
        found += [*reversed(older), path]
    return list(dict.fromkeys(found))


def _read_log(path: Path) -> tuple[list[End], int]:
    """The lines about ends, and how many lines could not be read. Lines about something else are not parsed."""
    found, bad_lines = [], 0
    with path.open("rb") as file:
        for line in file:
            if b'"job.' not in line:
                bad_lines += bool(line.strip()) and not line.lstrip().startswith(b"{")
                continue
            try:
                facts = json.loads(line)
                at, event = as_moment(facts["timestamp"]), facts["event"]
                is_end = event in ENDS
            except (ValueError, KeyError, TypeError, RecursionError):
                bad_lines += 1
                continue
            if at is not None and is_end:
                why, *ids = (str(facts.get(key) or "") for key in ("failure_class", "prompt_id", "load_test"))
                found.append(End(at, event in FAILURES, why[:60], *ids))
    return found, bad_lines
