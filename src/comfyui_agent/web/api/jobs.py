"""/api/v1/jobs: the queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import ConfigDict, Field, model_validator

from comfyui_agent.access.problem import Problem, ended_early
from comfyui_agent.config.settings import Priority
from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import DONE, REJECT, STAR, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.intake.job_file import JobFile
from comfyui_agent.pools import FILES, RENDERING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter, Rated
from comfyui_agent.usecases import jobs as usecases
from comfyui_agent.usecases.job_files import retry_jobs
from comfyui_agent.usecases.whereabouts import Whereabouts
from comfyui_agent.web.api.job_models import (
    Changed,
    GivenShown,
    JobAwaited,
    JobPageShown,
    JobRemoved,
    JobRow,
    JobShown,
    LiveFacts,
)
from comfyui_agent.web.api.parameters import (
    PREFIX,
    By,
    ByAdmin,
    Cursor,
    ExternalId,
    Here,
    Limit,
    Moment,
    NamedJob,
    OwnKey,
    Said,
    User,
)
from comfyui_agent.web.api.responses import MOST_BYTES, fields_of, listed, maker_of, whole_job
from comfyui_agent.web.context import Context
from comfyui_agent.web.idempotency import IdempotentRequest, Key, once
from comfyui_agent.web.openapi import AsInteger, problems
from comfyui_agent.web.problems import JsonAnswer
from comfyui_agent.web.waiting import Seconds, until_ended

MOST_NAMES = 10_000
MOST_AT_ONCE = 100_000
LONG_LIST = 100
"""Longer lists of jobs have a share of the time, because their rows may be large."""

NAME = r"^[^/\\\x00-\x1f\x7f]*[^/\\\x00-\x1f\x7f0-9][^/\\\x00-\x1f\x7f]*$"
"""Something that is no digit is in it: a job can be named by its id, too."""
Kind = Literal["T2I", "I2I", "T2V", "I2V", "AUDIO", "T2A", "SPEECH", "TTS", "T2S", "3D"]

router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["jobs"])


class NewJobSaid(JobFile):
    """One job: what a job file says, and a name if you like."""

    job_type: Kind = Field(description="What it makes.")
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=NAME)] | None = Field(
        default=None,
        description="Its config_name; else one is made. No other job may have it, and no id looks like it.",
    )
    external_id: ExternalId = None


class PrioritySaid(Said):
    priority: Annotated[Priority, AsInteger] = Field(description="Lower runs earlier.")


class RatingSaid(Said):
    rating: Literal["star", "reject"] | None = Field(description="null: neither.")

    @property
    def number(self) -> int | None:
        return {"star": STAR, "reject": REJECT}.get(self.rating or "")


JobNames = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=300)]], Field(min_length=1, max_length=MOST_NAMES)
]


class NamesSaid(Said):
    names: JobNames


class RatedSaid(RatingSaid, NamesSaid):
    """Which jobs, and what you think of their results."""


class FailedSaid(Said):
    """Which jobs: by name, or all that need attention: failed, not cancelled, not dismissed."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["names"]}, {"required": ["failed"]}]})

    names: JobNames = Field(default=[])
    failed: bool = Field(default=False, json_schema_extra={"const": True})

    @model_validator(mode="after")
    def _one_of_both(self) -> FailedSaid:
        if len(self.model_fields_set) != 1 or not (self.names or self.failed):
            raise ValueError("give names, or failed: true")
        return self


