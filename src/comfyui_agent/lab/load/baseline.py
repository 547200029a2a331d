"""A baseline: a report with the metrics log of its time and a README, kept to be compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comfyui_agent.events.log import rotated
from comfyui_agent.lab.files import file_stem, today, unused, write_json, write_text
from comfyui_agent.lab.reports.environment import Environment, ServerFacts
from comfyui_agent.lab.reports.load import LoadReport

LOG_NAME = "comfyui_metrics"


def baseline_folder(root: Path) -> Path:
    """`infra/observability/baselines/<date>` in a workspace."""
    return root / "infra" / "observability" / "baselines" / today()


def write_baseline(folder: Path, report: LoadReport, page: str, log: Path, run_id: str) -> Path:
    """Write `load_*.json` with its page, the log of its run and a README. Returns the path of the report.

    A second one on the same day stands beside the first, and the README describes both.
    """
    name = unused(folder, f"load_{file_stem(report.environment.workflow.name or '')}", (".json", ".html"))
    write_json(folder / f"{name}.json", report.as_json())
    write_text(folder / f"{name}.html", page)
    kept = folder / f"{LOG_NAME}_{name}.ndjson"
    write_text(kept, "".join(lines_of(log, run_id, report.environment)))
    readme = folder / "README.md"
    before = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else f"# Baseline of {today()}\n"
    write_text(readme, before.rstrip("\n") + "\n\n" + describe(name, report, kept.name))
    return folder / f"{name}.json"


def lines_of(log: Path, run_id: str, environment: Environment) -> Iterator[str]:
    """The lines of the metrics log that a run wrote, and what agents wrote meanwhile."""
    times = (environment.started_at or "", environment.ended_at or "")
    began, ended = (time.replace("T", " ").rstrip("Z") for time in times)
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


def describe(name: str, report: LoadReport, log_name: str) -> str:
    """What was measured on what, as Markdown."""
    summary, environment = report.summary, report.environment
    machine, workflow = environment.machine, environment.workflow
    lines = [f"## {name}", ""]
    if summary.partial:
        lines += ["**Partial: it was stopped before its end.**", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| measured | {environment.started_at} to {environment.ended_at}, E3 {environment.e3} |"]
    cores = f"{machine.get('cores')} cores"
    lines += [f"| this machine | {_cell(machine.get('cpu'))}, {cores}, {_cell(machine.get('platform'))} |"]
    lines += [f"| server | {_cell(_describe_server(server))} |" for server in environment.servers]
    lines += [f"| workflow | {_cell(workflow.name)}, {workflow.nodes} nodes, sha256 `{workflow.sha256}` |"]
    settings = ", ".join(f"{key} {json.dumps(value)}" for key, value in environment.parameters.items())
    lines += [f"| parameters | {_cell(settings)} |"]
    lines += ["", "| metric | value |", "|---|---|"]
    figures = summary.as_json().items()
    lines += [f"| {key} | {value} |" for key, value in figures if isinstance(value, (int, float))]
    if summary.knee is not None:
        lines += [f"| knee | {_cell(summary.knee.reason)} |"]
    lines += [""] + [f"- {_cell(warning)}" for warning in summary.warnings]
    lines += [f"Report `{name}.json`, page `{name}.html`, log `{log_name}`.", ""]
    return "\n".join(lines)


def _describe_server(server: ServerFacts) -> str:
    cards = ", ".join(f"{each.name} ({each.vram_total_mb} MB)" for each in server.devices) or "no device known"
    driver = server.driver or "not known from here"
    versions = f"ComfyUI {server.comfyui_version}, PyTorch {server.pytorch}, Python {server.python}"
    return f"{server.server}: {versions}; {cards}; driver {driver}"


def _cell(text: Any) -> str:
    return " ".join(str(text).replace("|", "\\|").split())
