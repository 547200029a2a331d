"""One chaos scenario on a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.lab.pages.rendering import Mark
from comfyui_agent.lab.pages.stages import StageMark, Stages
from comfyui_agent.lab.pages.targets import against
from comfyui_agent.lab.quantities import seconds
from comfyui_agent.lab.reports.chaos import ScenarioResult
from comfyui_agent.lab.reports.fields import as_number

TONES = {"passed": "good", "failed": "bad"}


@dataclass(frozen=True)
class ScenarioView:
    """A result with its verdict and its drawing."""

    result: ScenarioResult
    sla: Mapping[str, Any]

    @property
    def verdict(self) -> Mark:
        return Mark(TONES.get(self.result.verdict, "dim"), self.result.verdict or "no verdict")

    @property
    def passed(self) -> int:
        """How many checks passed."""
        return sum(check.passed for check in self.result.checks)

    @property
    def stages(self) -> Stages | None:
        """When each stage happened; None if nothing was noted."""
        known = [StageMark(each.stage, each.seconds) for each in self.result.stages if each.seconds is not None]
        if not known:
            return None
        known.sort(key=lambda stage: stage.seconds)
        recovery, target = self.result.recovery_sec, as_number(self.sla.get("recovery_seconds"))
        if recovery is not None:
            title = f"Work went on after {against(recovery, target)}"
        else:
            title = f"The last stage, {known[-1].name}, came {seconds(known[-1].seconds)} after the fault"
        sentence = "When each stage happened, counted from the moment the fault was made."
        return Stages(title, sentence, known, None if recovery is None else target)
