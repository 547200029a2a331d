"""What the tools answer: small, and always with what to do next."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

State = Literal["Pending", "Rendering", "Needs attention", "Done", "Cancelled", "Dismissed"]


class Answer(BaseModel):
    summary: str = Field(description="How it stands, in a sentence.")
    next: str = Field(description="What to do next.")


class Failed(BaseModel):
    """A job that needs attention. `number`: which member of its batch, or which page of its book."""

    id: str
    name: str
    number: int | None = None
    reason: str


class Standing(Answer):
    """How a job, a batch, a book or the whole workspace stands."""

    kind: Literal["job", "batch", "book", "workspace"]
    id: str = Field(description="Other tools take it, like the name and the key.")
    name: str
    key: str | None = None
    state: State = Field(description="Done only if every result is there.")
    ended: bool = Field(description="Nothing of it waits or renders any more.")
    total: int = Field(description="How many jobs these are.")
    done: int
    attention: int = Field(description="How many failed and were neither cancelled nor dismissed.")
    progress: float | None = Field(default=None, description="From 0 to 1.")
    eta_seconds: float | None = Field(
        default=None, description="By what was measured, until it is done; of a job, until the whole queue is."
    )
    results: list[str] = Field(default=[], description="Where the first results are, in full size.")
    failed: list[Failed] = Field(default=[], description="The first that need attention.")
    is_new: bool | None = Field(default=None, description="false: its key had made it before; nothing was made now.")


class SweepAnswer(Answer):
    """A sweep that was queued, or would be."""

    jobs: int
    axes: dict[str, list[Any]] = {}
    first: list[dict[str, Any]] = Field(default=[], description="The first combinations.")
    warnings: list[str] = []
    batch: Standing | None = Field(default=None, description="null: nothing was queued.")


class Change(Answer):
    """What was changed, or would be."""

    confirmed: bool = Field(description="false: nothing was changed.")
    jobs: int = Field(description="How many jobs that changes.")
    now: Standing | None = None


class ResultAnswer(Answer):
    """A result, or the grid of a batch. The picture itself comes beside this as an image."""

    id: str
    name: str
    state: State
    results: int = Field(default=0, description="How many results the job has.")
    takes: list[int] = Field(default=[], description="The takes of the job, oldest first.")
    settings: dict[str, Any] = Field(default={}, description="What varies about this member of its batch.")
    address: str | None = Field(default=None, description="Where it is in full size.")
    picture: str | None = Field(default=None, description="What the image beside this is; null: there is none.")
    image: SkipJsonSchema[bytes | None] = Field(default=None, exclude=True)


class WorkflowLine(BaseModel):
    workflow: str
    description: str = ""
    required_inputs: list[str] = []
    problem: str | None = Field(default=None, description="Why it cannot be used, if so.")


class BatchesAnswer(Answer):
    batches: dict[str, str]


class WorkflowsAnswer(Answer):
    workflows: list[WorkflowLine]


class Input(BaseModel):
    name: str
    is_required: bool
    value: Any = Field(default=None, description="What is there if nothing is given.")
    choices: list[str] | None = Field(default=None, description="What servers offer; null: anything goes.")
    more_choices: int | None = Field(default=None, description="How many more there are.")


class WorkflowAnswer(Answer):
    makes: str = Field(description="T2I, I2I, T2V, …: what of what.")
    inputs: list[Input]


class ServerLine(BaseModel):
    name: str
    state: str = Field(description="up, down, stuck, paused, draining or drained")
    about: str = Field(description="What it does, what it has loaded, why it has no work, or what is wrong.")


class ServersAnswer(Answer):
    servers: list[ServerLine]
    is_attended: bool = Field(description="Whether an agent of E3 works this queue off.")


class FindingLine(BaseModel):
    name: str
    fine: bool
    message: str


class DoctorAnswer(Answer):
    findings: list[FindingLine] = Field(description="What is not fine comes first.")
