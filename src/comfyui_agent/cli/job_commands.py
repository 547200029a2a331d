"""`e3 add`, `e3 retry`, `e3 cancel`, `e3 queue set-priority`: what people want of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.agents import prepare_folders
from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.named_jobs import find_jobs, say_if_nobody_works
from comfyui_agent.cli.output import fail, one_line, print_json, print_problem
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    Name,
    Names,
    opened,
    workspace_at,
)
from comfyui_agent.domain.badges import badge_of
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, counted_jobs
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.engine.intake.admission import Admission
    from comfyui_agent.engine.intake.submission import Answer
    from comfyui_agent.store.store import Store

EVERYTHING = 10_000_000


def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Job files, wherever they lie.")],
    batch: Annotated[str, typer.Option("--batch", metavar="NAME", help="Make a batch of them, to follow as one.")] = "",
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Queue jobs from files now, whether or not anyone watches the folder.

    A file that lies elsewhere is copied to jobs/processing/ first. A bad one is one line, and exit 1.

    [bold]Examples[/bold]

    e3 add knight.yaml
        One job.

    e3 add -C night ~/prompts/*.yaml --json
        Many, in another workspace, for a script.

    e3 add --batch tonight *.yaml
        As one batch: e3 batch watch tonight.
    """
    asyncio.run(_add(workspace_at(workspace, database, config=config), files, batch, as_json))


async def _add(workspace: Workspace, files: Sequence[Path], batch: str, as_json: bool) -> None:
    from comfyui_agent.domain.batches import BatchKind, NewBatch, mint_batch_id
    from comfyui_agent.engine.intake.submission import add_file

    prepare_folders(workspace)
    admission = _admission(workspace)
    async with opened(workspace, create=True) as store:
        answers = [await add_file(store, admission, workspace, path) for path in files]
        accepted = [answer.job.id for answer in answers if answer.job is not None and not answer.problem]
        await note_jobs(store, EventName.AUDIT_JOB_SUBMIT, answers)
        if batch and accepted:
            made = NewBatch(mint_batch_id(batch, "files"), batch, BatchKind.FILES)
            count = await store.run(ops.group_jobs, made, accepted)
            typer.echo(
                f"{counted(count, 'job is', 'jobs are')} the batch {made.id}. Follow: e3 batch watch {made.id}",
                err=True,
            )
            if as_json:  # as they are now
                answers = [
                    replace(each, job=await store.run(ops.find_job_by_name, each.name) or each.job) for each in answers
                ]
    if not as_json and accepted:
        say_if_nobody_works(workspace)
    answer(answers, as_json)


def retry(
    names: Names = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All that need attention; not what was cancelled or dismissed.")
    ] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Submit failed jobs again, with a fresh count of retries. A job file that is still there is read anew.

    [bold]Examples[/bold]

    e3 retry knight.yaml
        One job, a cancelled one included.

    e3 retry --failed
        Everything that needs attention.
    """
    if bool(names) == failed:
        fail("name the jobs, or say --failed", code=2)
    asyncio.run(_retry(workspace_at(workspace, database, config=config), names or [], as_json))


async def _retry(workspace: Workspace, names: Sequence[str], as_json: bool) -> None:
    from comfyui_agent.engine.intake.submission import retry as submit_again

    admission = _admission(workspace)
    async with opened(workspace) as store:
        if names:
            jobs = await find_jobs(store, names)
        else:
            jobs = await store.run(ops.list_jobs, attention=True, limit=EVERYTHING)
        answers = await submit_again(store, admission, workspace, jobs)
        await note_jobs(store, EventName.AUDIT_JOB_RETRY, answers)
    if not answers and not as_json:
        typer.echo("Nothing needs attention.")
    answer(answers, as_json)


def cancel(
    names: Names = None,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Cancel jobs that wait or render. A prompt at a server is taken back by the agent; other prompts are not touched.

    [bold]Examples[/bold]

    e3 cancel knight.yaml castle.yaml
        Two jobs. Their files stay where they are.
    """
    if not names:
        fail("name the jobs to cancel", code=2)
    asyncio.run(_cancel(workspace_at(workspace, database, config=config), names, as_json))


async def _cancel(workspace: Workspace, names: Sequence[str], as_json: bool) -> None:
    from comfyui_agent.engine.intake.submission import WORDS, Answer

    async with opened(workspace) as store:
        jobs = await find_jobs(store, names)
        cancelled = set(await store.run(ops.cancel_jobs, [job.id for job in jobs]))
        found = [await store.run(ops.find_job_by_name, job.config_name) for job in jobs]
        after = [job or before for job, before in zip(found, jobs, strict=True)]
        answers = [
            Answer(job.config_name, job, "" if job.id in cancelled else f"it {WORDS[job.status]}") for job in after
        ]
        await note_jobs(store, EventName.AUDIT_JOB_CANCEL, answers)
    answer(answers, as_json)


def set_priority(
    name: Name,
    priority: Annotated[int, typer.Argument(metavar="N", help="Lower runs earlier.", min=-(2**31), max=2**31 - 1)],
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Let a job run earlier or later; the next prompt that is handed out follows it.

    [bold]Examples[/bold]

    e3 queue set-priority knight.yaml 1
        The next one to run.
    """
    asyncio.run(_set_priority(workspace_at(workspace, database, config=config), name, priority, as_json))


async def _set_priority(workspace: Workspace, name: str, priority: int, as_json: bool) -> None:
    async with opened(workspace) as store:
        [job] = await find_jobs(store, [name])
        if job.status is JobStatus.DONE:
            fail(f"{job.config_name} is done already: its priority changes nothing")
        await store.run(ops.set_priority, job.id, priority)
        words = f"from {job.priority} to {priority}"
        await note_audit(store, EventName.AUDIT_JOB_PRIORITY, job_id=job.id, message=words)
        changed = await store.run(ops.find_job_by_name, job.config_name)
        job = changed or job
    if as_json:
        print_json(job.as_json())
    else:
        typer.echo(one_line(f"{badge_of(job)}  {job.config_name}  priority {job.priority}"))


def _admission(workspace: Workspace) -> Admission:
    from comfyui_agent.config.validation import Complaints
    from comfyui_agent.engine.intake.admission import Admission

    admission = Admission(workspace)
    try:
        admission.refresh()
    except Complaints as error:
        fail(str(error), code=2)
    return admission


async def note_jobs(store: Store, event: EventName, answers: Sequence[Answer]) -> None:
    """One row for what one command did: of one job, or of several with their count."""
    done = [answer for answer in answers if not answer.problem]
    if len(done) == 1 and done[0].job is not None:
        await note_audit(store, event, job_id=done[0].job.id)
    elif done:
        await note_audit(store, event, message=counted_jobs([answer.name for answer in done]))


def answer(answers: Sequence[Answer], as_json: bool) -> None:
    """One line each; exit 1 if a wish could not be fulfilled."""
    if as_json:
        print_json([each.job.as_json() for each in answers if each.job is not None])
    for each in answers:
        if each.problem:
            print_problem(each.name, each.problem)
        elif each.job is not None and not as_json:
            typer.echo(one_line(f"{badge_of(each.job)}  {each.name} ({each.job.id})"))
    raise typer.Exit(1 if any(each.problem for each in answers) else 0)
