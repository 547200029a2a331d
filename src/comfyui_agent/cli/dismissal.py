"""`e3 dismiss` and `e3 queue rm`: jobs that nobody has to look at any more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.completion import batch_names
from comfyui_agent.cli.job_commands import EVERYTHING, answer, note_jobs
from comfyui_agent.cli.named_jobs import find_batch, find_jobs
from comfyui_agent.cli.output import fail, one_line, print_json, print_problem
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    Names,
    opened,
    workspace_at,
)
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, counted_jobs
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace


def dismiss(
    names: Names = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that need attention.")] = False,
    batch: Annotated[
        str,
        typer.Option("--batch", metavar="ID", help="What needs attention of this batch.", autocompletion=batch_names),
    ] = "",
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Put failed jobs out of what needs attention. They stay in the history, and a retry brings them back.

    [bold]Examples[/bold]

    e3 dismiss knight.yaml
        One job, which nobody has to look at any more.

    e3 dismiss --failed
        Everything that needs attention.

    e3 dismiss --batch knights_1a2b3c4d
        What failed of one batch or book.
    """
    if [bool(names), failed, bool(batch)].count(True) != 1:
        fail("name the jobs, or say --failed, or --batch ID", code=2)
    asyncio.run(_dismiss(workspace_at(workspace, database, config=config), names or [], batch, as_json))


async def _dismiss(workspace: Workspace, names: Sequence[str], batch: str, as_json: bool) -> None:
    from comfyui_agent.engine.intake.submission import WORDS, Answer

    async with opened(workspace) as store:
        if names:
            jobs = await find_jobs(store, names)
        else:
            batch_id = (await find_batch(store, batch)).id if batch else None
            jobs = await store.run(ops.list_jobs, attention=True, batch_id=batch_id, limit=EVERYTHING)
        await store.run(ops.dismiss_jobs, [job.id for job in jobs])
        answers = []
        for before in jobs:
            found = await store.run(ops.find_job_by_id, before.id)
            job = found or before
            is_failed = job.status is JobStatus.FAILED
            problem = "" if is_failed else f"it {WORDS[job.status]}: only failed jobs can be dismissed"
            answers.append(Answer(job.config_name, job, problem))
        await note_jobs(store, EventName.AUDIT_JOB_DISMISS, answers)
    if not jobs and not as_json:
        typer.echo("Nothing needs attention.")
    answer(answers, as_json)


def rm(
    names: Names = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Remove jobs that have ended from the database, with their runs. What they rendered stays on disk.

    A job file that still lies in jobs/processing/ is renamed NAME.yaml.removed, or it would be taken in again. On a
    terminal this asks first; a script says --yes. What waits or renders is cancelled first, with e3 cancel.

    [bold]Examples[/bold]

    e3 queue rm knight.yaml castle.yaml
        Two jobs that are done or failed.
    """
    if not names:
        fail("name the jobs to remove", code=2)
    asyncio.run(_rm(workspace_at(workspace, database, config=config), names, yes, as_json))


async def _rm(workspace: Workspace, names: Sequence[str], yes: bool, as_json: bool) -> None:
    from comfyui_agent.engine.intake.submission import remove

    async with opened(workspace) as store:
        jobs = await find_jobs(store, names)
        if not yes:
            question = f"Remove {counted(len(jobs), 'job')} and {'its' if len(jobs) == 1 else 'their'} history?"
            if not sys.stdin.isatty():
                fail(f"{question} Say --yes", code=2)
            typer.confirm(one_line(f"{question} Results stay on disk."), abort=True, err=True)
        answers = await remove(store, workspace, jobs)
        removed = [each.name for each in answers if not each.problem]
        if removed:
            await note_audit(store, EventName.AUDIT_JOB_DELETE, message=counted_jobs(removed))
    if as_json:
        print_json(removed)
    for job, each in zip(jobs, answers, strict=True):
        if each.problem:
            print_problem(each.name, each.problem)
        elif not as_json:
            kept = f"; {counted(len(job.outputs), 'result stays', 'results stay')} on disk" if job.outputs else ""
            typer.echo(one_line(f"{each.name} ({job.id}) is removed{kept}"))
    raise typer.Exit(1 if any(each.problem for each in answers) else 0)
