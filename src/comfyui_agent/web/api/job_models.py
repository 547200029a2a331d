"""What the API answers about jobs, as it is documented."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from comfyui_agent.domain.states import JobStatus

Moment = str | None
"""UTC, `YYYY-MM-DD HH:MM:SS.mmm`."""


class JobRow(BaseModel):
    """A row of `jobs`; columns that hold JSON are given as what it says."""

    id: int
    config_name: str
    job_type: str
    workflow_id: str
    priority: Any = Field(
        description="Lower runs earlier. A whole number, unless someone wrote something else by hand."
    )
    status: JobStatus
    retries_attempted: int
    run_count: int
    retry_limit: Any
    start_time: Moment
    end_time: Moment
    duration: float | None = Field(description="Seconds of execution at the server.")
    error_trace: str | None
    metadata: Any
    worker_id: str | None
    lease_expires_at: Moment
    failure_class: str | None
    next_attempt_at: Moment
    server: str | None
    prompt_id: str | None
    batch_id: str | None
    batch_index: Any
    outputs: list[str] = Field(description="Paths of the results, relative to the workspace.")
    needs_regeneration: bool
    created_at: Moment
    file_path: str | None
    output_node: str | None
    timeout_seconds: Any
    template_hash: str | None
    inputs: Any
    hold: str | None
    fence: int
    strikes: int
    avoids: str | None
    source: str | None
    digest: str | None
    resubmit: Any
    pictures: Any
    reserved: Any
    written: str | None
    dismissed_at: Moment = Field(description="Since when it needs no attention although it failed.")
    lost_at: Moment
    created_by: int | None = Field(description="The id of the token that made it; null: a file, or the command line.")


class JobListed(JobRow):
    """A row in a list: inputs, metadata and pictures above 4 KB are null, a long error_trace is cut."""

    is_shortened: bool = Field(description="Whether something was left out: the job by its name has all.")


class AttemptRow(BaseModel):
    """One run of a job."""

    id: int
    number: int
    server: str | None
    prompt_id: str | None
    worker_id: str | None
    started_at: Moment
    running_seconds: float | None
    ended_at: Moment
    outcome: str | None
    error: Any
    sent: Any = Field(
        description="What was filled in for the server, by place: the model that `auto` became, for instance."
    )


class Result(BaseModel):
    """A result file that can be fetched."""

    number: int
    name: str
    url: str
    thumbnail: str | None
    media_type: str


class LiveFacts(BaseModel):
    """What a job does at its server now."""

    stage: str = Field(description="sending, waiting, rendering, fetching, or away while the server does not answer")
    server: str
    node_type: str
    step: int
    steps: int
    preview: str | None = Field(description="The address of the newest preview picture.")


class GivenShown(BaseModel):
    """A value that goes into the workflow."""

    name: str = Field(description="What its workflow calls it, else its place.")
    place: str
    value: Any


class JobShown(JobRow):
    """A job with its runs, its results, and what it does now."""

    created_by_name: str | None = Field(description="What that token is called.")
    attempts: list[AttemptRow]
    models: list[str] = Field(description="Model files in the workflow as it was sent, or would be.")
    given: list[GivenShown] = Field(description="The values it is made with, the prompt and the seed first.")
    results: list[Result]
    live: LiveFacts | None


class JobPageShown(BaseModel):
    jobs: list[JobListed]
    next: str | None = Field(description="The cursor of what follows; null at the end.")
    is_whole: bool = Field(description="False where the search stopped early: go on with the cursor.")


class Refused(BaseModel):
    name: str
    reason: str


class Changed(BaseModel):
    """What became of a wish about several jobs."""

    changed: list[str]
    refused: list[Refused]


class JobRemoved(BaseModel):
    """A job that is gone from the database."""

    removed: str
    results: list[str] = Field(description="Files that it had made. They stay on disk.")
