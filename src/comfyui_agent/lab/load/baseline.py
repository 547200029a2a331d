"""A baseline: a report with the log of its time and a page of words, kept to be compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comfyui_agent.events.log import rotated
from comfyui_agent.lab.files import file_stem, today, unused, write_json, write_text

LOG_NAME = "comfyui_metrics"


def baseline_folder(root: Path) -> Path:
    """`infra/observability/baselines/<date>` in a workspace."""
    return root / "infra" / "observability" / "baselines" / today()


def write_baseline(folder: Path, report: Mapping[str, Any], page: str, log: Path, run_id: str) -> Path:
    """Keep a report as `load_*.json` with its page, the log of its run and a README; where the report is.

    A second one on the same day stands beside the first, and the README tells of both.
    """
    name = unused(folder, f"load_{file_stem(report['environment']['workflow']['name'])}", (".json", ".html"))
    write_json(folder / f"{name}.json", report)
    write_text(folder / f"{name}.html", page)
    kept = folder / f"{LOG_NAME}_{name}.ndjson"
    write_text(kept, "".join(lines_of(log, run_id, report["environment"])))
    readme = folder / "README.md"
    before = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else f"# Baseline of {today()}\n"
    write_text(readme, before.rstrip("\n") + "\n\n" + describe(name, report, kept.name))
    return folder / f"{name}.json"


def lines_of(log: Path, run_id: str, environment: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the metrics log that a run wrote, and what agents wrote meanwhile."""
    began, ended = (str(environment[key]).replace("T", " ").rstrip("Z") for key in ("started_at", "ended_at"))
    for path in [*reversed([*rotated(log)]), log]:
        if not path.exists():
            continue
        with path.open(encoding="utf-8", errors="backslashreplace") as file:
            for line in file:
                try:
                    facts = json.loads(line)
                    is_ours = facts.get("load_test") == run_id or began <= facts["timestamp"] <= ended
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
                if is_ours and facts.get("load_test") in (None, run_id):
                    yield line if line.endswith("\n") else line + "\n"


def describe(name: str, report: Mapping[str, Any], log_name: str) -> str:
    """What was measured on what, as Markdown."""
    summary, environment = report["summary"], report["environment"]
    machine, workflow = environment["machine"], environment["workflow"]
    lines = [f"## {name}", ""]
    if summary["partial"]:
        lines += ["**Partial: it was stopped before its end.**", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| measured | {environment['started_at']} to {environment['ended_at']}, E3 {environment['e3']} |"]
    lines += [
        f"| this machine | {_cell(machine.get('cpu'))}, {machine.get('cores')} cores, {_cell(machine['platform'])} |"
    ]
    for server in environment["servers"]:
        lines += [f"| server | {_cell(_server(server))} |"]
    lines += [f"| workflow | {_cell(workflow['name'])}, {workflow['nodes']} nodes, sha256 `{workflow['sha256']}` |"]
    settings = ", ".join(f"{key} {json.dumps(value)}" for key, value in environment["parameters"].items())
    lines += [f"| parameters | {_cell(settings)} |"]
    lines += ["", "| metric | value |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in summary.items() if isinstance(value, (int, float))]
    if summary["knee"]:
        lines += [f"| knee | {_cell(summary['knee']['reason'])} |"]
    lines += [""] + [f"- {_cell(warning)}" for warning in summary["warnings"]]
    lines += [f"Report `{name}.json`, page `{name}.html`, log `{log_name}`.", ""]
    return "\n".join(lines)


def _server(facts: Mapping[str, Any]) -> str:
    cards = ", ".join(f"{each['name']} ({each['vram_total_mb']} MB)" for each in facts["devices"]) or "no device known"
    driver = facts.get("driver") or "not known from here"
    versions = f"ComfyUI {facts['comfyui_version']}, PyTorch {facts['pytorch']}, Python {facts['python']}"
    return f"{facts['server']}: {versions}; {cards}; driver {driver}"


def _cell(text: Any) -> str:
    return " ".join(str(text).replace("|", "\\|").split())
