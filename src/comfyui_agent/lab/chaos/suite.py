"""Running scenarios one after another, and their report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.chaos.sandbox import Sandbox, open_arena
from comfyui_agent.lab.chaos.scenarios import SCENARIOS, Scenario
from comfyui_agent.lab.chaos.target import Ground
from comfyui_agent.lab.chaos.verdicts import Findings, ScenarioOutcome, ScenarioVerdict, Skipped, judge
from comfyui_agent.lab.load.rows import RunClock
from comfyui_agent.lab.measurement.machine import server_facts, this_machine
from comfyui_agent.lab.payloads import PayloadError
from comfyui_agent.store.errors import StoreError


@dataclass
class Suite:
    """The scenarios that were run, and what each came to."""

    ground: Ground
    sla: Sla
    clock: RunClock
    verdicts: list[ScenarioVerdict]
    servers: list[dict[str, Any]]
    is_partial: bool = False

    @property
    def recovery_sec(self) -> float | None:
        times = [each.findings.recovery_sec for each in self.verdicts if each.findings.recovery_sec is not None]
        return max(times, default=None)

    def count(self, word: ScenarioOutcome) -> int:
        return sum(each.word is word for each in self.verdicts)

    def report(self) -> dict[str, Any]:
        failed = self.count(ScenarioOutcome.FAILED) or not self.count(ScenarioOutcome.PASSED)
        verdict = (
            "partial"
            if self.is_partial and not failed
            else str(ScenarioOutcome.FAILED if failed else ScenarioOutcome.PASSED)
        )
        return {
            "summary": {
                "kind": "chaos",
                "total": len(self.verdicts),
                "passed": self.count(ScenarioOutcome.PASSED),
                "failed": self.count(ScenarioOutcome.FAILED),
                "skipped": self.count(ScenarioOutcome.SKIPPED),
                "verdict": verdict,
                "recovery_sec": self.recovery_sec,
                "wall_clock_sec": round(self.clock.seconds, 3),
                "partial": self.is_partial,
            },
            "results": [each.as_json() for each in self.verdicts],
            "environment": {
                "kind": "chaos",
                "e3": __version__,
                "started_at": self.clock.at(0.0),
                "ended_at": self.clock.at(self.clock.seconds),
                "machine": this_machine(),
                "servers": self.servers,
                "workflow": self.ground.payload.as_json(),
                "parameters": {
                    "scenarios": [each.scenario for each in self.verdicts],
                    "server": None if self.ground.url is None else "given",
                    "quick": self.ground.is_quick,
                    "pages": self.ground.pages,
                    "patience": self.ground.patience,
                    "netem": self.ground.netem,
                },
                "sla": self.sla.model_dump(),
            },
        }


async def run_scenario(
    scenario: Scenario, ground: Ground, folder: Path, sla: Sla, look: Callable[[Sandbox], Any] | None = None
) -> ScenarioVerdict:
    """Run one scenario in a folder of its own. Whatever happens, there is a verdict.

    `look` is awaited with the arena before it is taken down.
    """
    findings, counts = Findings(), {}
    began = time.monotonic()
    try:
        async with open_arena(ground, folder, scenario.flags) as arena:
            await scenario.run(arena, findings)
            counts = await arena.counts()
            if look is not None:
                await look(arena)
        word, reason = judge(findings, sla.recovery_seconds)
    except Skipped as error:
        word, reason = ScenarioOutcome.SKIPPED, str(error)
    except (ComfyError, PayloadError, StoreError, RuntimeError, OSError, ValueError) as error:
        message = error.message if isinstance(error, ComfyError) else str(error)
        word, reason = ScenarioOutcome.FAILED, f"it could not be run: {printable(message)}"
    seconds = time.monotonic() - began
    return ScenarioVerdict(scenario.name, scenario.expected, word, reason, seconds, findings, counts)


async def facts_of(arena: Sandbox) -> dict[str, Any]:
    async with arena.client() as client:
        return await server_facts(client)


def find_scenarios(names: Sequence[str], sets: dict[str, Sequence[str]]) -> list[Scenario]:
    """The scenarios that names and names of sets stand for, each once; KeyError for a name that is none."""
    wanted: dict[str, None] = {}
    for name in names:
        for each in sets.get(name, (name,)):
            wanted[each] = None
    return [SCENARIOS[name] for name in wanted]
