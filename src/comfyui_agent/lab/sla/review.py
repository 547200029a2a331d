"""All targets held against all reports that were named on the command line, and the verdicts as JUnit XML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.quantities import listed
from comfyui_agent.lab.reports.chaos import ChaosReport, ScenarioResult
from comfyui_agent.lab.reports.fields import as_number
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport, read_report
from comfyui_agent.lab.reports.sla import Finding, ReviewedReport, Target, TargetVerdict, overall, quantity, worst
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.lab.sla.spikes import judge_spikes

SIMULATED = "simulated"
NO_LOAD = "None of the reports is a load test without faults: e3 loadtest makes one."
UNTRIED = {
    Target.CONCURRENCY: "None of the reports is a load test with books: e3 loadtest --books makes one.",
    Target.RECOVERY: "None of the reports made a fault to recover from: e3 chaos makes one.",
}
NOTHING_BREAKS = frozenset({"prompt-validation", "artificial-latency"})
"""Scenarios after which there is nothing to recover from."""
REPORTS = ("load*.json", "chaos*.json")
NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Evidence:
    report: LoadReport | ChaosReport
    logs: tuple[Path, ...]


def gather(named: Sequence[Path], log: Path | None, root: Path) -> list[Evidence]:
    """The reports, also those of folders, each once, with the log that was named, else the logs beside them, else the
    log that they name. BadReport if one cannot be read."""
    if log is not None and not log.is_file():
        raise BadReport(f"there is no log {log}")
    paths: dict[Path, Path] = {}
    for path in named:
        found = [path]
        if path.is_dir():
            found = sorted(each for pattern in REPORTS for each in path.glob(pattern) if each.is_file())
            if not found:
                raise BadReport(f"{path} holds no report: load_*.json or chaos_*.json were looked for")
        for each in found:
            paths.setdefault(each.resolve(), each)
    reports = [read_report(path) for path in paths.values()]
    return [Evidence(report, (log,) if log is not None else _logs_of(report, root)) for report in reports]


def _logs_of(report: LoadReport | ChaosReport, root: Path) -> tuple[Path, ...]:
    beside = tuple(sorted(path for path in report.path.parent.glob("*.ndjson") if path.is_file()))
    written = report.environment.metrics_log
    if beside or not written or "\0" in written:
        return beside
    return (root / written,) if (root / written).is_file() else ()


@dataclass(frozen=True)
class Review:
    """The verdict on each target, in the order of `Target`, and on the whole."""

    findings: tuple[Finding, ...]
    reports: tuple[ReviewedReport, ...]

    @property
    def verdict(self) -> TargetVerdict:
        return overall(self.findings)

    def fails(self, *, strict: bool) -> bool:
        """Whether a target is missed; with `strict`, a target that was not measured fails as well."""
        return self.verdict is TargetVerdict.MISSED or (strict and self.verdict is TargetVerdict.NOT_MEASURED)

    @property
    def sentence(self) -> str:
        if self.verdict is TargetVerdict.MET:
            return f"All {len(self.findings)} targets are met."
        open_targets = self._named(TargetVerdict.NOT_MEASURED)
        not_measured = f"not measured: {open_targets}" if open_targets else ""
        met = sum(finding.verdict is TargetVerdict.MET for finding in self.findings)
        counted = f"{met} of {len(self.findings)} targets are met"
        if self.verdict is TargetVerdict.NOT_MEASURED:
            return f"Nothing is missed, {counted}; {not_measured}."
        missed = self._named(TargetVerdict.MISSED)
        return f"Missed: {missed}. {counted}{'; ' if not_measured else ''}{not_measured}."

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
            "reports": [report.as_json() for report in self.reports],
        }

    def _named(self, verdict: TargetVerdict) -> str:
        return ", ".join(finding.target.label.lower() for finding in self.findings if finding.verdict is verdict)


def review(evidence: Sequence[Evidence], targets: Sla) -> Review:
    """Judge each report for what it measures. Of several findings on one target the worst counts."""
    found: dict[Target, list[tuple[str, Finding]]] = {target: [] for target in Target}
    reviewed = []
    for each in evidence:
        report, notes = each.report, _notes_on(each.report, targets)
        findings = [judge_recovery(report, targets)]
        if isinstance(report, LoadReport):
            spikes, log_notes = judge_spikes(report, each.logs, targets)
            findings += [*judge_load(report, targets), spikes]
            notes += log_notes
        for finding in findings:
            if finding is not None:
                found[finding.target].append((report.path.name, finding))
        reviewed.append(
            ReviewedReport(
                path=str(report.path),
                kind=str(report.kind),
                started_at=report.environment.started_at,
                workflow=report.environment.workflow.name,
                notes=notes,
            )
        )
    return Review(tuple(_decisive(target, found[target], targets) for target in Target), tuple(reviewed))


def _decisive(target: Target, found: Sequence[tuple[str, Finding]], targets: Sla) -> Finding:
    """The finding that counts. Where there are several, its sentence names its report."""
    if not found:
        return Finding.on(target, targets, None, TargetVerdict.NOT_MEASURED, UNTRIED.get(target, NO_LOAD))
    finding = worst([each for _, each in found])
    name = next(name for name, each in found if each is finding)
    return finding.model_copy(update={"sentence": f"{name}: {finding.sentence}"}) if len(found) > 1 else finding


def _notes_on(report: LoadReport | ChaosReport, targets: Sla) -> list[str]:
    notes = []
    if report.is_partial:
        notes.append("the run was stopped before its end")
    if any(SIMULATED in str(server).lower() for server in report.environment.servers):
        notes.append("it was measured on the simulator: it says nothing about a graphics card")
    if isinstance(report, ChaosReport):
        failed = [each.scenario for each in report.results if each.verdict == "failed"]
        notes += [f"scenarios that failed: {', '.join(failed)}"] if failed else []
    for name in Sla.model_fields:
        then, now = as_number(report.environment.sla.get(name)), float(getattr(targets, name))
        if then is not None and then != now:
            notes.append(f"when it was measured, {name} was {then:g}; it is judged by {now:g}")
    return notes


def judge_recovery(report: LoadReport | ChaosReport, targets: Sla) -> Finding | None:
    """The longest time from a fault to work that goes on; None if no fault was made. No recovery is a miss."""
    scenarios = _scenarios(report)
    if not scenarios:
        return None
    known = {_name(each): each.recovery_sec for each in scenarios if each.recovery_sec is not None}
    slowest = max(known, key=lambda name: known[name], default="")
    never = [
        each
        for each in scenarios
        if each.recovery_sec is None and each.verdict == "failed" and _name(each) not in NOTHING_BREAKS
    ]
    if never:
        reason = " ".join((never[0].reason or "no reason was noted").split()).rstrip(".")
        why = f"{_name(never[0])} failed, and no recovery was seen: {reason}."
        return Finding.on(Target.RECOVERY, targets, known.get(slowest), TargetVerdict.MISSED, why)
    if not known:
        why = f"No recovery was measured by {', '.join(map(_name, scenarios))}."
        return Finding.on(Target.RECOVERY, targets, None, TargetVerdict.NOT_MEASURED, why)
    seen = f"{slowest} took {quantity(known[slowest], Target.RECOVERY, targets.recovery_seconds)} to recover"
    seen += f", the longest of {len(known)} scenarios" if len(known) > 1 else ""
    skipped = [_name(each) for each in scenarios if each.verdict == "skipped"]
    if skipped and not report.is_partial and known[slowest] <= targets.recovery_seconds:
        seen += f"; skipped: {', '.join(skipped)}"
    return Finding.judge(Target.RECOVERY, targets, known[slowest], seen, is_partial=report.is_partial)


def _scenarios(report: LoadReport | ChaosReport) -> list[ScenarioResult]:
    if isinstance(report, ChaosReport):
        return report.results
    scenario, seconds = report.summary.scenario, report.summary.recovery_sec
    if scenario is not None:
        return [scenario.model_copy(update={"recovery_sec": seconds})]
    return [] if seconds is None else [ScenarioResult(scenario="the fault", recovery_sec=seconds)]


def _name(scenario: ScenarioResult) -> str:
    return scenario.scenario[:60] or "a scenario"


def as_junit(review: Review, *, strict: bool) -> str:
    """What CI systems read: a test case a target. A missed one fails; with `strict`, one not measured fails too."""
    loader = PackageLoader("comfyui_agent.lab.sla")
    templates = Environment(
        loader=loader, autoescape=True, trim_blocks=True, keep_trailing_newline=True, finalize=_clean
    )
    missed, open_ones = (
        [finding for finding in review.findings if finding.verdict is verdict]
        for verdict in (TargetVerdict.MISSED, TargetVerdict.NOT_MEASURED)
    )
    return templates.get_template("junit.xml").render(
        findings=review.findings,
        reports=review.reports,
        failed=missed + open_ones if strict else missed,
        skipped=[] if strict else open_ones,
        notes=[f"{report.name}: {note}" for report in review.reports for note in report.notes],
    )


def _clean(value: Any) -> str:
    """A text that XML can hold: control characters are shown, not written."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(str(value)))
