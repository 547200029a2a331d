"""/api/v1/batches: sweeps, books, bursts and files that were added as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import Field, StrictBool

from comfyui_agent.access.problem import Problem
from comfyui_agent.batches.axes import Bounds
from comfyui_agent.batches.grids import GridOptions
from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.sweep_request import GridAxes, SweepFile, SweepRequest
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, mint_batch_id
from comfyui_agent.domain.combinations import Combinations
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.service import take_back
from comfyui_agent.pools import FILES, RENDERING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.records import Digest
from comfyui_agent.usecases import batches as usecases
from comfyui_agent.usecases.sweeps import Defined, Planner, plan_sweep, queue_sweep
from comfyui_agent.web.api.models import (
    BatchAwaited,
    BatchMade,
    BatchPageShown,
    BatchShown,
    BatchWhole,
    GridMade,
    MemberShown,
    ResultPage,
    SweepPlan,
)
from comfyui_agent.web.api.parameters import (
    PREFIX,
    By,
    ByAdmin,
    Cursor,
    ExternalId,
    Here,
    Limit,
    NamedBatch,
    OwnKey,
    Said,
    User,
)
from comfyui_agent.web.api.responses import MOST_BYTES, FileAnswer, fields_of, listed, maker_of, shown_batch
from comfyui_agent.web.context import Context
from comfyui_agent.web.idempotency import IdempotentRequest, Key, once
from comfyui_agent.web.openapi import AsInteger, file_answers, problems
from comfyui_agent.web.problems import JsonAnswer
from comfyui_agent.web.submissions import check_bytes
from comfyui_agent.web.sweep_planning import CallersPlanner
from comfyui_agent.web.waiting import Seconds, until_ended

MOST_WITH_JOBS = 1_000
MOST_PLANNED = 1_000
MOST_LETTERS = 1_000_000
MOST_JOBS = 100_000
BOUNDS = Bounds(combinations=MOST_JOBS, values=2 * MOST_JOBS)
GRID_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src 'self' data:; media-src 'self'; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
)
"""The page beside a grid has its script inside. It runs there without the rights of whoever looks."""

router = APIRouter(prefix=f"{PREFIX}/batches", tags=["batches"])


class NewSweepSaid(SweepFile):
    """A sweep: what a sweep.yaml says. Values are texts such as `1..4`, or lists."""

    skip_bad: StrictBool = Field(default=False, description="Leave bad values out, with a warning.")
    dry_run: StrictBool = Field(default=False, description="Only say what would be queued.")
    external_id: ExternalId = None


class RetryBatchSaid(Said):
    cancelled: bool = Field(default=False, description="What was cancelled or dismissed, too.")


class GridSaid(Said):
    """How the grid shall be laid out; as it was defined where nothing is said."""

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
    caller: User,
    kind: Annotated[BatchKind | None, Query(description="Only batches of this kind.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    external_id: OwnKey = None,
) -> Any:
    """Batches, the newest first."""
    if external_id is not None:
        return await the_batch_with(context, caller, external_id, kind, "batches")
    return await page_of_batches(context, kind, limit, cursor, "batches")


async def the_batch_with(
    context: Context, caller: User, external_id: str, kind: BatchKind | None, noun: str
) -> dict[str, Any]:
    """A list of the one batch that has a key of the caller."""
    holder = await context.store.run(ops.find_external_id, caller.token_id, external_id)
    batch = await context.store.run(ops.find_batch, holder.id) if holder and holder.kind != "job" else None
    return {noun: [shown_batch(batch)] if batch and kind in (None, batch.kind) else [], "next": None}


async def page_of_batches(
    context: Context, kind: BatchKind | None, limit: int, cursor: str | None, noun: str
) -> dict[str, Any]:
    page = await context.store.run(ops.batch_page, kind, cursor, limit)
    return {noun: [shown_batch(batch) for batch in page.batches], "next": page.cursor}


@router.post(
    "",
    status_code=201,
    response_model=BatchMade,
    responses={200: {"model": SweepPlan, "description": "What would be queued"}, **problems(404, 409, sends=True)},
)
async def create(
    context: Here, by: By, caller: User, request: Request, said: NewSweepSaid, key: Key = None
) -> Response:
    """Queue a workflow for every combination of some values. It is yours: other users cannot change it."""
    planner = CallersPlanner(context.planning, caller.scope, request)
    if said.dry_run:
        return JsonAnswer(shown_plan(await _plan(context, said, planner)))

    async def make(batch_id: str) -> dict[str, Any]:
        by.check_priority(said.priority)
        plan = await _plan(context, said, planner, batch_id)
        check_bytes(plan.sweep.stored_bytes, f"{len(plan.sweep):,} jobs", "e3 sweep")
        batch = await queue_sweep(context.store, context.workspace, by, plan.sweep, external_id=said.external_id)
        return shown_batch(batch) | {"warnings": list(plan.warnings)}

    async def find(batch_id: str) -> dict[str, Any] | None:
        batch = await context.store.run(ops.find_batch, batch_id)
        if batch is None or batch.status is BatchStatus.PENDING:
            return None
        return shown_batch(batch) | {"warnings": []}

    wanted = IdempotentRequest(key=key, route="batches", body=said.model_dump(mode="json", exclude_unset=True))
    batch_id = mint_batch_id(said.name or said.workflow, "sweep")
    return await once(context, caller, wanted, batch_id, make, find)


async def _plan(context: Context, said: NewSweepSaid, planner: Planner, batch_id: str = "") -> Defined:
    default = context.workspace.settings.default_priority
    wanted = SweepRequest(
        workflow=await context.submissions.workflow(said.workflow),
        sets=said.set,
        inputs=said.inputs,
        mode=said.mode,
        name=said.name,
        job_type=said.job_type,
        priority=default if said.priority is None else said.priority,
        grid=GridAxes(said.grid.x, said.grid.y, said.grid.pages),
        skip_bad=said.skip_bad,
        batch_id=batch_id,
    )
    return await plan_sweep(context.workspace, wanted, _no_lists, planner, bounds=BOUNDS)


def _no_lists(name: str) -> Sequence[str]:
    raise ValueError(f"@{name[:100]} names a file, which is for the command line: send the values themselves")


def shown_plan(found: Defined) -> dict[str, Any]:
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
    """The first combinations, as many as an answer has room for."""
    found: list[dict[str, Any]] = []
    room = MOST_LETTERS
    for index in range(min(len(combinations), MOST_PLANNED)):
        found.append(combinations.values_at(index))
        room -= sum(len(str(value)) for value in found[-1].values())
        if room < 0:
            break
    return found


@router.get("/{batch_id}", response_model=BatchWhole, responses=problems(404, 409))
async def show(context: Here, _: User, batch: NamedBatch) -> Any:
    """One batch: how it stands, its axes, and its jobs where they are not too many."""
    return await _whole(context, batch)


@router.get("/{batch_id}/wait", response_model=BatchAwaited, responses=problems(404, 409))
async def wait(context: Here, caller: User, request: Request, batch: NamedBatch, seconds: Seconds = 25) -> Any:
    """The same, as soon as all of it has ended, or after so many seconds as it is then. Ask again until `is_ended`."""
    found, is_ended = await ended_batch(context, caller, request, batch, seconds)
    return await _whole(context, found, is_ended=is_ended)


async def ended_batch(
    context: Context, caller: User, request: Request, batch: Batch, seconds: int
) -> tuple[Batch, bool]:
    """A batch once it has ended, or as it is after a time; and whether it has."""

    async def now() -> Batch:
        return await context.store.run(ops.find_batch, batch.id) or batch

    async def has_ended() -> bool:
        return (await now()).status.has_ended

    is_ended = await until_ended(context.event_feed, request, caller, batch.id, has_ended, seconds)
    return await now(), is_ended


async def _whole(context: Context, batch: Batch, **more: Any) -> JsonAnswer:
    members = JobFilter(batch_id=batch.id)
    page = await context.store.run(ops.job_page, members, None, MOST_WITH_JOBS, most_bytes=MOST_BYTES)
    shown = shown_batch(batch) | await maker_of(context, batch) | {"axes": batch.metadata.get("axes"), **more}
    shown["eta_seconds"] = await context.forecasts.left(batch)
    return await RENDERING.run(
        lambda: JsonAnswer(shown | {"jobs": None if page.cursor else list(map(listed, page.jobs))})
    )


@router.get("/{batch_id}/results", response_model=ResultPage, responses=problems(404, 409))
async def results(context: Here, _: User, batch: NamedBatch, limit: Limit = 100, cursor: Cursor = None) -> Any:
    """The members of a batch in their order, each with its settings and its results."""
    page = await context.store.run(ops.job_page, JobFilter(batch_id=batch.id), cursor, limit, most_bytes=MOST_BYTES)

    digests = await context.store.run(ops.digests_of, [path for job in page.jobs for path in job.outputs])

    def shown() -> JsonAnswer:
        found = [_member(context, batch, job, digests) for job in page.jobs]
        return JsonAnswer({"batch_id": batch.id, "results": found, "next": page.cursor})

    return await FILES.run(shown)


def _member(context: Context, batch: Batch, job: Job, digests: Mapping[str, Digest]) -> dict[str, Any]:
    is_failed = job.status is JobStatus.FAILED
    return fields_of(MemberShown, job) | {
        "index": job.batch_index,
        "name": job.config_name,
        "reason": (job.error_trace or "").partition("\n")[0] or None if is_failed else None,
        "settings": settings_of(job, batch),
        "results": list(map(asdict, context.outputs.shown(job, None, digests))),
    }


@router.get(
    "/{batch_id}/grid",
    response_class=FileResponse,
    responses={**file_answers("image/png", "image/jpeg"), **problems(409)},
)
async def grid(context: Here, _: User, batch: NamedBatch) -> Response:
    """The grid that was drawn of a batch."""
    path = await _drawn(batch, context.outputs.grid)
    kind = "image/jpeg" if path.suffix == ".jpg" else "image/png"
    return FileAnswer(path, media_type=kind, headers={"Cache-Control": "no-cache"})


@router.get(
    "/{batch_id}/grid/page", response_class=FileResponse, responses={**file_answers("text/html"), **problems(409)}
)
async def grid_page(context: Here, _: User, batch: NamedBatch) -> Response:
    """The page beside the grid: the same pictures in large, with their settings, to be compared and sent on."""
    path = await _drawn(batch, context.outputs.grid_page)
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": GRID_POLICY}
    return FileAnswer(path, media_type="text/html; charset=utf-8", headers=headers)


async def _drawn(batch: Batch, find: Callable[[str], Path]) -> Path:
    """A file of the grid. Problem 409 if none was drawn yet, 404 if it is gone."""
    if not batch.grid:
        reason = batch.grid_problem or ("it is being made" if batch.is_grid_due else "it is made when the batch ends")
        raise Problem(409, f"there is no grid of {batch.id} yet: {reason}", "Make one now with POST to …/grid.")
    try:
        return await FILES.run(find, batch.grid)
    except ValueError as error:
        raise Problem(404, str(error), "Make it again with POST to …/grid.") from None


@router.post("/{batch_id}/grid", status_code=201, response_model=GridMade, responses=problems(404, 409, sends=True))
async def draw(context: Here, by: By, batch: NamedBatch, said: Annotated[GridSaid | None, Body()] = None) -> Any:
    """Make the grid of a batch again, as it stands now or laid out in another way."""
    said = said or GridSaid()
    options = GridOptions(GridAxes(said.x, said.y, said.pages), said.cell, said.format)
    async with context.submissions.drawing:
        made = await usecases.draw_grid(context.store, context.workspace, by, batch, options)
    return {
        "pictures": [context.workspace.shown(each) for each in made.pictures],
        "page": context.workspace.shown(made.page),
    }


@router.post("/{batch_id}/cancel", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def cancel(context: Here, by: By, batch: NamedBatch) -> Any:
    """Cancel what has not ended of a batch. Its prompts are taken back; no other is touched."""
    change = await usecases.cancel_batch(context.store, by, batch)
    context.submissions.background.start(take_back(context.store, context.workspace, change.batch.id))
    return shown_batch(change.batch)


@router.post("/{batch_id}/retry", status_code=202, response_model=BatchShown, responses=problems(404, 409, sends=True))
async def retry(context: Here, by: By, batch: NamedBatch, said: Annotated[RetryBatchSaid | None, Body()] = None) -> Any:
    """Render the failed members again; what is done stays. The grid is made anew at the end."""
    change = await usecases.retry_batch(context.store, by, batch, with_cancelled=said is not None and said.cancelled)
    cancelled = 'What was cancelled or dismissed: {"cancelled": true}.'
    return _shown_change(change, cancelled if batch.failed else "There is nothing to retry.")


@router.post("/{batch_id}/dismiss", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def dismiss(context: Here, by: By, batch: NamedBatch) -> Any:
    """Put the failed members of a batch out of what needs attention. They stay in the history."""
    change = await usecases.dismiss_batch(context.store, by, batch)
    return _shown_change(change, "There is nothing to dismiss.")


@router.post("/{batch_id}/pause", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def pause(context: Here, by: ByAdmin, batch: NamedBatch) -> Any:
    """What waits stays waiting, what is at a server runs on. For admins."""
    return shown_batch(await usecases.pause_batch(context.store, by, batch))


@router.post("/{batch_id}/resume", status_code=202, response_model=BatchShown, responses=problems(404, 409))
async def resume(context: Here, by: ByAdmin, batch: NamedBatch) -> Any:
    """Let a paused batch go on. For admins."""
    return shown_batch(await usecases.resume_batch(context.store, by, batch))


def _shown_change(change: usecases.BatchChange, remedy: str) -> dict[str, Any]:
    """The batch after a change; 409 if no job was changed."""
    if not change.jobs:
        raise Problem(409, f"nothing of {change.batch.id} needs attention", remedy)
    return shown_batch(change.batch)
