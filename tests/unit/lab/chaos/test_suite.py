"""Whatever happens while a scenario runs, there is a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from comfyui_agent.comfy.errors import ServerLost
from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.chaos.findings import Findings, ScenarioOutcome, Skipped
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.chaos.suite import Scenario, run_scenario
from comfyui_agent.lab.payloads import Payload, PayloadError
from comfyui_agent.lab.reports.chaos import ScenarioResult
from comfyui_agent.store.errors import DatabaseAway
from support.agents import sized_picture
from support.servers import free_port

PAGE = Payload.of("page", sized_picture())


async def result_after(error: Exception | None, folder: Path) -> ScenarioResult:
    """The scenario finds one thing, and then this happens."""

    async def run(_: Sandbox, findings: Findings) -> None:
        findings.check("a thing", "fine", "fine", True)
        findings.begin(100.0, "it breaks")
        findings.stage("refill", 103.0, "it goes on")
        findings.stage("alert", 101.0, "someone is told")
        if error is not None:
            raise error

    plan = ChaosPlan(PAGE, f"http://127.0.0.1:{free_port()}")
    return await run_scenario(Scenario("x", "", "", run), plan, folder, Sla())


async def test_a_scenario_that_ends_well_has_passed_and_lists_its_stages_in_order(tmp_path: Path) -> None:
    result = await result_after(None, tmp_path)
    assert result.verdict == ScenarioOutcome.PASSED
    assert list(result.as_json()) == [
        *("scenario", "verdict", "reason", "expected", "seconds", "recovery_sec", "checks", "stages", "jobs"),
    ]
    assert [stage.stage for stage in result.stages] == ["fault", "alert", "refill"]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (Skipped("no tc"), ScenarioOutcome.SKIPPED),
        (ServerLost("it is gone"), ScenarioOutcome.FAILED),
        (PayloadError("no such node"), ScenarioOutcome.FAILED),
        (RuntimeError("it ended at start"), ScenarioOutcome.FAILED),
        (OSError(28, "No space left on device"), ScenarioOutcome.FAILED),
        pytest.param(DatabaseAway("locked"), ScenarioOutcome.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_an_error_is_a_result_with_its_reason(error: Exception, word: ScenarioOutcome, tmp_path: Path) -> None:
    result = await result_after(error, tmp_path)
    assert result.verdict == word
    assert (str(error).partition("] ")[2] or str(error)) in result.reason
