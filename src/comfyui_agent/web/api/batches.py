"""/api/v1/batches: sweeps, books, bursts and files that were added as one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from comfyui_agent.batches.grids import GridOptions, NoGrid, make_grid
from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.sweep_file import SweepFile
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, mint_batch_id
from comfyui_agent.domain.combinations import Combinations
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.sweep_planner import Planner
from comfyui_agent.engine.withdrawal import take_back
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import BadCursor, JobFilter
from comfyui_agent.web.api.models import (
    BatchMade,
    BatchPageShown,
    BatchShown,
    BatchWhole,
    GridMade,
    ResultPage,
    SweepPlan,
)
from comfyui_agent.web.api.openapi_responses import AsInteger, file_answers, problems
from comfyui_agent.web.api.responses import (
    MOST_BYTES,
    PREFIX,
    BatchId,
    By,
    ByAdmin,
    Cursor,
    FileAnswer,
    Here,
    Limit,
    User,
    address_of_batch,
    batch_named,
    listed,
    maker_of,
    shown_batch,
    shown_result,
)
from comfyui_agent.web.context import Context
from comfyui_agent.web.idempotency import IdempotentRequest, Key, once
from comfyui_agent.web.problems import JsonAnswer, Problem
from comfyui_agent.web.threads import FILES, RENDERING

MOST_WITH_JOBS = 1_000
MOST_PLANNED = 1_000
MOST_LETTERS = 1_000_000

router = APIRouter(prefix=f"{PREFIX}/batches", tags=["batches"])


class NewSweepSaid(SweepFile):
    """A sweep: what a sweep.yaml says. Values are texts such as `1..4`, or lists."""

    skip_bad: StrictBool = Field(default=False, description="Leave bad values out, with a warning.")
    dry_run: StrictBool = Field(default=False, description="Only say what would be queued.")


class RetryBatchSaid(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cancelled: bool = Field(default=False, description="What was cancelled or dismissed, too.")


class GridSaid(BaseModel):
    """How the grid shall be laid out; as it was defined where nothing is said."""

    model_config = ConfigDict(extra="forbid", strict=True)

    x: str = Field(default="", max_length=300, description="The axis of the columns.")
    y: str = Field(default="", max_length=300, description="The axis of the rows.")
    pages: str = Field(default="", max_length=300, description="A page for each value of this axis.")
    cell: Annotated[int, Field(ge=16, le=2048), AsInteger] | None = Field(
        default=None, description="The size of a cell in pixels."
    )
    format: Literal["png", "jpeg"] = "png"


@router.get("", response_model=BatchPageShown, responses=problems(404))
async def list_batches(
    context: Here,
    _: User,
    kind: Annotated[BatchKind | None, Query(description="Only batches of this kind.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Any:
    """Batches, the newest first."""
    return await page_of_batches(context, kind, limit, cursor, "batches")


async def page_of_batches(
    context: Context, kind: BatchKind | None, limit: int, cursor: str | None, noun: str
) -> dict[str, Any]:
    try:
        page = await context.store.run(ops.batch_page, kind, cursor, limit)
    except BadCursor as error:
        raise Problem(404, str(error), "Begin without a cursor.") from None
    return {noun: [shown_batch(batch) for batch in page.batches], "next": page.cursor}


@router.post(
    "",
    status_code=201,
    response_model=BatchMade,
    responses={200: {"model": SweepPlan, "description": "What would be queued"}, **problems(404, 409, sends=True)},
)
async def create(context: Here, by: By, request: Request, said: NewSweepSaid, key: Key = None) -> Response:
    """Queue a workflow for every combination of some values. It is yours: other users cannot change it."""
    planner = context.planning.for_caller(by.caller.scope, request)
    if said.dry_run:
        return JsonAnswer(await _plan(context, said, planner))

    async def make(batch_id: str) -> dict[str, Any]:
        by.check_priority(said.priority)
        batch, warnings = await context.submissions.sweep(
            said, planner, skip_bad=said.skip_bad, batch_id=batch_id, by=by
        )
        await by.audit(EventName.AUDIT_BATCH_CREATE, batch_id=batch.id, message=counted(batch.total, "job"))
        return shown_batch(batch) | {"warnings": list(warnings)}

    async def find(batch_id: str) -> dict[str, Any] | None:
        batch = await context.store.run(ops.find_batch, batch_id)
        is_whole = batch is not None and batch.status is not BatchStatus.PENDING
        return shown_batch(batch) | {"warnings": []} if batch is not None and is_whole else None

    wish = IdempotentRequest(key=key, route="batches", body=said.model_dump(mode="json", exclude_unset=True))
    batch_id = mint_batch_id(said.name or said.workflow, "sweep")
    return await once(context, by.caller, wish, batch_id, make, find, address_of_batch)


async def _plan(context: Context, said: NewSweepSaid, planner: Planner) -> dict[str, Any]:
    found = await context.submissions.plan(said, planner, skip_bad=said.skip_bad)
    combinations = found.sweep.combinations
    return {
        "total": len(found.sweep),
        "mode": combinations.mode.value,
        "axes": [
            {"name": axis.name, "places": list(axis.places), "values": list(axis.values[:MOST_PLANNED])}
            for axis in combinations.axes
        ],
        "combinations": _first(combinations),
        "warnings": list(found.warnings),
    }


def _first(combinations: Combinations) -> list[dict[str, Any]]:
    """As many as an answer has room for: one long value stands in each of them."""
    found: list[dict[str, Any]] = []
    room = MOST_LETTERS
    for index in range(min(len(combinations), MOST_PLANNED)):
        found.append(combinations.values_at(index))
        room -= sum(len(str(value)) for value in found[-1].values())
        if room < 0:
            break
    return found


@router.get("/{batch_id}", response_model=BatchWhole, responses=problems(404, 409))
async def show(context: Here, _: User, batch_id: BatchId) -> Any:
    """One batch: how it stands, its axes, and its jobs where they are not too many."""
    batch = await batch_named(context, batch_id)
    members = JobFilter(batch_id=batch.id)
    page = await context.store.run(ops.job_page, members, None, MOST_WITH_JOBS, most_bytes=MOST_BYTES)
    shown = shown_batch(batch) | await maker_of(context, batch) | {"axes": batch.metadata.get("axes")}
    return await RENDERING.run(_whole, shown, None if page.cursor else page.jobs)


def _whole(shown: dict[str, Any], jobs: list[Job] | None) -> JsonAnswer:
    return JsonAnswer(shown | {"jobs": None if jobs is None else list(map(listed, jobs))})


@router.get("/{batch_id}/results", response_model=ResultPage, responses=problems(404, 409))
async def results(context: Here, _: User, batch_id: BatchId, limit: Limit = 100, cursor: Cursor = None) -> Any:
    """The members of a batch in their order, each with its settings and its results."""
    batch = await batch_named(context, batch_id)
    try:
        page = await context.store.run(ops.job_page, JobFilter(batch_id=batch.id), cursor, limit, most_bytes=MOST_BYTES)
    except BadCursor as error:
        raise Problem(404, str(error), "Begin without a cursor.") from None

    def shown() -> JsonAnswer:
        found = [_member(context, batch, job) for job in page.jobs]
        return JsonAnswer({"batch_id": batch.id, "results": found, "next": page.cursor})

    return await FILES.run(shown)


def _member(context: Context, batch: Batch, job: Job) -> dict[str, Any]:
    is_failed = job.status is JobStatus.FAILED
    return {
        "index": job.batch_index,
        "id": job.id,
        "name": job.config_name,
        "status": job.status.value,
        "failure_class": job.failure_class,
        "reason": (job.error_trace or "").partition("\n")[0] or None if is_failed else None,
        "settings": settings_of(job, batch),
        "results": [shown_result(each) for each in context.outputs.shown(job)],
    }


@router.get(
    "/{batch_id}/grid",
    response_class=FileResponse,
    responses={**file_answers("image/png", "image/jpeg"), **problems(409)},
)
async def grid(context: Here, _: User, batch_id: BatchId) -> Response:
    """The grid that was drawn of a batch."""
    batch = await batch_named(context, batch_id)
    if not batch.grid:
        words = batch.grid_problem or ("it is being made" if batch.is_grid_due else "it is made when the batch ends")
        raise Problem(409, f"there is no grid of {batch.id} yet: {words}", "Make one now with POST to this address.")
    try:
        path = context.outputs.grid(batch.grid)
    except ValueError as error:
        raise Problem(404, str(error), "Make it again with POST to this address.") from None
    kind = "image/jpeg" if path.suffix == ".jpg" else "image/png"
    return FileAnswer(path, media_type=kind, headers={"Cache-Control": "no-cache"})


@router.post("/{batch_id}/grid", status_code=201, response_model=GridMade, responses=problems(404, 409, sends=True))
async def draw(context: Here, by: By, batch_id: BatchId, said: Annotated[GridSaid | None, Body()] = None) -> Any:
    """Make the grid of a batch again, as it stands now or laid out in another way."""
    said = said or GridSaid()
    batch = await batch_named(context, batch_id)
    by.check_owner(batch)
    options = GridOptions(GridAxes(said.x, said.y, said.pages), said.cell, said.format)
    try:
        async with context.submissions.drawing:  # each takes a process and its memory
            made = await make_grid(context.store, context.workspace, batch, options)
    except NoGrid as error:
        raise Problem(409, str(error).replace("--", ""), "Change the layout, or wait for results.") from None
    await context.store.run(ops.note_grid, batch, context.workspace.shown(made.pictures[0]))
    await by.audit(EventName.AUDIT_BATCH_GRID, batch_id=batch.id)
    return {
        "pictures": [context.workspace.shown(each) for each in made.pictures],
        "page": context.workspace.shown(made.page),
    }


@router.post("/{batch_id}/cancel", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def cancel(context: Here, by: By, batch_id: BatchId) -> Any:
    """Cancel what has not ended of a batch. Its prompts are taken back; no other is touched."""
    batch = await batch_named(context, batch_id)
    by.check_owner(batch)
    ended = await ops.cancel_batch(context.store, batch.id)
    if ended is None:
        state = "still being queued" if batch.status is BatchStatus.PENDING else f"{batch.status} already"
        raise Problem(409, f"{batch.id} is {state}", "There is nothing to cancel.")
    await by.audit(EventName.AUDIT_BATCH_CANCEL, batch_id=batch.id, message=counted(ended, "job"))
    context.submissions.later(take_back(context.store, context.workspace, batch.id))
    return await _now(context, batch)


@router.post("/{batch_id}/retry", status_code=202, response_model=BatchShown, responses=problems(404, 409, sends=True))
async def retry(context: Here, by: By, batch_id: BatchId, said: Annotated[RetryBatchSaid | None, Body()] = None) -> Any:
    """Render the failed members again; what is done stays. The grid is made anew at the end."""
    batch = await batch_named(context, batch_id)
    by.check_owner(batch)
    async with by.room(batch.failed):
        count = await context.store.run(ops.retry_batch, batch.id, with_cancelled=said is not None and said.cancelled)
    if not count:
        remedy = (
            'What was cancelled or dismissed: {"cancelled": true}.' if batch.failed else "There is nothing to retry."
        )
        raise Problem(409, f"nothing of {batch.id} needs attention", remedy)
    await by.audit(EventName.AUDIT_BATCH_RETRY, batch_id=batch.id, message=counted(count, "job"))
    return await _now(context, batch)


@router.post("/{batch_id}/dismiss", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def dismiss(context: Here, by: By, batch_id: BatchId) -> Any:
    """Put the failed members of a batch out of what needs attention. They stay in the history."""
    batch = await batch_named(context, batch_id)
    by.check_owner(batch)
    count = await context.store.run(ops.dismiss_batch, batch.id)
    if not count:
        raise Problem(409, f"nothing of {batch.id} needs attention", "There is nothing to dismiss.")
    await by.audit(EventName.AUDIT_JOB_DISMISS, batch_id=batch.id, message=counted(count, "job"))
    return await _now(context, batch)


@router.post("/{batch_id}/pause", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def pause(context: Here, by: ByAdmin, batch_id: BatchId) -> Any:
    """What waits stays waiting, what is at a server runs on. For admins."""
    batch = await batch_named(context, batch_id)
    if not await context.store.run(ops.pause_batch, batch.id) and not batch.is_paused:
        raise Problem(409, f"{batch.id} is {batch.status}", "There is nothing to pause.")
    await by.audit(EventName.AUDIT_BATCH_PAUSE, batch_id=batch.id)
    return await _now(context, batch)


@router.post("/{batch_id}/resume", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def resume(context: Here, by: ByAdmin, batch_id: BatchId) -> Any:
    """Let a paused batch go on. For admins."""
    batch = await batch_named(context, batch_id)
    if not await context.store.run(ops.resume_batch, batch.id):
        raise Problem(409, f"{batch.id} is not paused", "There is nothing to resume.")
    await by.audit(EventName.AUDIT_BATCH_RESUME, batch_id=batch.id)
    return await _now(context, batch)


async def _now(context: Context, batch: Batch) -> dict[str, Any]:
    found = await context.store.run(ops.find_batch, batch.id)
    return shown_batch(found or batch)
