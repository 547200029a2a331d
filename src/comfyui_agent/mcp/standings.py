"""How jobs and batches stand, in the words of the page, and what to do next."""

from __future__ import annotations

from typing import Any

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.name_lookup import ENDINGS, NoBatch, SeveralBatches, find_batch
from comfyui_agent.domain.badges import badge_of
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention, printable, whole
from comfyui_agent.engine.live_runs import read_live
from comfyui_agent.mcp.answers import Failed, Standing, State
from comfyui_agent.mcp.host import Client, Host
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.records import Holder
from comfyui_agent.usecases.errors import NotFound, NotPossible
from comfyui_agent.usecases.whereabouts import find_whereabouts

MOST_RESULTS, MOST_FAILED = 10, 5
UNATTENDED = "No agent of E3 works this queue off: have e3 run started in its workspace. What is queued is kept. "


def short(text: str, longest: int = 400) -> str:
    return whole(printable(text), longest)


async def find_thing(host: Host, client: Client, name: str) -> Job | Batch:
    """A job, batch or book by the caller's own key, else by its id or name. NotFound if there is none."""
    holder = await host.store.run(ops.find_external_id, client.actor.token_id, name)
    if holder is not None:
        return await held(host, holder)
    for each in (name, *(f"{name}{ending}" for ending in ENDINGS)):
        if (job := await host.store.run(ops.find_job, each)) is not None:
            return job
    try:
        return await find_batch(host.store, name)
    except SeveralBatches as error:
        raise NotPossible(error.message, f"{error.remedy.capitalize()}.") from None
    except NoBatch:
        message = f"no job, batch or book has the id, name or key {short(name, 100)!r}"
        raise NotFound(
            message, "If you meant to make it: it was not made. status without an id shows the queue."
        ) from None


async def held(host: Host, holder: Holder) -> Job | Batch:
    """What has a key."""
    found: Job | Batch | None
    if holder.kind == "job":
        found = await host.store.run(ops.find_job_by_id, JobId(int(holder.id)))
    else:
        found = await host.store.run(ops.find_batch, holder.id)
    if found is None:
        raise NotFound(f"{holder.name} was removed just now")
    return found


async def again(host: Host, thing: Job | Batch) -> Job | Batch:
    """The same thing as it is now."""
    if isinstance(thing, Job):
        return await host.store.run(ops.find_job_by_id, thing.id) or thing
    return await host.store.run(ops.find_batch, thing.id) or thing


def has_ended(thing: Job | Batch) -> bool:
    if isinstance(thing, Batch):
        return thing.status.has_ended
    return thing.status in (JobStatus.DONE, JobStatus.FAILED)


def name_of(thing: Job | Batch) -> str:
    return short(thing.config_name if isinstance(thing, Job) else thing.id, 100)


def state_of(thing: Job | Batch) -> State:
    """The word of the page. A batch is done only if all of its members are."""
    if isinstance(thing, Job):
        word: State = badge_of(thing).word  # type: ignore[assignment]  # these are its words
        return word
    if thing.status is BatchStatus.EXPIRED:
        return "Needs attention"
    is_being_filled = thing.status is BatchStatus.PENDING
    word = _word(thing.pending or is_being_filled, thing.processing, thing.attention, thing.total - thing.done)
    return "Cancelled" if word == "Dismissed" and thing.status is BatchStatus.CANCELLED else word


def _word(pending: int, processing: int, needy: int, missing: int) -> State:
    if processing or pending:
        return "Rendering" if processing else "Pending"
    return "Needs attention" if needy else "Dismissed" if missing else "Done"


async def standing_of(host: Host, client: Client, thing: Job | Batch, *, is_new: bool | None = None) -> Standing:
    found = await (_of_job(host, client, thing) if isinstance(thing, Job) else _of_batch(host, client, thing))
    if is_new is False:
        found.summary = f"Its key had made it before; nothing was made now. {found.summary}"
    found.is_new = is_new
    return await _attended(host, found)


