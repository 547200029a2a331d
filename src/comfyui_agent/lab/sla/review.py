"""All targets held against all reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.reports import Report, as_number
from comfyui_agent.lab.pages.quantities import listed
from comfyui_agent.lab.sla.evidence import Evidence
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.lab.sla.recovery import judge_recovery
from comfyui_agent.lab.sla.spike_target import judge_spikes
from comfyui_agent.lab.sla.verdicts import Finding, Target, TargetVerdict, overall, wanted_of, worst

SIMULATED = "simulated"
NO_LOAD = "None of the reports is a load test without faults: e3 loadtest makes one."
UNTRIED = {
    Target.THROUGHPUT: NO_LOAD,
    Target.CONCURRENCY: "None of the reports is a load test with books: e3 loadtest --books makes one.",
    Target.LATENCY: NO_LOAD,
    Target.ERRORS: NO_LOAD,
    Target.RECOVERY: "None of the reports made a fault to recover from: e3 chaos makes one.",
    Target.SPIKES: NO_LOAD,
}


@dataclass(frozen=True)
class Reviewed:
    """A report that was judged, and what a reader should know about it."""

    report: Report
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": str(self.report.path),
            "kind": str(self.report.kind),
            "started_at": self.report.environment.get("started_at"),
            "workflow": self.report.workflow.get("name"),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Review:
    """The verdict on each target, in the order in which they are written down, and on the whole."""

    findings: tuple[Finding, ...]
    reports: tuple[Reviewed, ...]

    @property
    def verdict(self) -> TargetVerdict:
        return overall(self.findings)

    def fails(self, *, strict: bool) -> bool:
        """Whether this is a bad verdict; strictly, what was not measured is bad as well."""
        return self.verdict is TargetVerdict.MISSED or (strict and self.verdict is TargetVerdict.NOT_MEASURED)

    @property
    def sentence(self) -> str:
        """How it stands, in one sentence."""
        names = {verdict: self._named(verdict) for verdict in TargetVerdict}
        if self.verdict is TargetVerdict.MET:
            return f"All {len(self.findings)} targets are met."
        not_measured = f"not measured: {names[TargetVerdict.NOT_MEASURED]}" if names[TargetVerdict.NOT_MEASURED] else ""
        met = sum(finding.verdict is TargetVerdict.MET for finding in self.findings)
        counted = f"{met} of {len(self.findings)} targets are met"
        if self.verdict is TargetVerdict.NOT_MEASURED:
            return f"Nothing is missed, {counted}; {not_measured}."
        return f"Missed: {names[TargetVerdict.MISSED]}. {counted}{'; ' if not_measured else ''}{not_measured}."

    @property
    def advice(self) -> str:
        """What these reports can judge, and what it takes to judge the rest; empty if nothing is left to judge."""
        left = [finding for finding in self.findings if finding.verdict is TargetVerdict.NOT_MEASURED]
        judged = [finding.target.label.lower() for finding in self.findings if finding not in left]
        few = [finding for finding in left if finding.jobs_needed is not None]
        needs = [f"{finding.jobs_needed} jobs for {finding.target.label.lower()}" for finding in few]
        if few:
            needs[-1] += f" (e3 loadtest --jobs {max(finding.jobs_needed or 0 for finding in few)})"
        commands = {Target.CONCURRENCY: "e3 loadtest --books {0:g}", Target.RECOVERY: "e3 chaos all"}
        for finding in left:
            if finding.target in commands:
                needs.append(f"{commands[finding.target].format(finding.wanted)} for {finding.target.label.lower()}")
        if not needs:
            return ""
        return f"This judges {listed(judged) if judged else 'no target'}. For the rest: {', '.join(needs)}."

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "targets": [finding.as_json() for finding in self.findings],
            "reports": [reviewed.as_json() for reviewed in self.reports],
        }

    def _named(self, verdict: TargetVerdict) -> str:
        return ", ".join(finding.target.label.lower() for finding in self.findings if finding.verdict is verdict)


def review(evidence: Sequence[Evidence], targets: Sla) -> Review:
    """Judge each report for what it measures; of several on one target the worst counts."""
    found: dict[Target, list[tuple[str, Finding]]] = {target: [] for target in Target}
    reviewed = []
    for each in evidence:
        spikes, notes = judge_spikes(each.report, each.logs, targets)
        for finding in (*judge_load(each.report, targets), judge_recovery(each.report, targets), spikes):
            if finding is not None:
                found[finding.target].append((each.report.name, finding))
        reviewed.append(Reviewed(each.report, (*_notes_on(each.report, targets), *notes)))
    return Review(tuple(_decisive(target, found[target], targets) for target in Target), tuple(reviewed))


def _decisive(target: Target, found: Sequence[tuple[str, Finding]], targets: Sla) -> Finding:
    """The finding that counts; it says whose it is where it stands against others."""
    if not found:
        return Finding(target, wanted_of(target, targets), None, TargetVerdict.NOT_MEASURED, UNTRIED[target])
    finding = worst([each for _, each in found])
    name = next(name for name, each in found if each is finding)
    return replace(finding, sentence=f"{name}: {finding.sentence}") if len(found) > 1 else finding


def _notes_on(report: Report, targets: Sla) -> list[str]:
    notes = []
    if report.is_partial:
        notes.append("the run was stopped before its end")
    if any(SIMULATED in str(server).lower() for server in report.servers):
        notes.append("it was measured on the simulator: it says nothing about a graphics card")
    failed = [str(each.get("scenario")) for each in report.results if each.get("verdict") == "failed"]
    if failed:
        notes.append(f"scenarios that failed: {', '.join(failed)}")
    written = {str(target): as_number(report.targets.get(str(target))) for target in Target}
    for name, value in written.items():
        judged_by = getattr(targets, name, None)
        if value is not None and judged_by is not None and value != float(judged_by):
            notes.append(f"when it was measured, {name} was {value:g}; it is judged by {float(judged_by):g}")
    return notes
