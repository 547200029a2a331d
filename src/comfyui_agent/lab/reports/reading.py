"""Reading report files back, or saying in one line what else a file is."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.environment import ReportKind
from comfyui_agent.lab.reports.load import LoadReport

LARGEST = 512 * 1024 * 1024
SHAPES = {"summary": dict, "results": list, "environment": dict}
MODELS: dict[str, type[LoadReport | ChaosReport]] = {"loadtest": LoadReport, "chaos": ChaosReport}
ENTRY = re.compile(r'\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')
ENTRY_END = re.compile(r"\s*[,}]")


class BadReport(ValueError):
    """A file that is no report of the lab, in one line."""


def read_report(path: Path) -> LoadReport | ChaosReport:
    """The load test or chaos run in a file. BadReport if the file is missing, not JSON, too large or something else."""
    document = _read_json(path)
    if not isinstance(document, dict):
        raise BadReport(f"{path} is not a report: a report is a JSON object with summary, results and environment")
    _check_shape(path, document)
    kind = document["environment"].get("kind") or document["summary"].get("kind") or ReportKind.LOAD.value
    if kind not in list(MODELS):
        raise BadReport(f"{path} is a report of the kind {str(kind)[:60]!r}: a load test or a chaos report is wanted")
    if not all(isinstance(each, dict) for each in document["results"]):
        raise BadReport(f"{path} is not a report: its results are not a list of objects")
    try:
        return MODELS[kind].model_validate({**document, "path": path})
    except ValidationError as error:
        part, name = error.errors()[0]["loc"][:2]
        raise BadReport(f"{path} is not a whole report: its {part} has no {name}") from None


def read_head(text: str) -> dict[str, Any]:
    """The first entries of a JSON object whose text may be cut off anywhere: those that are whole."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    entry = ENTRY.match(text) if text.lstrip().startswith("{") else None
    while entry is not None:
        try:
            value, end = decoder.raw_decode(text, entry.end())
            key = json.loads(entry.group(1))
        except (ValueError, RecursionError):
            break
        if not ENTRY_END.match(text, end):  # a number that goes on
            break
        found[key] = value
        entry = ENTRY.match(text, end)
    return found


def _read_json(path: Path) -> Any:
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise BadReport(f"{path} is a folder, not a report")
        if not stat.S_ISREG(found.st_mode):
            raise BadReport(f"{path} is not a plain file")
        if found.st_size > LARGEST:
            raise BadReport(f"{path} is too large for a report: {found.st_size / 1024**2:.0f} MB, at most 512 MB")
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadReport(f"there is no file {path}") from None
    except OSError as error:
        raise BadReport(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        return json.loads(data)
    except RecursionError:
        raise BadReport(f"{path} is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise BadReport(f"{path} is not JSON: {str(error).splitlines()[0]}") from None


def _check_shape(path: Path, document: dict[str, Any]) -> None:
    missing = [key for key, shape in SHAPES.items() if not isinstance(document.get(key), shape)]
    if not missing:
        return
    if "gpu_trace" in document and "nodes" in document:
        raise BadReport(f"{path} is a profile (e3 profile): a load test or a chaos report is wanted")
    if "total_jobs" in document:
        raise BadReport(f"{path} is the summary of a report alone: the whole report is wanted")
    raise BadReport(f"{path} is not a report: it has no {' and no '.join(missing)}")
