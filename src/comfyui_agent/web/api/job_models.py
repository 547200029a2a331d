"""What the API answers about jobs, as it is documented."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema

from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.web.outputs import Result

Moment = str | None
"""UTC, `YYYY-MM-DD HH:MM:SS.mmm`."""


@dataclass(frozen=True, kw_only=True)
class JobRow(Job):
    """A row of `jobs`; columns that hold JSON are given as what it says."""

    priority: Any = Field(
        description="Lower runs earlier. A whole number, unless someone wrote something else by hand."
    )
    retry_limit: Any
    duration: float | None = Field(description="Seconds of execution at the server.")
    metadata: Any
    batch_index: Any
    outputs: tuple[str, ...] = Field(description="Paths of the results, relative to the workspace.")
    timeout_seconds: Any
    inputs: Any
    resubmit: Any
    pictures: Any
    reserved: Any
    dismissed_at: Moment = Field(description="Since when it needs no attention although it failed.")
    rating: int | None = Field(default=None, description="1: a star. -1: rejected.")
    created_by: int | None = Field(description="The id of the token that made it; null: a file, or the command line.")
    is_shortened: SkipJsonSchema[bool] = False


@dataclass(frozen=True, kw_only=True)
class JobListed(JobRow):
    """A row in a list: inputs, metadata and pictures above 4 KB are null, a long error_trace is cut."""

    is_shortened: bool = Field(description="Whether something was left out: the job by its name has all.")


@dataclass(frozen=True, kw_only=True)
class AttemptRow(Attempt):
    """One run of a job."""

    error: Any
    sent: Any = Field(
        description="What was filled in for the server, by place: the model that `auto` became, for instance."
    )


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


@dataclass(frozen=True, kw_only=True)
class JobShown(JobRow):
    """A job with its runs, its results, and what it does now."""

    created_by_name: str | None = Field(description="What that token is called.")
    attempts: list[AttemptRow]
    models: list[str] = Field(description="Model files in the workflow as it was sent, or would be.")
    seeds: dict[str, int] = Field(description="The seeds that it is made with, by place.")
    from_cache: bool = Field(description="Whether nothing was rendered: its server had it, or it was reused.")
    given: list[GivenShown] = Field(description="The values it is made with, the prompt and the seed first.")
    results: list[Result]
    live: LiveFacts | None


@dataclass(frozen=True, kw_only=True)
class JobAwaited(JobShown):
    is_ended: bool = Field(description="Whether it is done or has failed. If not, ask again.")


class TakeShown(BaseModel):
    """One of the results of a job that was rendered again."""

    number: int
    counts: bool = Field(description="Whether it is the one that the job shows.")
    outputs: list[str]
    end_time: Moment
    duration: float | None
    server: str | None
    results: list[Result]


class TakesShown(BaseModel):
    takes: list[TakeShown]


class JobPageShown(BaseModel):
    jobs: list[JobListed]
    next: str | None = Field(description="The cursor of what follows; null at the end.")
    is_whole: bool = Field(description="False where the search stopped early: go on with the cursor.")


class Refused(BaseModel):
    name: str
    reason: str


class Changed(BaseModel):
    """What became of a request about several jobs."""

    changed: list[str]
    refused: list[Refused]


class JobRemoved(BaseModel):
    """A job that is gone from the database."""

    removed: str
    results: list[str] = Field(description="Files that it had made. They stay on disk.")
