"""The report of a profile: what one workflow costs, node by node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainSerializer

from comfyui_agent.lab.reports.environment import Environment, GpuSample, WorkflowFacts
from comfyui_agent.lab.reports.fields import Count, Flag, Number, OptionalText, Part, Text

Milliseconds = Annotated[Number, PlainSerializer(lambda value: None if value is None else round(value, 3))]
"""Seconds that are written to the millisecond."""


class FitsAtOnce(Part):
    """How many servers that render this workflow fit on the card side by side; None if that is not known."""

    count: Number = None
    sentence: Text = ""


class NodeCost(Part):
    """The median seconds of one node, cold and warm, and its share of a warm run."""

    node_id: Text = ""
    class_type: Text = ""
    title: Text = ""
    cold_sec: Milliseconds = None
    warm_sec: Milliseconds = None
    share: Number = None
    steps: Count = 0

    @property
    def name(self) -> str:
        """The title, with the class where that says more."""
        title, kind = self.title.strip(), self.class_type.strip()
        if title and kind and title.replace(" ", "") != kind:
            return f"{title} ({kind})"
        return kind or title or f"node {self.node_id}"


class NodeSeconds(Part):
    """What one node of one run took. Without reported steps, `first_step_sec` is None and `steps` is 0."""

    node_id: Text = ""
    class_type: Text = ""
    seconds: Milliseconds = 0.0
    first_step_sec: Milliseconds = None
    steps: Count = 0
    step_gaps: list[float] = Field(default_factory=list, exclude=True)


class RunFigures(Part):
    """One run, and what its time was spent on. `seconds` count from the beginning of the trace."""

    kind: Text = ""
    prompt_id: Text = ""
    started_at: Text = ""
    seconds: Milliseconds = None
    duration_sec: Milliseconds = None
    queue_sec: Milliseconds = None
    exec_sec: Milliseconds = None
    transfer_sec: Milliseconds = None
    model_load_sec: Milliseconds = None
    sampling_sec: Milliseconds = None
    other_sec: Milliseconds = None
    peak_vram_mb: Number = None
    cached: Flag = False
    nodes: list[NodeSeconds] = Field(default_factory=list)


class ProfileReport(Part):
    """One workflow on one server: a cold run, then warm ones."""

    workflow: WorkflowFacts = Field(default_factory=WorkflowFacts)
    server: Text = ""
    duration_sec: Milliseconds = None
    cold_duration_sec: Milliseconds = None
    model_load_sec: Milliseconds = None
    sampling_sec: Milliseconds = None
    transfer_sec: Milliseconds = None
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
