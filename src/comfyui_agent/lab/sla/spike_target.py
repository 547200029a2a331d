"""What the metrics log says of error spikes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import PARTIAL, SCENARIO
from comfyui_agent.lab.sla.logs import Reading, ends_of, read_logs
from comfyui_agent.lab.sla.spikes import FEWEST_ENDS, Spike, find_spikes


def judge_spikes(report: LoadReport, logs: Sequence[Path], targets: Sla) -> tuple[Finding | None, list[str]]:
    """Whether errors came in spikes during a load test, and notes on its logs.

    None where faults were made on purpose. The logs and the report's own rows are taken together, each prompt once.
    """

    def finding(measured: float | None, verdict: TargetVerdict, sentence: str, needed: int | None = None) -> Finding:
        return Finding.on(Target.SPIKES, targets, measured, verdict, sentence, needed)

    if report.summary.mode == SCENARIO:
        return None, []
    reading = read_logs(logs, report)
    ends = ends_of(report, reading)
    spikes = find_spikes(ends, targets.error_rate)
    notes = _notes(reading, logs)
    seen = f"among {counted(len(ends), 'end')}, {len(reading.ends)} of them told by the metrics log"
    if spikes:
        largest = _sentence(max(spikes, key=lambda spike: spike.failures))
        sentence = f"{counted(len(spikes), 'spike')} {seen}: {largest}."
        return finding(float(len(spikes)), TargetVerdict.MISSED, sentence), notes
    if len(ends) < FEWEST_ENDS:
        known = counted(len(ends), "end with a time is", "ends with a time are")
        few = f"{known} too few to see a spike: {FEWEST_ENDS} are needed."
        return finding(None, TargetVerdict.NOT_MEASURED, few, FEWEST_ENDS), notes
    if report.is_partial:
        return finding(0.0, TargetVerdict.NOT_MEASURED, f"No spike {seen}; {PARTIAL}"), notes
    return finding(0.0, TargetVerdict.MET, f"No spike {seen}."), notes


def _sentence(spike: Spike) -> str:
    why = f", mostly {spike.why}" if spike.why else ""
    return f"{spike.failures} of {spike.ends} failed from {_clock(spike.began)} to {_clock(spike.ended)} UTC{why}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _notes(reading: Reading, logs: Sequence[Path]) -> list[str]:
    notes = list(reading.troubles)
    if not logs:
        notes.append("no metrics log was found: spikes were looked for in the report's own rows")
    elif reading.paths and not reading.ends:
        names = ", ".join(str(path) for path in reading.paths)
        notes.append(f"{names} tells nothing of this run: spikes were looked for in the report's own rows")
    if reading.bad_lines:
        notes.append(f"lines of the metrics log that could not be read: {reading.bad_lines}")
    return notes