@router.get("", response_model=JobPageShown, responses=problems(404))
async def list_jobs(
    context: Here,
    caller: User,
    request: Request,
    status: Annotated[JobStatus | None, Query(description="Only jobs in this state.")] = None,
    q: Annotated[str, Query(max_length=200, description="A part of the name.")] = "",
    batch: Annotated[str | None, Query(max_length=300, description="Only jobs of this batch.")] = None,
    workflow: Annotated[str | None, Query(max_length=300)] = None,
    server: Annotated[str | None, Query(max_length=300, description="The address of a server.")] = None,
    job_type: Annotated[str | None, Query(alias="type", max_length=50)] = None,
    failure_class: FailureClass | None = None,
    attention: Annotated[
        bool | None,
        Query(description="true: only what needs attention. false: only what failed and was cancelled or dismissed."),
    ] = None,
    rated: Rated | None = None,
    model: Annotated[str | None, Query(max_length=300, description="A model file that its workflow names.")] = None,
    since: Annotated[Moment | None, Query(description="Only what ended then or later.")] = None,
    until: Annotated[Moment | None, Query(description="Only what ended before.")] = None,
    prompt: Annotated[str, Query(max_length=200, description="Words of the prompt. Only results are found.")] = "",
    external_id: OwnKey = None,
    order: Annotated[
        Literal["newest"] | None,
        Query(description="newest: by age, so that each is there once, whatever happens meanwhile."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Any:
    """What renders, what waits in its order, what needs attention, what is done; or only what you ask for."""
    if external_id is not None:
        holder = await context.store.run(ops.find_external_id, caller.token_id, external_id)
        job = await context.store.run(ops.find_job_by_id, int(holder.id)) if holder and holder.kind == "job" else None
        return JsonAnswer({"jobs": [listed(job)] if job else [], "next": None, "is_whole": True})
    wanted = JobFilter(
        status=status,
        text=q,
        batch_id=batch,
        workflow_id=workflow,
        server=server,
        job_type=job_type,
        failure_class=failure_class.value if failure_class else None,
        attention=attention,
        rated=rated,
        model=model,
        since=since,
        until=until,
        prompt=prompt,
        is_by_age=order is not None,
    )
    async with context.long_lists.turn() if limit > LONG_LIST else nullcontext():
        await _check_there(request)
        page = await context.store.run(ops.job_page, wanted, cursor, limit, most_bytes=MOST_BYTES)
        await _check_there(request)
        return await RENDERING.run(
            lambda: JsonAnswer({"jobs": [*map(listed, page.jobs)], "next": page.cursor, "is_whole": page.is_whole})
        )


async def _check_there(request: Request) -> None:
    """Stop if the caller is gone."""
    if await request.is_disconnected():
        raise ended_early()


@router.post("", status_code=201, response_model=JobRow, responses=problems(404, 409, sends=True))
async def submit(context: Here, by: By, caller: User, said: NewJobSaid, key: Key = None) -> Response:
    """Queue one job, as a job file would. It is yours: other users cannot change it."""
    body = said.model_dump(mode="json", exclude_unset=True)
    request = IdempotentRequest(key=key, route="jobs", body=dict(body))
    name, external_id = body.pop("name", None), body.pop("external_id", None)
    name = name or mint_batch_id(said.workflow_id, "job")

    async def make(name: str) -> dict[str, Any]:
        await context.submissions.workflow(said.workflow_id)
        job = await usecases.submit_job(
            context.store, context.submissions.intake, by, body, name, external_id=external_id
        )
        return job.as_json()

    async def find(name: str) -> dict[str, Any] | None:
        job = await context.store.run(ops.find_job_by_name, name)
        return None if job is None or job.digest != usecases.digest_of_request(body) else job.as_json()

    return await once(context, caller, request, name, make, find)


@router.post("/retry", status_code=202, response_model=Changed, responses=problems(409, sends=True))
async def retry_several(context: Here, by: By, said: FailedSaid) -> Any:
    """Submit failed jobs again: those that are named, or all of yours that need attention."""
    jobs, unknown = await _meant(context, by, said)
    answers = await retry_jobs(context.store, context.submissions.intake, by, jobs, is_list=True)
    return _changed(context, answers, unknown)


@router.post("/cancel", status_code=202, response_model=Changed, responses=problems(sends=True))
async def cancel_several(context: Here, by: By, said: NamesSaid) -> Any:
    """Cancel jobs that wait or render. Their prompts are taken back; no other is touched."""
    jobs, unknown = await named_jobs(context, said.names)
    return _changed(context, await usecases.cancel_jobs(context.store, by, jobs, is_list=True), unknown)


@router.post("/dismiss", status_code=202, response_model=Changed, responses=problems(sends=True))
async def dismiss_several(context: Here, by: By, said: FailedSaid) -> Any:
    """Put failed jobs out of what needs attention: those that are named, or all of yours. They stay in the history."""
    jobs, unknown = await _meant(context, by, said)
    return _changed(context, await usecases.dismiss_jobs(context.store, by, jobs, is_list=True), unknown)


@router.post("/rate", response_model=Changed, responses=problems(sends=True))
async def rate_several(context: Here, by: By, said: RatedSaid) -> Any:
    """Give results a star, reject them, or take that back."""
    jobs, unknown = await named_jobs(context, said.names)
    answers = await usecases.rate_jobs(context.store, by, jobs, said.number, is_list=True)
    return _changed(context, answers, unknown)


@router.get("/{name}", response_model=JobShown, responses=problems(404))
async def show(context: Here, _: User, job: NamedJob) -> Any:
    """One job: its state, its results, every run and what went wrong."""
    return JsonAnswer(await _whole(context, job))


@router.get("/{name}/wait", response_model=JobAwaited, responses=problems(404))
async def wait(context: Here, caller: User, request: Request, job: NamedJob, seconds: Seconds = 25) -> Any:
    """The same, as soon as it has ended, or after so many seconds as it is then. Ask again until `is_ended`."""

    async def now() -> Job:
        return await context.store.run(ops.find_job_by_id, job.id) or job

    async def has_ended() -> bool:
        return (await now()).status in (JobStatus.DONE, JobStatus.FAILED)

    is_ended = await until_ended(context.event_feed, request, caller, job.id, has_ended, seconds)
    return JsonAnswer(await _whole(context, await now()) | {"is_ended": is_ended})


async def _whole(context: Context, job: Job) -> dict[str, Any]:
    attempts = await context.store.run(ops.list_attempts, job.id)
    sending = await context.submissions.sending(job, attempts)
    run = next((run for run in await context.fleet.live() if run.job_id == job.id), None)
    live = None if run is None else fields_of(LiveFacts, run)
    if live is not None:
        live["preview"] = f"{PREFIX}/jobs/{job.id}/preview?v={live['preview']}" if live["preview"] else None
    digests = await context.store.run(ops.digests_of, job.outputs)
    more = {
        "attempts": [attempt.as_json() for attempt in attempts],
        "models": sending.models,
        "seeds": sending.seeds,
        "from_cache": job.reused_from is not None
        or any(run.is_cached for run in [each for each in attempts if each.outcome == DONE][-1:]),
        "given": [fields_of(GivenShown, each) for each in sending.given],
        "results": list(map(asdict, await FILES.run(context.outputs.shown, job, None, digests))),
        "live": live,
    }
    return await whole_job(context, job) | await maker_of(context, job) | more


@router.get("/{name}/explain", response_model=Whereabouts, responses=problems(404))
async def explain(context: Here, _: User, job: NamedJob) -> Any:
    """Why a job runs where it does, or why it waits: a sentence, and for one that may run a line for each server."""
    return await context.whereabouts(job)


@router.put("/{name}/priority", response_model=JobRow, responses=problems(404, 409, sends=True))
async def set_priority(context: Here, by: By, job: NamedJob, said: PrioritySaid) -> Any:
    """Let a job run earlier or later; the next prompt that is handed out follows it. Users: down to their floor."""
    return JsonAnswer((await usecases.set_priority(context.store, by, job, said.priority)).as_json())


@router.put("/{name}/rating", response_model=JobRow, responses=problems(404, 409, sends=True))
async def rate_one(context: Here, by: By, job: NamedJob, said: RatingSaid) -> Any:
    """Give a result a star, reject it, or take that back. A new result of the job has no rating."""
    [answer] = await usecases.rate_jobs(context.store, by, [job], said.number)
    return await _accepted(context, job, answer.problem, "Wait until it has a result.", 200)


@router.post("/{name}/retry", status_code=202, response_model=JobRow, responses=problems(404, 409))
async def retry_one(context: Here, by: By, job: NamedJob) -> Any:
    """Submit a failed job again, a cancelled one included. A job file that is still there is read anew."""
    [answer] = await retry_jobs(context.store, context.submissions.intake, by, [job])
    return await _accepted(context, job, answer.problem, "See the job for how it stands.")


@router.post("/{name}/cancel", status_code=202, response_model=JobRow, responses=problems(404, 409))
async def cancel_one(context: Here, by: By, job: NamedJob) -> Any:
    """Cancel a job that waits or renders. Its prompt is taken back; no other is touched."""
    [answer] = await usecases.cancel_jobs(context.store, by, [job])
    return await _accepted(context, job, answer.problem, "There is nothing to cancel.")


@router.post("/{name}/dismiss", status_code=202, response_model=JobRow, responses=problems(404, 409))
async def dismiss_one(context: Here, by: By, job: NamedJob) -> Any:
    """Put a failed job out of what needs attention. It stays in the history; a retry brings it back."""
    [answer] = await usecases.dismiss_jobs(context.store, by, [job])
    problem = f"it {usecases.STATES[job.status]}" if answer.problem else ""
    return await _accepted(context, job, problem, "Only failed jobs can be dismissed.")


@router.post("/{name}/remove", response_model=JobRemoved, responses=problems(404, 409))
async def remove_one(context: Here, by: ByAdmin, job: NamedJob) -> Any:
    """Remove an ended job and its runs from the database. Its results stay on disk. For admins."""
    [answer] = await usecases.remove_jobs(context.store, context.workspace, by, [job])
    if answer.problem:
        raise Problem(409, f"{answer.name}: {answer.problem}", "Cancel it first, or wait until it has ended.")
    return {"removed": job.config_name, "results": list(job.outputs)}


@router.get("/{name}/workflow", responses=problems(404, 409))
async def workflow_of(context: Here, _: User, job: NamedJob) -> dict[str, Any]:
    """The template of a job, in ComfyUI's API format, the values that go into it by place, and what was sent.

    `sent` has what was filled in for the server with the last run, by place; `filled` is the whole prompt as it was
    sent. While nothing was, `sent` is null, and `filled` is what would be sent: the model for `auto` and names of files
    are not known yet.
    """
    template = await context.store.run(ops.find_template, job.template_hash) if job.template_hash else None
    if template is None:
        raise Problem(409, f"{job.config_name} has no template of its own", f"Its workflow is {job.workflow_id}.")
    sending = await context.submissions.sending(job, await context.store.run(ops.list_attempts, job.id))
    return {
        "workflow_id": job.workflow_id,
        "prompt": template.graph(),
        "inputs": (await whole_job(context, job))["inputs"],
        "sent": sending.attempt.as_json()["sent"] if sending.attempt else None,
        "filled": sending.graph,
    }


async def _meant(context: Context, by: By, said: FailedSaid) -> tuple[list[Job], list[str]]:
    """The jobs that a request means, and names that no job has. `failed` means only those of the caller."""
    if not said.failed:
        return await named_jobs(context, said.names)
    found: list[Job] = []
    cursor: str | None = ""
    while cursor is not None and len(found) < MOST_AT_ONCE:
        page = await context.store.run(ops.job_page, JobFilter(attention=True), cursor or None, 1_000)
        found += [job for job in page.jobs if by.may_change(job)]
        cursor = page.cursor
    return found, []


async def named_jobs(context: Context, names: Sequence[str]) -> tuple[list[Job], list[str]]:
    """The jobs that have these names or ids, each once, and the names that no job has."""
    named = {name: await context.job_named(name) for name in dict.fromkeys(names)}
    found = {job.id: job for job in named.values() if job is not None}
    return list(found.values()), [name for name, job in named.items() if job is None]


def _changed(context: Context, answers: Sequence[usecases.JobAnswer], unknown: Sequence[str]) -> dict[str, Any]:
    reasons = [(each.name, context.workspace.without_root(each.problem)) for each in answers if each.problem]
    reasons += [(name, "there is no such job") for name in unknown]
    refused = [{"name": name, "reason": reason} for name, reason in reasons]
    return {"changed": [each.name for each in answers if not each.problem], "refused": refused}


async def _accepted(context: Context, job: Job, problem: str, remedy: str, status: int = 202) -> JsonAnswer:
    """The job as it is after a change; 409 if there was a problem."""
    if problem:
        raise Problem(409, f"{job.config_name}: {problem}", remedy)
    found = await context.store.run(ops.find_job_by_id, job.id)
    return JsonAnswer((found or job).as_json(), status)
