"""A job: one wish for one result, from its submission to its end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NewType

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.rows import parsed
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text

JobId = NewType("JobId", int)

DEFAULT_PRIORITY = 50


@dataclass(frozen=True)
class Template:
    """A workflow in API format, known by the hash of its text: many jobs share one."""

    hash: str
    text: str

    @classmethod
    def of(cls, graph: Graph) -> Template:
        text = json_text(graph, sort=True)
        return cls(hashlib.sha256(text.encode("utf-8")).hexdigest(), text)

    def graph(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text)
        return document


@dataclass(frozen=True)
class NewJob:
    """What a door hands in. `inputs` are values by place (`6.text`), put into the template when the job runs."""

    config_name: str
    job_type: str
    workflow_id: str
    template: Template | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    priority: int = DEFAULT_PRIORITY
    retry_limit: int | None = None
    timeout_seconds: float | None = None
    file_path: str | None = None
    output_node: str | None = None
    metadata: Mapping[str, Any] | None = None
    batch_id: str | None = None
    batch_index: int | None = None
    source: str | None = None
    digest: str | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)
    """Input files that are kept for the job, by the place where their name goes."""
    reserved: bool = False
    """Only for whoever works off its batch by name; other agents leave it alone."""
    created_by: int | None = None
    """The token that makes it; None: nobody's, or whoever made its batch."""


@dataclass(frozen=True)
class Job:
    """A job as it stands in the database; times are UTC text."""

    id: JobId
    config_name: str
    job_type: str
    workflow_id: str
    priority: int | None
    status: JobStatus
    retries_attempted: int
    run_count: int
    retry_limit: int | None
    start_time: str | None
    end_time: str | None
    duration: float | None
    error_trace: str | None
    metadata: str | None
    worker_id: str | None
    lease_expires_at: str | None
    failure_class: str | None
    next_attempt_at: str | None
    server: str | None
    prompt_id: str | None
    batch_id: str | None
    batch_index: int | None
    outputs: tuple[str, ...]
    needs_regeneration: bool
    created_at: str | None
    file_path: str | None
    output_node: str | None
    timeout_seconds: float | None
    template_hash: str | None
    inputs: str | None
    hold: str | None
    fence: int
    strikes: int
    avoids: str | None
    source: str | None
    digest: str | None
    resubmit: int | None
    pictures: str | None
    reserved: int | None
    written: str | None
    dismissed_at: str | None
    created_by: int | None
    lost_at: str | None
    is_shortened: bool = False
    """Whether something large was left out of inputs, metadata or another text, as lists do."""

    @property
    def waits_for_server(self) -> bool:
        """Whether the server that has its prompt stopped answering: it waits for that one or another."""
        return self.status is JobStatus.PENDING and self.lost_at is not None

    @property
    def waiting_words(self) -> str:
        """Which server it waits for, and since when; empty if it waits for none."""
        if not self.waits_for_server:
            return ""
        name = (self.server or "").partition("://")[2] or "its server"
        others = "" if self.hold == "server" else ", or for another server"
        return f"waits for {name}, which has not answered since {(self.lost_at or '')[:19]} UTC{others}"

    @property
    def is_cancelled(self) -> bool:
        return self.status is JobStatus.FAILED and self.failure_class == FailureClass.CANCELLED.value

    @property
    def needs_attention(self) -> bool:
        """Whether it failed, was not cancelled on purpose, and nobody has dismissed it."""
        return self.status is JobStatus.FAILED and not self.is_cancelled and self.dismissed_at is None

    @property
    def state(self) -> str:
        """What its badge says: its status; `cancelled` or `dismissed` for a failed job that needs no attention."""
        if self.status is not JobStatus.FAILED or self.needs_attention:
            return self.status.value
        return "cancelled" if self.is_cancelled else "dismissed"

    def as_json(self) -> dict[str, Any]:
        """The row as scripts read it, lists and objects as such."""
        row = asdict(self) | {"status": self.status.value}
        del row["is_shortened"]
        return row | {key: parsed(row[key]) for key in ("metadata", "inputs", "pictures")}
