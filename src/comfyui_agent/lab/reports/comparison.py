"""Two load tests compared, as `e3 loadtest compare --json` prints it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.reports.fields import Count, Flag, Number, OptionalText, Part


class Judgement(TextEnum):
    BETTER = "better"
    WORSE = "worse"
    NOISE = "noise"
    TOO_FEW = "too few"
    NOT_MEASURED = "not measured"


class Metric(Part):
    """One figure of both runs. Changes are relative; those of shares are differences of the shares."""

    metric: str
    unit: str
    a: Number = None
    b: Number = None
    change: Number = None
    low: Number = None
    high: Number = None
    verdict: Judgement
    sentence: str
    is_sure: bool = Field(default=False, exclude=True)
    """Whether it would still stand if one asked for 99 % instead of 95 %."""


class ComparedRun(Part):
    name: str
    started_at: OptionalText
    workflow: OptionalText
    mode: str
    levels: list[Number]
    jobs: Count
    servers: list[OptionalText]
    comfyui_version: list[str]
    devices: list[str]
    e3: OptionalText
    partial: Flag


class Comparison(Part):
    """What two runs differ in. `cautions` say why they may not be comparable."""

    a: ComparedRun
    b: ComparedRun
    cautions: list[str]
    metrics: list[Metric]
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """Every key, also of figures that are not known."""
        return self.model_dump(mode="json")
