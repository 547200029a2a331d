"""What the API answers about everything but single jobs, as it is documented."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from comfyui_agent.domain.batches import BatchKind, BatchStatus
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.usecases.servers import ServerUse
from comfyui_agent.web.api.job_models import JobListed, Moment
from comfyui_agent.web.outputs import Result


class BatchShown(BaseModel):
    """A batch, and how it stands."""

    id: str
    name: str
    kind: BatchKind
    status: BatchStatus
    total: int
    pending: int
    processing: int
    done: int
    failed: int
    attention: int = Field(description="Of those that failed: neither cancelled nor dismissed.")
    created_at: str
    completed_at: Moment
    generation: int
    grid: str | None = Field(description="The path of the drawn grid, relative to the workspace.")
    sentence: str = Field(description="How it stands, in one line.")
    is_paused: bool
    created_by: int | None = Field(description="The id of the token that made it; null: the command line.")
    external_id: str | None = Field(description="The key that its maker gave it.")


ETA = "Seconds until all of it is done, by what was measured; null: nobody knows."


class BatchMade(BatchShown):
    warnings: list[str]


class BatchWhole(BatchShown):
    """With its jobs, where they are at most a thousand and not too large for one answer; else see its results."""

    created_by_name: str | None
    eta_seconds: float | None = Field(description=ETA)
    axes: Any
    jobs: list[JobListed] | None


class BatchAwaited(BatchWhole):
    is_ended: bool = Field(description="If not, ask again.")


class SweepPlan(BaseModel):
    """What a sweep would queue."""

    total: int
    mode: str
    axes: list[dict[str, Any]]
    combinations: list[dict[str, Any]] = Field(description="At most the first 1,000.")
    warnings: list[str]


class BatchPageShown(BaseModel):
    batches: list[BatchShown]
    next: str | None


class MemberShown(BaseModel):
    """A member of a batch and its results."""

    index: Any
    id: int
    name: str
    status: JobStatus
    failure_class: str | None
    reason: str | None = Field(description="The first line of what went wrong.")
    settings: dict[str, Any]
    results: list[Result]


class ResultPage(BaseModel):
    batch_id: str
    results: list[MemberShown]
    next: str | None


class GridMade(BaseModel):
    pictures: list[str]
    page: str


class PageRow(BaseModel):
    """A row of the view `book_pages`."""

    book_id: str
    page: Any
    status: Literal["Pending", "Rendering", "Needs attention", "Done", "Cancelled", "Dismissed"]
    retry_count: Any
    last_attempted_at: Moment
    needs_regeneration: bool
    image_error: list[Any]
    job_metadata: dict[str, Any]


class BookShown(BatchShown):
    created_by_name: str | None
    eta_seconds: float | None = Field(description=ETA)
    pages: list[PageRow] = Field(description="At most 1,000. Failures and metadata that are too long are shortened.")
    next: int | None = Field(description="The number to ask for pages after; null at the end.")


class BookAwaited(BookShown):
    is_ended: bool = Field(description="If not, ask again.")


class BookPageShown(BaseModel):
    books: list[BatchShown]
    next: str | None


class Regenerated(BaseModel):
    """Pages that are rendered again."""

    book_id: str
    pages: list[int]


class DeviceShown(BaseModel):
    name: str
    type: str
    vram_total: float
    vram_free: float


class RunShown(BaseModel):
    """One of our prompts at a server."""

    job_id: int
    config_name: str
    stage: str
    node_type: str
    step: int
    steps: int


class ProcessShown(BaseModel):
    """A ComfyUI process that E3 supervises."""

    slot: str
    status: str = Field(description="stopped, starting, up, draining, stopping, waiting or failed")
    pid: int | None
    gpu: str
    restarts: int
    since: Moment
    reason: str | None = Field(description="Why it is not up, or why it is started again.")


class ServerShown(BaseModel):
    """A server as it was a few seconds ago."""

    name: str
    url: str
    state: str = Field(description="up, down, stuck, paused, draining or drained")
    version: str | None
    devices: list[DeviceShown]
    queue_running: int | None
    queue_pending: int | None
    error: str | None
    stuck_since: Moment
    runs: list[RunShown] = Field(description="What agents of this machine have there now.")
    routing: ServerUse
    process: ProcessShown | None = Field(description="Its process, if E3 launched it on this machine.")


class ServerHalted(BaseModel):
    name: str
    url: str
    state: str = Field(description="working, paused, draining or drained")


class TestSent(BaseModel):
    sent: list[str] = Field(description="The scheme of each address, such as ntfys.")


class WorkflowShown(BaseModel):
    workflow_id: str
    description: str
    required_inputs: list[str]
    defaults: dict[str, Any]
    problem: str | None = Field(description="Why it cannot be used, if so.")


class InputUploaded(BaseModel):
    """A file that jobs can load: `value` is what they name it by."""

    name: str
    value: str
    url: str
    thumbnail: str


class InputList(BaseModel):
    inputs: list[InputUploaded]


class WorkflowList(BaseModel):
    workflows: list[WorkflowShown]


class WorkflowImported(BaseModel):
    """What was found in a file. `inputs` are the usual ones, with the places where they go."""

    workflow_id: str
    format: str
    nodes: int
    path: str
    recipes: str
    inputs: dict[str, list[str]]


class UsualInput(BaseModel):
    name: str
    places: list[str]
    value: Any = Field(description="What is there if nothing is given.")
    choices: list[str] | None = Field(
        description="What servers offer there; null if that is not known, or anything goes."
    )


class WorkflowWhole(BaseModel):
    """What people give a workflow (`inputs`), and every place that a value can go to."""

    workflow_id: str
    template_path: str
    required_inputs: list[str]
    defaults: dict[str, Any]
    placeholders: list[str]
    inputs: list[UsualInput]
    places: list[dict[str, Any]]


class ReportShown(BaseModel):
    """A report of the reliability lab."""

    path: str
    kind: str
    written_at: str
    finding: str
    url: str


class ReportList(BaseModel):
    reports: list[ReportShown]


class CountsShown(BaseModel):
    pending: int
    processing: int
    done: int
    failed: int
    attention: int = Field(description="Of those that failed: neither cancelled nor dismissed.")


class StatusShown(BaseModel):
    """How the night goes."""

    sentence: str
    counts: CountsShown
    kept: int = Field(description="Pending jobs that are paused, or for a later burst; counted up to 10,000.")
    done_last_hour: int
    failed_last_hour: int
    images_per_minute: float
    eta_seconds: float | None = Field(description=ETA)
    queue_age_seconds: float | None
    agents: int
    version: str


class Me(BaseModel):
    role: Literal["read", "user", "admin"]
    token: str | None = Field(description="The name of the token; null while there are none.")


class AuditRow(BaseModel):
    """Who asked for which change, when, and from where."""

    id: int
    timestamp: str
    event: str = Field(description="What was done, such as audit.job.cancel.")
    actor: str | None = Field(description="token 3 (studio), this machine, or cli (alice).")
    address: str | None
    job_id: int | None
    config_name: str | None
    batch_id: str | None
    server: str | None
    message: str | None


class AuditPage(BaseModel):
    audit: list[AuditRow]
    next: int | None = Field(description="Give it as `before` for what came earlier; null at the end.")


class Made(BaseModel):
    """What has a key."""

    kind: Literal["job", "batch", "book"]
    id: str
    url: str


class ProblemShown(BaseModel):
    """What went wrong, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    errors: list[dict[str, str]] | None = None
    made: Made | None = Field(default=None, description="Of `external-id-taken`: what has it.")
