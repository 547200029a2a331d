"""`e3 queue` and `e3 show`: the jobs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import typer

from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.batches.name_lookup import find_job
from comfyui_agent.cli.invocation import NOBODY, Invocation, workspace_command
from comfyui_agent.cli.lazy_group import SUMMARIES, LazyGroup, command_group
from comfyui_agent.cli.output import describe_maker, fail, on_terminal, one_line, print_json, warn
from comfyui_agent.cli.workspace import Name
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow, Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.badges import BADGES, badge_of
from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.pace import outlook
from comfyui_agent.domain.sent_prompt import Sending, describe
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention as needing_attention
from comfyui_agent.domain.texts import printable
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.forecasts import Forecasts

LONGEST_VALUE = 400
AWAY = "waits for its server, which does not answer"
COLOURS = {JobStatus.PROCESSING: "cyan", JobStatus.DONE: "green", JobStatus.FAILED: "yellow"}


class QueueCommands(LazyGroup):
    summaries: ClassVar[Mapping[str, str]] = SUMMARIES["queue"]
    modules: ClassVar[Mapping[str, str]] = {"ls": "queue", "set-priority": "job_commands", "rm": "job_commands"}


app = command_group("The queue.", QueueCommands)


@workspace_command()
async def ls(
    call: Invocation,
    status: Annotated[JobStatus | None, typer.Option("--status", help="Only jobs in this state.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Only what failed and was neither cancelled nor dismissed.")
    ] = False,
    batch: Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only the jobs of this batch.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="At most so many jobs.")] = 50,
) -> None:
    """List jobs: what renders, what waits in the order in which it will run, then what ended, the newest first."""
    if attention and status is not None:
        fail("say --attention or --status, not both", code=2)
    async with call.opened() as store:
        jobs = await store.run(ops.list_jobs, status=status, batch_id=batch, attention=attention, limit=limit)
        counts = await store.run(ops.count_jobs)
        lost = await store.run(ops.lost_servers, batch)
        left = None if call.as_json or counts.is_idle else await Forecasts(store, call.workspace).left()
        is_attended = counts.is_idle or await ops.is_attended(store, call.workspace.locks)
    if call.as_json:
        print_json([job.as_json() for job in jobs])
        return
    away = _away(call.workspace, jobs)
    if on_terminal():
        _print_table(jobs, away)
    else:
        for job in jobs:
            typer.echo("  ".join(_cells(job, away)))
    lost_jobs = "".join(f", {each.words}" for each in lost)
    waiting = f"{counts.pending} pending{lost_jobs}, {counts.processing} rendering"
    typer.echo(f"{waiting}, {counts.done} done, {needing_attention(counts.attention)}{outlook(left)}")
    if not is_attended:
        warn(NOBODY)


@workspace_command()
async def show(
    call: Invocation,
    name: Name,
    path: Annotated[bool, typer.Option("--path", help="Only where its results lie, one on each line.")] = False,
) -> None:
    """Show one job: its state, its results, every run and what went wrong."""
    async with call.opened() as store:
        job = await find_job(store, name)
        if path:
            _print_places(call, job)
            return
        attempts = await store.run(ops.list_attempts, job.id)
        batch = await store.run(ops.find_batch, job.batch_id) if job.batch_id else None
        made_by = await store.run(ops.token_name, job.created_by)
        template = await store.run(ops.find_template, job.template_hash) if job.template_hash else None
        now = ""
        if job.status is JobStatus.PENDING:
            from comfyui_agent.usecases import intake, whereabouts  # the engine, for those who need it

            now = (await whereabouts.find_whereabouts(store, intake.Intake(call.workspace), job)).sentence
    inputs, workflow = effective_inputs(job, batch), _workflow_of(job, call.workspace)
    graph = template.graph() if template else workflow.graph if workflow else {}
    sending = describe(job, inputs, attempts, graph, workflow.recipe.names if workflow else {})
    if call.as_json:
        own = {"inputs": inputs} if batch and job.template_hash else {}
        more = {"created_by_name": made_by, "models": sending.models, "now": now or None}
        print_json(job.as_json() | own | more | {"attempts": [attempt.as_json() for attempt in attempts]})
        return
    results = list(map(call.workspace.whereabouts, job.outputs))
    for label, value in _facts(job, results, made_by, sending, _away(call.workspace, [job]), now):
        typer.echo(one_line(f"{label:<12} {value}"))
    for attempt in attempts:
        typer.echo(one_line(f"run {attempt.number:<8} {_outcome(attempt)}"))
    if job.error_trace:
        typer.echo(printable(f"\n{job.error_trace}"))


def _print_places(call: Invocation, job: Job) -> None:
    places = list(map(call.workspace.results.address, job.outputs))
    if not places:
        fail(f"{job.config_name} has no result")
    if call.as_json:
        print_json(places)
        return
    for place in places:
        typer.echo(one_line(place))


def _workflow_of(job: Job, workspace: Workspace) -> Workflow | None:
    workflows = Workflows(workspace)
    with contextlib.suppress(Complaints, NoWorkflow, OSError):
        workflows.refresh()
        return workflows.find(job.workflow_id)
    return None


def _facts(
    job: Job, results: Sequence[str], made_by: str | None, sending: Sending, away: Collection[int], now: str
) -> list[tuple[str, str]]:
    reason = f": {job.failure_class}" if job.failure_class and not job.is_cancelled else ""
    facts = [
        ("job", f"{job.config_name} ({job.id})"),
        ("state", f"{_state(job, away)}{reason}"),
        ("kind", f"{job.job_type}, workflow {job.workflow_id}"),
        ("model", ", ".join(sending.models)),
        *(("input", f"{each.name} = {_short(each.value)}") for each in sending.given),
        ("priority", str(job.priority)),
        ("runs", f"{job.run_count}, {job.retries_attempted} of them retries"),
        ("submitted", job.created_at or ""),
        ("made by", describe_maker(job.created_by, made_by)),
        ("started", job.start_time or ""),
        ("ended", (job.end_time or "") + (f", took {job.duration:.1f} s" if job.duration is not None else "")),
        ("next try", job.next_attempt_at or ""),
        ("now", AWAY if job.id in away else now),
        ("dismissed", job.dismissed_at or ""),
        ("server", job.server or ""),
        ("reused", f"the result of job {job.reused_from}; nothing was rendered" if job.reused_from else ""),
        *(("results" if index == 0 else "", path) for index, path in enumerate(results)),
    ]
    return [(label, value) for label, value in facts if value]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", "\\n")
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _outcome(attempt: Attempt) -> str:
    ended = f"{attempt.outcome} at {attempt.ended_at}" if attempt.outcome else "open"
    error = attempt.as_json()["error"]
    why = f": {error.get('message', '')}" if isinstance(error, dict) else ""
    return f"{ended}{why}  ({attempt.server}, prompt {attempt.prompt_id})"


def _away(workspace: Workspace, jobs: Sequence[Job]) -> frozenset[int]:
    """Jobs that agents still hold although their server stopped answering."""
    if not any(job.status is JobStatus.PROCESSING for job in jobs):
        return frozenset()
    from comfyui_agent.engine.live_runs import read_live  # the engine, for those who need it

    return frozenset(run.job_id for run in read_live(workspace.locks) if run.stage == "away")


def _state(job: Job, away: Collection[int]) -> str:
    return str(BADGES[JobStatus.PENDING] if job.id in away else badge_of(job))


def _cells(job: Job, away: Collection[int]) -> list[str]:
    detail = ""
    if job.id in away:
        detail = AWAY
    elif job.waits_for_server:
        detail = job.waiting_words
    elif job.status is JobStatus.FAILED or job.failure_class:
        first = (job.error_trace or "").partition("\n")[0]
        detail = first or (job.failure_class or "")
    elif job.outputs:
        detail = job.outputs[0]
    took = f"{job.duration:.1f} s" if job.duration is not None else ""
    cells = [str(job.id), _state(job, away), str(job.priority), job.config_name, took, detail]
    return [one_line(cell) for cell in cells]


def _print_table(jobs: list[Job], away: Collection[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("Id", "State", "Priority", "Job", "Took"):
        table.add_column(heading, no_wrap=heading != "Job", overflow="fold", min_width=12 if heading == "Job" else None)
    table.add_column("Result or reason", ratio=1)  # this one gives way
    for job in jobs:
        number, state, *rest, detail = _cells(job, away)
        shortened = Text(detail, no_wrap=True, overflow="ellipsis")
        colour = "" if job.status is JobStatus.FAILED and not job.needs_attention else COLOURS.get(job.status, "")
        table.add_row(number, Text(state, colour), *(Text(cell) for cell in rest), shortened)
    Console().print(table)
