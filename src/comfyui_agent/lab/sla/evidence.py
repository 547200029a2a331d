"""The reports that were named on the command line, and their logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport, read_report

REPORTS = ("load*.json", "chaos*.json")
LOGS = "*.ndjson"


@dataclass(frozen=True)
class Evidence:
    """A report, and the metrics logs of its time."""

    report: LoadReport | ChaosReport
    logs: tuple[Path, ...]


def gather(named: Sequence[Path], log: Path | None, root: Path) -> list[Evidence]:
    """The reports, also those of folders, each once. BadReport if one cannot be read.

    A log that is named counts for all of them. Without one, the logs beside a report are taken, else the log that
    the report names, relative to the workspace.
    """
    if log is not None and not log.is_file():
        raise BadReport(f"there is no log {log}")
    paths: dict[Path, Path] = {}
    for path in named:
        for each in _reports_in(path) if path.is_dir() else [path]:
            paths.setdefault(each.resolve(), each)
    reports = [read_report(path) for path in paths.values()]
    return [Evidence(report, (log,) if log is not None else _logs_of(report, root)) for report in reports]


def _reports_in(folder: Path) -> list[Path]:
    found = sorted(path for pattern in REPORTS for path in folder.glob(pattern) if path.is_file())
    if not found:
        raise BadReport(f"{folder} holds no report: load_*.json or chaos_*.json were looked for")
    return found


def _logs_of(report: LoadReport | ChaosReport, root: Path) -> tuple[Path, ...]:
    beside = tuple(sorted(path for path in report.path.parent.glob(LOGS) if path.is_file()))
    if beside:
        return beside
    written = report.environment.metrics_log
    if not written or "\0" in written:
        return ()
    place = root / written
    return (place,) if place.is_file() else ()