async def _of_job(host: Host, client: Client, job: Job) -> Standing:
    name, state, ended = job.config_name, state_of(job), has_ended(job)
    is_done, live = job.status is JobStatus.DONE, None
    if not ended:
        live = next((run for run in await FILES.run(read_live, host.workspace.locks) if run.job_id == job.id), None)
    where = await find_whereabouts(host.store, host.intake, job, host.reports)
    numbers = range(1, min(len(job.outputs), MOST_RESULTS) + 1) if is_done else ()
    facts: dict[str, Any] = {
        "progress": live.step / live.steps if live and live.steps else None,
        "eta_seconds": None if ended else await host.forecasts.left(),
        "results": [client.address(host, job, number) for number in numbers],
        "failed": [_failed(job)] if job.needs_attention else [],
        "summary": short(f"{name}: {state}; it {where.sentence}."),
        "next": _next(str(job.id), state, "it"),
    }
    facts |= {"key": job.external_id, "total": 1, "done": int(is_done), "attention": int(job.needs_attention)}
    return Standing(kind="job", id=str(job.id), name=name, state=state, ended=ended, **facts)


async def _of_batch(host: Host, client: Client, batch: Batch) -> Standing:
    is_book, state, ended = batch.kind is BatchKind.BOOK, state_of(batch), has_ended(batch)
    eta = None if ended else await host.forecasts.left(batch)
    wanted = JobFilter(batch_id=batch.id, attention=True)
    needy = (await host.store.run(ops.job_page, wanted, None, MOST_FAILED)).jobs if batch.attention else []
    shows = f"pages, with number=1 to {batch.total}" if is_book else "its grid, with number=N one of its members"
    facts: dict[str, Any] = {key: getattr(batch, key) for key in ("id", "name", "total", "done", "attention")} | {
        "progress": batch.ended / batch.total if batch.total else None,
        "eta_seconds": eta,
        "results": [client.grid_address(host, batch.id, batch.grid)] if batch.grid else [],
        "failed": [_failed(job) for job in needy],
        "summary": line_of(batch, eta),
        "next": "An admin has paused it, and resumes it." if batch.is_paused else _next(batch.id, state, shows),
    }
    return Standing(kind="book" if is_book else "batch", key=batch.external_id, state=state, ended=ended, **facts)


def line_of(batch: Batch, eta: float | None = None) -> str:
    return short(f"{batch.kind} {batch.id}: {state_of(batch)}; {sentence(batch, seconds_left=eta)}.")


async def workspace_standing(host: Host) -> Standing:
    """All jobs together, and the newest that need attention."""
    counts = await host.store.run(ops.count_jobs)
    needy = await host.store.run(ops.list_jobs, attention=True, limit=MOST_FAILED) if counts.attention else []
    numbers = f"{counts.done:,} done, {counts.processing:,} rendering, {counts.pending:,} pending"
    facts: dict[str, Any] = {key: getattr(counts, key) for key in ("total", "done", "attention")} | {
        "state": _word(counts.pending, counts.processing, counts.attention, counts.failed),
        "eta_seconds": None if counts.is_idle else await host.forecasts.left(),
        "failed": [_failed(job) for job in needy],
        "summary": f"{numbers}, {attention(counts.attention)}.",
        "next": "status(id) tells more of one." if needy else "list_workflows shows what can be made.",
    }
    name = host.workspace.root.resolve().name
    return await _attended(host, Standing(kind="workspace", id="", name=name, ended=counts.is_idle, **facts))


async def _attended(host: Host, found: Standing) -> Standing:
    """The same; if something waits and nobody works it off, that comes first."""
    if not found.ended and not await ops.is_attended(host.store, host.workspace.locks):
        found.next = UNATTENDED + found.next
    return found


def _failed(job: Job) -> Failed:
    number = None if job.batch_index is None else job.batch_index + 1
    reason = short((job.error_trace or "").partition("\n")[0] or "no reason is on record")
    return Failed(id=str(job.id), name=short(job.config_name, 100), number=number, reason=reason)


def _next(name: str, state: State, shows: str) -> str:
    match state:
        case "Done":
            return f'get_result(id="{name}") shows {shows}.'
        case "Needs attention":
            return (
                f'Read the reasons in failed. Mended? retry(id="{name}"). Wrong inputs? Submit others with a new key.'
            )
        case "Cancelled" | "Dismissed":
            return f'Nothing more happens; retry(id="{name}", cancelled=true) renders it after all.'
        case _:
            return f'wait(id="{name}", seconds=50), again and again until ended is true. It goes on without you, too.'
