"""The report of a profile: what one workflow costs, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from comfyui_agent.lab.reports.environment import Environment, GpuSample, ReportKind, WorkflowFacts
from comfyui_agent.lab.reports.fields import Count, Flag, Number, OptionalText, Part, Text


class FitsAtOnce(Part):
    """How many servers that render this workflow fit on the card side by side; None if that is not known."""

    count: Number = None
    sentence: Text = ""


class NodeCost(Part):
    """The median seconds of one node, cold and warm, and its share of a warm run."""

    node_id: Text = ""
    class_type: Text = ""
    title: Text = ""
    cold_sec: Number = None
    warm_sec: Number = None
    share: Number = None
    steps: Count = 0


class NodeSeconds(Part):
    """What one node of one run took."""

    node_id: Text = ""
    class_type: Text = ""
    seconds: Number = None
    first_step_sec: Number = None
    steps: Count = 0


class RunFigures(Part):
    """One run, and what its time was spent on."""

    kind: Text = ""
    prompt_id: Text = ""
    started_at: Text = ""
    seconds: Number = None
    duration_sec: Number = None
    queue_sec: Number = None
    exec_sec: Number = None
    transfer_sec: Number = None
    model_load_sec: Number = None
    sampling_sec: Number = None
    other_sec: Number = None
    peak_vram_mb: Number = None
    cached: Flag = False
    nodes: list[NodeSeconds] = Field(default_factory=list)


class ProfileReport(Part):
    """One workflow on one server: a cold run, then warm ones."""

    kind: ClassVar[ReportKind] = ReportKind.PROFILE

    path: Path = Field(default=Path("profile.json"), exclude=True)
    workflow: WorkflowFacts = Field(default_factory=WorkflowFacts)
    server: Text = ""
    duration_sec: Number = None
    cold_duration_sec: Number = None
    model_load_sec: Number = None
    sampling_sec: Number = None
    transfer_sec: Number = None
    peak_vram_mb: Number = None
    idle_vram_mb: Number = None
    vram_total_mb: Number = None
    avg_gpu_util: Number = None
    fits_at_once: FitsAtOnce = Field(default_factory=FitsAtOnce)
    nodes: list[NodeCost] = Field(default_factory=list)
    runs: list[RunFigures] = Field(default_factory=list)
    gpu_source: OptionalText = None
    gpu_trace: list[GpuSample] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    partial: Flag = False
    environment: Environment = Field(default_factory=Environment)

    @property
    def name(self) -> str:
        return (self.workflow.name or "").strip() or "unnamed workflow"
