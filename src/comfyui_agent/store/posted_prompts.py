"""Prompts that ComfyUI's clients posted at the gateway, and the files that they uploaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from comfyui_agent.domain.batches import LONGEST_NAME, BatchKind, NewBatch, mint_batch_id
from comfyui_agent.domain.events import Event
from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.prompts import Graph, place
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.batches import group_jobs
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.idempotency import KeyClaim, claim_key
from comfyui_agent.store.job_commands import submit_jobs
from comfyui_agent.store.operation import (
    Operation,
    OperationKind,
    column,
    command,
    figure,
    listing,
    query,
    statement,
    transition,
)
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record


@dataclass(frozen=True)
class NewPrompt:
    """What a client posted, beside the job that it becomes."""

    client_id: str | None
    number: float | None
    """Its place in the queue. None: behind all that came before, or in front of it."""
    is_front: bool
    extra_data: Mapping[str, Any]
    targets: Sequence[str]
    secrets: str | None = None
    """Keys for nodes that call services, sealed. They are forgotten when the prompt has ended."""


@dataclass(frozen=True)
class PostedPrompt:
    """A posted prompt and the state of its job. Times are UTC text."""

    job_id: JobId
    prompt_id: str
    client_id: str | None
    number: float
    extra_data: Mapping[str, Any]
    targets: tuple[str, ...]
    entry: Mapping[str, Any]
    """What the history of its server said; empty if it said nothing."""
    run_id: str | None
    created_by: int | None
    ended_at: str | None
    told_at: str | None
    status: str
    failure_class: str | None
    error_trace: str | None
    server: str | None
    outputs: tuple[str, ...]
    start_time: str | None
    end_time: str | None
    created_at: str | None
    template: Mapping[str, Any]
    inputs: Mapping[str, Any]
    has_run: bool
    priority: int = 0
    take: int | None = None

    @cached_property
    def graph(self) -> Graph:
        """The prompt as its client posted it."""
        return place(self.template, self.inputs)


@dataclass(frozen=True)
class OpenPrompt:
    """A posted prompt that waits or runs."""

    job_id: JobId
    prompt_id: str
    client_id: str | None
    status: str
    priority: int
    has_run: bool


@dataclass(frozen=True)
class ClientPrompt:
    """What an agent has to know of the client whose prompt it runs."""

    prompt_id: str
    client_id: str | None
    extra_data: Mapping[str, Any]
    targets: tuple[str, ...]
    secrets: str | None = None


@dataclass(frozen=True)
class NewFile:
    """A file that a server showed: `path` is the name that it should have, None for the next number of its prefix."""

    origin: str
    prefix: str
    ending: str
    path: str | None = None


@command
def post_prompt(
    session: Session, job: NewJob, prompt: NewPrompt, audit: Event | None = None, claim: KeyClaim | None = None
) -> tuple[JobId, float] | None:
    """Accept a prompt as a job that has its id as name. Returns its job and number. None: the id is taken. KeyUsed, and
    nothing is accepted, if its idempotency key was used before.

    What a client queues while a prompt of its own is open becomes one batch with it.
    """
    if claim is not None:
        claim_key(session, claim, job.config_name)
    facts = {"client_id": prompt.client_id, "created_by": job.created_by}
    earlier = session.one("open_prompt_of_client", **facts) if prompt.client_id is not None else None
    if earlier is not None and earlier["batch_id"] is not None:
        job = replace(job, batch_id=earlier["batch_id"], batch_index=earlier["next_index"])
    (job_id,) = submit_jobs(session, [job])
    if job_id is None:
        return None
    if earlier is not None and job.batch_id is None:
        name = f"client {prompt.client_id}"[:LONGEST_NAME]
        batch = NewBatch(mint_batch_id(name[:20], "client"), name, BatchKind.CLIENT, created_by=job.created_by)
        group_jobs(session, batch, [JobId(earlier["job_id"]), job_id])
    if audit is not None:
        add_event(session, audit, job_id=job_id)
    number = float(-job_id if prompt.is_front else job_id) if prompt.number is None else prompt.number
    session.send(
        "post_prompt",
        job_id=job_id,
        prompt_id=job.config_name,
        client_id=prompt.client_id,
        number=number,
        extra_data=json_text(prompt.extra_data),
        targets=list(prompt.targets),
        created_by=job.created_by,
        secrets=prompt.secrets,
    )
    return job_id, number


@query
def find_prompt(session: Session, prompt_id: str) -> PostedPrompt | None:
    row = session.one("posted_prompt", prompt_id=prompt_id)
    return None if row is None else record(PostedPrompt, row)


@query
def find_prompts(session: Session, ids: Sequence[JobId]) -> list[PostedPrompt]:
    """Prompts by their jobs, in that order. Those that are gone are left out."""
    found = {row["job_id"]: record(PostedPrompt, row) for row in session.rows("posted_prompts_by_id", ids=ids)}
    return [found[job_id] for job_id in ids if job_id in found]


@query
def queue_position(session: Session, job_id: JobId, priority: int, most: int) -> int:
    """How many jobs that may run come before a job. At most about twice `most` are counted."""
    row = session.one("jobs_ahead", id=job_id, priority=priority, most=most)
    return 0 if row is None else row["earlier"] + row["older"]


@query
def news_for_clients(
    session: Session, clients: Sequence[str], seconds: float, most: int
) -> tuple[list[PostedPrompt], int]:
    """Prompts of clients that have ended within so many seconds and were not told, oldest first; how many are open."""
    ids = [row["job_id"] for row in session.rows("untold_prompts", clients=list(clients), seconds=seconds, most=most)]
    return find_prompts(session, ids) if ids else [], session.value("count_open_prompts")


@query
def prompt_of_job(session: Session, job_id: JobId) -> ClientPrompt | None:
    row = session.one("prompt_of_job", job_id=job_id)
    return None if row is None else record(ClientPrompt, row)


open_prompts: Operation[[int | None, int], list[OpenPrompt]] = listing(OpenPrompt, "open_prompts", "owner", "most")
newest_prompts: Operation[[int | None, int, int], list[JobId]] = column(
    list, "newest_prompts", "owner", "before", "most"
)
"""All that were posted before one, newest first."""
count_open_prompts: Operation[[], int] = figure(int, "count_open_prompts")
first_posted_priority: Operation[[], int | None] = figure(lambda found: found, "first_posted_priority")
ended_prompts: Operation[[int | None, int], list[JobId]] = column(list, "ended_prompts", "owner", "most")
note_told: Operation[[Sequence[JobId]], int] = statement("note_told", "ids")
hide_prompts: Operation[[Sequence[JobId]], int] = statement("hide_prompts", "ids", kind=OperationKind.COMMAND)
note_interrupted: Operation[[JobId, str, str], int] = statement("note_interrupted", "job_id", "run_id", "entry")
keep_upload: Operation[[str, str], int] = statement("keep_upload", "path", "kept", kind=OperationKind.COMMAND)

newest_uploads: Operation[[int], list[str]] = column(list, "newest_uploads", "most")


@transition
def name_files(session: Session, job_id: JobId, files: Sequence[NewFile]) -> dict[str, str]:
    """Names for files that servers showed, by their origins. A file that has a name keeps it."""
    known = {row["origin"]: row["path"] for row in session.rows("names_of_files", job_id=job_id)}
    for file in files:
        if file.origin in known:
            continue
        path = file.path
        while path is None or not session.run("name_file", path=path, job_id=job_id, origin=file.origin):
            number = session.value("next_number_of_prefix", prefix=file.prefix)
            path = f"{file.prefix}_{number:05}_{file.ending}"
        known[file.origin] = path
    return known


@query
def owner_of_file_seen(session: Session, path: str) -> tuple[JobId, str] | None:
    """The job and the origin of a file by the name that clients see."""
    row = session.one("owner_of_posted_file", path=path)
    return None if row is None else (JobId(row["job_id"]), row["origin"])


@query
def find_uploads(session: Session, paths: Sequence[str]) -> dict[str, str]:
    """The kept input files of uploads, by their paths."""
    return {row["path"]: row["kept"] for row in session.rows("find_uploads", paths=list(paths))}
