"""A job: one request for one result, from its submission to its end; and its attempts, each at one server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NewType

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import bytes_of, json_text, parsed

JobId = NewType("JobId", int)
AttemptId = NewType("AttemptId", int)

DEFAULT_PRIORITY = 50
STAR, REJECT = 1, -1
"""Ratings of results."""
SAME = "same"
"""Reuse of results that were made of the same."""
GATEWAY = "gateway"
"""The source of jobs that clients of ComfyUI posted. Every other source is the path of a job file."""
DONE = "done"
"""The outcome of an attempt that gave the result. Every other outcome is a failure class."""


@dataclass(frozen=True)
class Template:
    """A workflow in API format, stored once by the hash of its text and shared by many jobs."""

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
    """A job to be submitted. `inputs` are values by place (`6.text`), put into the template when the job runs."""

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
    """Stored input files, by the place where their name goes."""
    reserved: bool = False
    """Only an agent that runs this batch by name may lease it."""
    created_by: int | None = None
    """The id of the token that made it. None: the token of its batch, if any."""
    external_id: str | None = None
    """The caller's own key. No other job of the same token has it."""
    reuse: str | None = None
    """SAME: a recorded result with the same fingerprint is taken instead of rendering."""


@dataclass(frozen=True)
class Job:
    """A job as read from the database. Times are UTC text."""

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
    needs: str | None
    """The key of what it needs of a server; None if that is not known yet."""
    take: int | None
    """The number of the result that counts, or is being made; None: it is the first."""
    rating: int | None = None
    """What people think of its result: STAR, REJECT, or nothing."""
    external_id: str | None = None
    reuse: str | None = None
    fingerprint: str | None = None
    """Of all that decides its result. Only jobs with `reuse` have one, once they were given to a server."""
    reused_from: int | None = None
    """The job whose result it was given; None if it was rendered."""
    is_shortened: bool = False
    """Whether large texts were cut, as in lists of jobs."""

    @property
    def job_file(self) -> str | None:
        """The file that it came from."""
        return None if self.source == GATEWAY else self.source

    @property
    def waits_for_server(self) -> bool:
        """Whether it waits because the server with its prompt stopped answering."""
        return self.status is JobStatus.PENDING and self.lost_at is not None

    @property
    def waiting_words(self) -> str:
        """The server it waits for, and since when. Empty if it waits for none."""
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
        """Whether it failed and was neither cancelled nor dismissed."""
        return self.status is JobStatus.FAILED and not self.is_cancelled and self.dismissed_at is None

    @property
    def state(self) -> str:
        """Its status, or `cancelled` or `dismissed` for a failed job that needs no attention."""
        if self.status is not JobStatus.FAILED or self.needs_attention:
            return self.status.value
        return "cancelled" if self.is_cancelled else "dismissed"

    def of_take(self, number: int, outputs: tuple[str, ...]) -> Job:
        """The job as if another of its results counted."""
        return replace(self, take=number, outputs=outputs)

    def as_json(self) -> dict[str, Any]:
        """The row for scripts, with JSON columns as lists and objects."""
        row = asdict(self) | {"status": self.status.value}
        del row["is_shortened"]
        return row | {key: parsed(row[key]) for key in ("metadata", "inputs", "pictures")}


@dataclass(frozen=True)
class Attempt:
    """One run. While it has no outcome it is open, and another agent may adopt its prompt."""

    id: AttemptId
    number: int
    server: str | None
    prompt_id: str | None
    worker_id: str | None
    started_at: str | None
    running_seconds: float | None
    ended_at: str | None
    outcome: str | None
    error: str | None
    sent: str | None = None
    """The values filled in for the server, by place, as JSON."""
    is_load: int | None = None
    """Whether its server had other models loaded when it was given the run. None: not known."""
    is_cached: int | None = None
    """Whether its server had the result in its cache."""

    def as_json(self) -> dict[str, Any]:
        """The row for scripts, with JSON columns as objects."""
        return asdict(self) | {"error": parsed(self.error), "sent": parsed(self.sent)}


def too_large(inputs: Mapping[str, Any], metadata: Mapping[str, Any] | None, limit_kb: int) -> str:
    """A message if inputs and metadata take more JSON than the limit, else an empty text."""
    size = bytes_of(inputs) + (bytes_of(metadata) if metadata else 0)
    if size <= limit_kb * 1024:
        return ""
    return (
        f"inputs and metadata take {-(-size // 1024):,} KB, and a job may have {limit_kb:,} KB: "
        "shorten the longest of them, or raise job_limit_kb"
    )
