"""What a report was measured with: machine, servers, workflow, parameters, graphics card."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.reports.fields import Count, Facts, Number, OptionalText, Part, Text, as_moment


class ReportKind(TextEnum):
    """What was done to the servers, as reports write it under `environment.kind`."""

    LOAD = "loadtest"
    CHAOS = "chaos"
    PROFILE = "profile"

    @property
    def label(self) -> str:
        return {ReportKind.LOAD: "Load test", ReportKind.CHAOS: "Chaos", ReportKind.PROFILE: "Profile"}[self]


class DeviceFacts(Part):
    name: Text = ""
    kind: Text = ""
    vram_total_mb: Number = None


class ServerFacts(Part):
    """A server as it described itself. `driver` is known of servers on this machine only."""

    server: OptionalText = None
    comfyui_version: OptionalText = None
    python: OptionalText = None
    pytorch: OptionalText = None
    system: OptionalText = None
    devices: list[DeviceFacts] = Field(default_factory=list)
    driver: OptionalText = None
    nodes: Number = None


class WorkflowFacts(Part):
    name: OptionalText = None
    sha256: OptionalText = None
    nodes: Count = 0


class GpuSample(Part):
    """One look at the card that a server renders on. `seconds` count from the beginning of the trace."""

    ts: Text = ""
    seconds: Number = None
    gpu_util: Number = None
    gpu_mem_mb: Number = None
    server: Text = ""


class Environment(Part):
    kind: OptionalText = None
    e3: OptionalText = None
    started_at: OptionalText = None
    ended_at: OptionalText = None
    machine: Facts = Field(default_factory=dict)
    servers: list[ServerFacts] = Field(default_factory=list)
    workflow: WorkflowFacts = Field(default_factory=WorkflowFacts)
    workflows: list[WorkflowFacts] = Field(default_factory=list)
    parameters: Facts = Field(default_factory=dict)
    warmup_sec: list[Any] = Field(default_factory=list)
    sla: Facts = Field(default_factory=dict)
    gpu_source: OptionalText = None
    gpu_trace: list[GpuSample] = Field(default_factory=list)
    metrics_log: OptionalText = None
    load_test: OptionalText = None

    @property
    def began(self) -> float | None:
        """Seconds since 1970."""
        return as_moment(self.started_at)

    @property
    def ended(self) -> float | None:
        """Seconds since 1970."""
        return as_moment(self.ended_at)
