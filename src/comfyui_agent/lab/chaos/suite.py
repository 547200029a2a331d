"""The five scenarios of `e3 chaos`: how they are run, and their report."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.chaos.bad_pages import gpu_oom, prompt_validation
from comfyui_agent.lab.chaos.bad_servers import artificial_latency, comfyui_crash, network_blip
from comfyui_agent.lab.chaos.findings import Findings, ScenarioOutcome, Skipped, judge
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox, open_sandbox
from comfyui_agent.lab.measurement.machine import RunClock, environment_of, server_facts
from comfyui_agent.lab.payloads import PayloadError
from comfyui_agent.lab.reports.chaos import ChaosReport, ChaosSummary, PageCounts, ScenarioResult
from comfyui_agent.lab.reports.environment import ReportKind, ServerFacts
from comfyui_agent.store.errors import StoreError


@dataclass(frozen=True)
class Scenario:
    """A fault, and what an agent must do about it. `flags` are those of the simulator, where one stands in."""

    name: str
    trigger: str
    expected: str
    run: Callable[[Sandbox, Findings], Awaitable[None]]
    flags: tuple[str, ...] = ()


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "prompt-validation",
            "a page that the server rejects",
            "it is tried once more, then marked as needing regeneration; the other pages are done",
            prompt_validation,
            ("--render-seconds", "0.1"),
        ),
        Scenario(
            "gpu-oom",
            "a page that needs more memory than there is",
            "memory is freed and seen free before the page is tried again, after a longer wait",
            gpu_oom,
            ("--render-seconds", "0.1", "--vram-gb", "8", "--held-gb", "3.5"),
        ),
        Scenario(
            "network-blip",
            "answers and the websocket are lost for a while",
            "questions are asked again, every page is done, and none is rendered twice",
            network_blip,
            ("--render-seconds", "0.25"),
        ),
        Scenario(
            "comfyui-crash",
            "the server is killed while it renders",
            "an alert is given, what was lost is requeued without being charged, and every page is done",
            comfyui_crash,
            ("--render-seconds", "0.5"),
        ),
        Scenario(
            "artificial-latency",
            "every page takes longer",
            "p95 rises by as much, no page is given up or tried twice",
            artificial_latency,
            ("--render-seconds", "0.1"),
        ),
    )
}
SETS = {"all": tuple(SCENARIOS), "quick": ("prompt-validation", "network-blip")}
"""The quick set is for every week; all of them run before a release or after a new driver."""


def find_scenarios(names: Sequence[str]) -> list[Scenario]:
    """The scenarios that names and names of sets stand for, each once. KeyError for an unknown name."""
    wanted = dict.fromkeys(each for name in names for each in SETS.get(name, (name,)))
    return [SCENARIOS[name] for name in wanted]


@dataclass
class Suite:
    plan: ChaosPlan
    sla: Sla
    clock: RunClock = field(default_factory=RunClock)
    results: list[ScenarioResult] = field(default_factory=list)
    servers: list[ServerFacts] = field(default_factory=list)
    is_partial: bool = False

    def report(self) -> ChaosReport:
        passed, failed, skipped = (sum(each.verdict == outcome for each in self.results) for outcome in ScenarioOutcome)
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
        environment = environment_of(ReportKind.CHAOS, self.clock, sla=self.sla.model_dump(), **facts)
        return ChaosReport(summary=summary, results=self.results, environment=environment)


async def run_scenario(
    scenario: Scenario,
    plan: ChaosPlan,
    folder: Path,
    sla: Sla,
    look: Callable[[Sandbox], Awaitable[None]] | None = None,
) -> ScenarioResult:
    """Run one scenario in a folder of its own; an error becomes a failed result. `look` gets the sandbox before its
    end."""
    findings = Findings(
        scenario=scenario.name, expected=scenario.expected, recovery_sec=None, checks=[], stages=[], jobs=PageCounts()
    )
    began = time.monotonic()
    try:
        async with open_sandbox(plan, folder, scenario.flags) as sandbox:
            await scenario.run(sandbox, findings)
            findings.jobs = await sandbox.counts()
            if look is not None:
                await look(sandbox)
        outcome, reason = judge(findings, sla.recovery_seconds)
    except Skipped as error:
        outcome, reason = ScenarioOutcome.SKIPPED, str(error)
    except (ComfyError, PayloadError, StoreError, RuntimeError, OSError, ValueError) as error:
        message = error.message if isinstance(error, ComfyError) else str(error)
        outcome, reason = ScenarioOutcome.FAILED, f"it could not be run: {printable(message)}"
    findings.verdict, findings.reason = str(outcome), reason
    findings.seconds = round(time.monotonic() - began, 3)
    findings.stages.sort(key=lambda stage: stage.seconds or 0.0)
    return findings


async def facts_of(sandbox: Sandbox) -> ServerFacts:
    async with sandbox.client() as client:
        return await server_facts(client)
