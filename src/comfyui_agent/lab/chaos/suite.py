"""Runs scenarios one after another, and makes their report."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.chaos.findings import Findings, ScenarioOutcome, Skipped, judge
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox, open_sandbox
from comfyui_agent.lab.chaos.scenarios import Scenario
from comfyui_agent.lab.load.document import environment_of
from comfyui_agent.lab.measurement.machine import server_facts
from comfyui_agent.lab.measurement.moments import RunClock
from comfyui_agent.lab.payloads import PayloadError
from comfyui_agent.lab.reports.chaos import ChaosReport, ChaosSummary, PageCounts, ScenarioResult
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.kinds import ReportKind
from comfyui_agent.store.errors import StoreError


@dataclass
class Suite:
    """The scenarios that were run, with their results."""

    plan: ChaosPlan
    sla: Sla
    clock: RunClock = field(default_factory=RunClock)
    results: list[ScenarioResult] = field(default_factory=list)
    servers: list[ServerFacts] = field(default_factory=list)
    is_partial: bool = False

    def report(self) -> ChaosReport:
        passed, failed, skipped = (sum(each.verdict == word for each in self.results) for word in ScenarioOutcome)
        verdict = str(ScenarioOutcome.FAILED if failed or not passed else ScenarioOutcome.PASSED)
        if self.is_partial and passed and not failed:
            verdict = "partial"
        recoveries = [each.recovery_sec for each in self.results if each.recovery_sec is not None]
        summary = ChaosSummary(
            kind=ReportKind.CHAOS,
            total=len(self.results),
            passed=passed,
            failed=failed,
            skipped=skipped,
            verdict=verdict,
            recovery_sec=max(recoveries, default=None),
            wall_clock_sec=round(self.clock.seconds, 3),
            partial=self.is_partial,
        )
        plan = self.plan
        parameters = {
            "scenarios": [each.scenario for each in self.results],
            "server": None if plan.url is None else "given",
            "quick": plan.is_quick,
            "pages": plan.pages,
            "patience": plan.patience,
            "netem": plan.netem,
        }
        facts = {"servers": self.servers, "workflow": plan.payload.facts, "parameters": parameters}
        environment = environment_of(ReportKind.CHAOS, self.clock, self.sla, **facts)
        return ChaosReport(summary=summary, results=self.results, environment=environment)


async def run_scenario(
    scenario: Scenario,
    plan: ChaosPlan,
    folder: Path,
    sla: Sla,
    look: Callable[[Sandbox], Awaitable[None]] | None = None,
) -> ScenarioResult:
    """Run one scenario in a folder of its own. An error becomes a failed result.

    `look` is awaited with the sandbox before it is taken down.
    """
    findings, counts = Findings(), PageCounts()
    began = time.monotonic()
    try:
        async with open_sandbox(plan, folder, scenario.flags) as sandbox:
            await scenario.run(sandbox, findings)
            counts = await sandbox.counts()
            if look is not None:
                await look(sandbox)
        outcome, reason = judge(findings, sla.recovery_seconds)
    except Skipped as error:
        outcome, reason = ScenarioOutcome.SKIPPED, str(error)
    except (ComfyError, PayloadError, StoreError, RuntimeError, OSError, ValueError) as error:
        message = error.message if isinstance(error, ComfyError) else str(error)
        outcome, reason = ScenarioOutcome.FAILED, f"it could not be run: {printable(message)}"
    return ScenarioResult(
        scenario=scenario.name,
        verdict=outcome,
        reason=reason,
        expected=scenario.expected,
        seconds=round(time.monotonic() - began, 3),
        recovery_sec=findings.recovery_sec,
        checks=findings.checks,
        stages=sorted(findings.stages, key=lambda stage: stage.seconds or 0.0),
        jobs=counts,
    )


async def facts_of(sandbox: Sandbox) -> ServerFacts:
    async with sandbox.client() as client:
        return await server_facts(client)
