"""`e3 add`, `retry`, `cancel`, `dismiss` and `star`, `e3 queue set-priority` and `e3 queue rm`: changes to jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.batches.name_lookup import find_batch, find_job
from comfyui_agent.cli.agents import prepare_folders
from comfyui_agent.cli.completion import batch_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, one_line, print_json, print_problem, warn
from comfyui_agent.cli.workspace import Name, Names
from comfyui_agent.domain.badges import badge_of
from comfyui_agent.domain.jobs import REJECT, STAR, Job
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases import jobs as usecases
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.job_files import add_files, retry_jobs
from comfyui_agent.usecases.jobs import JobAnswer

EVERYTHING = 10_000_000


@workspace_command()
async def add(
    call: Invocation,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Job files, wherever they lie.")],
    batch: Annotated[str, typer.Option("--batch", metavar="NAME", help="Make a batch of them, to follow as one.")] = "",
) -> int:
    """Queue jobs from files now, whether or not anyone watches the folder.

    A file that lies elsewhere is copied to jobs/processing/ first. A bad one is one line, and exit 1.
    """
    prepare_folders(call.workspace)
    intake = Intake(call.workspace)
    async with call.opened(create=True) as store:
        added = await add_files(store, intake, call.actor, files, batch)
        if added.batch_id:
            jobs = counted(added.batch_jobs, "job is", "jobs are")
            typer.echo(f"{jobs} the batch {added.batch_id}. Follow: e3 batch watch {added.batch_id}", err=True)
        if added.missing:
            warn(added.missing)
        if not call.as_json and any(each.job is not None and not each.problem for each in added.answers):
            await call.warn_if_unattended(store)
        return await _show(call, store, added.answers)


@workspace_command()
async def retry(
    call: Invocation,
    names: Names = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All that need attention; not what was cancelled or dismissed.")
    ] = False,
) -> int:
    """Submit failed jobs again, with a fresh count of retries. A job file that is still there is read anew."""
    if bool(names) == failed:
        fail("name the jobs, or say --failed", code=2)
    intake = Intake(call.workspace)
    async with call.opened() as store:
        jobs = await find_jobs(store, names) if names else await _needing_attention(store)
        return await _show(call, store, await retry_jobs(store, intake, call.actor, jobs))


@workspace_command()
async def cancel(call: Invocation, names: Names = None) -> int:
    """Cancel jobs that wait or render. A prompt at a server is taken back by the agent; other prompts
    are not touched."""
    if not names:
        fail("name the jobs to cancel", code=2)
    async with call.opened() as store:
        answers = await usecases.cancel_jobs(store, call.actor, await find_jobs(store, names))
        return await _show(call, store, answers)


@workspace_command()
async def dismiss(
    call: Invocation,
    names: Names = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that need attention.")] = False,
    batch: Annotated[
        str,
        typer.Option("--batch", metavar="ID", help="What needs attention of this batch.", autocompletion=batch_names),
    ] = "",
) -> int:
    """Put failed jobs out of what needs attention. They stay in the history, and a retry brings them back."""
    if [bool(names), failed, bool(batch)].count(True) != 1:
        fail("name the jobs, or say --failed, or --batch ID", code=2)
    async with call.opened() as store:
        jobs = await find_jobs(store, names) if names else await _needing_attention(store, batch)
        return await _show(call, store, await usecases.dismiss_jobs(store, call.actor, jobs))


@workspace_command()
async def star(
    call: Invocation,
    names: Names = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject them: the gallery leaves them out.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Neither a star nor rejected.")] = False,
) -> int:
    """Give results a star. The gallery and e3 export find them by it; a new result of the same job has none."""
    if not names or (reject and clear):
        fail("name the jobs; --reject and --clear exclude each other", code=2)
    rating = REJECT if reject else None if clear else STAR
    async with call.opened() as store:
        answers = await usecases.rate_jobs(store, call.actor, await find_jobs(store, names), rating)
        return await _show(call, store, answers)


@workspace_command()
async def set_priority(
    call: Invocation,
    name: Name,
    priority: Annotated[int, typer.Argument(metavar="N", help="Lower runs earlier.", min=-(2**31), max=2**31 - 1)],
) -> None:
    """Let a job run earlier or later; the next prompt that is handed out follows it."""
    async with call.opened() as store:
        job = await usecases.set_priority(store, call.actor, await find_job(store, name), priority)
    call.show(job.as_json(), f"{badge_of(job)}  {job.config_name}  priority {job.priority}")


@workspace_command()
async def rm(
    call: Invocation,
    names: Names = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Remove jobs that have ended from the database, with their runs. What they rendered stays on disk.

    A job file that still lies in jobs/processing/ is renamed NAME.yaml.removed, or it would be taken in again. On a
    terminal this asks first; a script says --yes. What waits or renders is cancelled first, with e3 cancel.
    """
    if not names:
        fail("name the jobs to remove", code=2)
    async with call.opened() as store:
        jobs = await find_jobs(store, names)
        if not yes:
            question = f"Remove {counted(len(jobs), 'job')} and {'its' if len(jobs) == 1 else 'their'} history?"
            if not sys.stdin.isatty():
                fail(f"{question} Say --yes", code=2)
            typer.confirm(one_line(f"{question} Results stay on disk."), abort=True, err=True)
        answers = await usecases.remove_jobs(store, call.workspace, call.actor, jobs, is_list=True)
    if call.as_json:
        print_json([each.name for each in answers if not each.problem])
    for job, each in zip(jobs, answers, strict=True):
        if each.problem:
            print_problem(each.name, each.problem)
        elif not call.as_json:
            kept = f"; {counted(len(job.outputs), 'result stays', 'results stay')} on disk" if job.outputs else ""
            typer.echo(one_line(f"{each.name} ({job.id}) is removed{kept}"))
    return _code_of(answers)


async def find_jobs(store: Store, names: Sequence[str]) -> list[Job]:
    """Each job once, in the order of the names; NoJob for the first name that no job has."""
    jobs = [await find_job(store, name) for name in names]
    return list({job.id: job for job in jobs}.values())


async def _needing_attention(store: Store, batch: str = "") -> list[Job]:
    batch_id = (await find_batch(store, batch)).id if batch else None
    return await store.run(ops.list_jobs, attention=True, batch_id=batch_id, limit=EVERYTHING)


async def _show(call: Invocation, store: Store, answers: Sequence[JobAnswer]) -> int:
    """One line for each job as it is now; exit 1 if there was a problem with one."""
    jobs = [await store.run(ops.find_job_by_id, each.job.id) or each.job if each.job else None for each in answers]
    if call.as_json:
        print_json([job.as_json() for job in jobs if job is not None])
    elif not answers:
        typer.echo("Nothing needs attention.")
    for each, job in zip(answers, jobs, strict=True):
        if each.problem:
            print_problem(each.name, each.problem)
        elif job is not None and not call.as_json:
            rating = {STAR: "  ★", REJECT: "  rejected"}.get(job.rating or 0, "")
            typer.echo(one_line(f"{badge_of(job)}  {each.name} ({job.id}){rating}"))
    return _code_of(answers)


def _code_of(answers: Sequence[JobAnswer]) -> int:
    return 1 if any(each.problem for each in answers) else 0
