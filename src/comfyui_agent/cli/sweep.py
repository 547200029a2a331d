"""`e3 sweep`: a workflow for every combination of values, as one batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from comfyui_agent.batches.sweep_request import GridAxes, SweepFile, SweepRequest, SweepText
from comfyui_agent.batches.sweeps import Sweep
from comfyui_agent.cli.batch_progress import show_queued
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json, warn
from comfyui_agent.cli.workflow import found_at, lines_below, workflows_of
from comfyui_agent.cli.workspace import SHORT_WAIT, Wait, check_addresses, opened
from comfyui_agent.config.workflows import NoWorkflow
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.usecases.sweeps import PatientPlanner, plan_sweep, queue_sweep

ROWS_SHOWN = 20
JSON_ROWS = 10_000
LEAST_ROOM = 8
YAML = (".yaml", ".yml")


@workspace_command(until_signal=True)
async def sweep(
    call: Invocation,
    what: Annotated[
        str,
        typer.Argument(metavar="FILE|WORKFLOW_ID", help="A workflow of this workspace, a template, or a sweep.yaml."),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="'NODE.input=VALUES'", help="An axis; give it several times for several."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=VALUE", help="A value that all have in common, taken as it is."),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="matrix: every combination; linear: in step.")] = None,
    name: Annotated[str, typer.Option(help="The name of the batch; else that of the workflow.")] = "",
    x: Annotated[str, typer.Option(metavar="AXIS", help="The columns of the grid.")] = "",
    y: Annotated[str, typer.Option(metavar="AXIS", help="The rows of the grid.")] = "",
    pages: Annotated[str, typer.Option(metavar="AXIS", help="The pages of the grid.")] = "",
    job_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="T2I, T2V …; else by the workflow.")] = "",
    priority: Annotated[int | None, typer.Option(help="Lower runs earlier.", min=-(2**31), max=2**31 - 1)] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad values out, with a warning.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be queued, and how long it may take.")] = (
        False
    ),
    wait: Wait = False,
) -> int:
    """Queue a workflow for every combination of some values, and print the id of the batch.

    Values: 1,2,3 and 1..10 and 1..10:2 and 0.1..0.5:0.1 and 1,2,..,10 and "a, b","c" and a | b and true,false and
    @file.txt and random:4. A bad one is an error before anything is queued. See docs/batches.md.
    """
    check_addresses(call.workspace, are_given=False)
    text, base, said = None, Path(), SweepFile.model_construct(workflow=what, set={})
    if what.lower().endswith(YAML):
        path = found_at(what, call.folder)
        text, base = SweepText(path), path.parent
        said = text.said
    try:
        workflow = workflows_of(call.workspace).named(said.workflow, base)
    except NoWorkflow as error:
        fail(f"{text.where(('workflow',))}: workflow: {error}" if text else f"{what}: {error}", code=2)
    flags = pairs("--set", sets or [], "NODE.input=VALUES, such as 3.seed=1..4")
    if not flags and not said.set:
        fail("there is nothing to vary: write --set 'NODE.input=VALUES', such as --set '3.seed=1..4'", code=2)
    priorities = (priority, said.priority, call.workspace.settings.default_priority)
    request = SweepRequest(
        workflow=workflow,
        sets={**said.set, **flags},
        inputs={**said.inputs, **pairs("--input", inputs or [], "NAME=VALUE")},
        mode=mode or said.mode,
        name=name or said.name,
        job_type=job_type or said.job_type,
        priority=next(each for each in priorities if each is not None),
        grid=GridAxes(x or said.grid.x, y or said.grid.y, pages or said.grid.pages),
        skip_bad=skip_bad,
    )

    def where(key: tuple[str, ...]) -> str:
        """The line of the file that says a key; empty if the command line does."""
        is_flag = key[:1] == ("set",) and key[-1] in flags
        return "" if text is None or is_flag else text.where(key)

    found = await plan_sweep(call.workspace, request, lines_below(base), PatientPlanner(), where=where)
    for warning in found.warnings:
        warn(warning)
    if dry_run:
        await _show_plan(call, found.sweep)
        return 0
    async with call.opened(create=True) as store:
        count = len(found.sweep)
        batch = await queue_sweep(store, call.workspace, call.actor, found.sweep, _counter(count))
        return await show_queued(call, store, batch, counted(count, "job"), wait=wait)


def pairs(flag: str, given: list[str], example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            fail(f"{flag} {text!r}: write {example}", code=2)
        if name.strip() in found:
            fail(f"{flag} {name.strip()} is there twice", code=2)
        found[name.strip()] = value
    return found


def _counter(total: int) -> Callable[[int], None]:
    """Counts the jobs of a large sweep on a terminal while they are queued."""
    shown = on_terminal() and total >= 5_000

    def count(number: int) -> None:
        if shown:
            typer.echo(f"\r{number:,} of {total:,} queued", err=True, nl=number == total)

    return count


async def _show_plan(call: Invocation, found: Sweep) -> None:
    durations: list[float] = []
    with contextlib.suppress(StoreError):  # no database is made for this
        async with opened(call.workspace, wait=SHORT_WAIT) as store:
            durations = sorted(await store.run(ops.past_durations, found.request.workflow.recipe.workflow_id))
    servers = max(1, len(server_urls(call.workspace)))
    median = durations[len(durations) // 2] if durations else None
    estimate = None if median is None else median * len(found) / servers
    axes = found.combinations.axes
    if call.as_json:
        plan = {
            "total": len(found),
            "mode": found.combinations.mode.value,
            "axes": [{"name": each.name, "places": each.places, "values": each.values[:JSON_ROWS]} for each in axes],
            "combinations": _first_rows(found, JSON_ROWS),
            "estimated_seconds": None if estimate is None else round(estimate, 1),
        }
        print_json(plan)
        return
    _print_table(found)
    how = " x ".join(str(len(axis.values)) for axis in axes) if found.combinations.mode is Mode.MATRIX else "in step"
    typer.echo(f"{counted(len(found), 'combination')} ({how}). Nothing was queued.")
    if estimate is None or median is None:
        typer.echo("How long it takes is not known: this workflow has not been rendered yet.")
    else:
        on = f" on {servers} servers" if servers > 1 else ""
        past = f"{counted(len(durations), 'past result')} of it ({median:.1f} s each)"
        typer.echo(f"About {duration_of(estimate)}{on}, from {past}.")


def _first_rows(found: Sweep, most: int) -> list[dict[str, Any]]:
    return [found.combinations.values_at(index) for index in range(min(len(found), most))]


def _print_table(found: Sweep) -> None:
    rows = _first_rows(found, ROWS_SHOWN)
    names = [axis.name for axis in found.combinations.axes]
    if not on_terminal():
        for number, row in enumerate(rows, start=1):
            typer.echo(one_line(f"{number}  " + "  ".join(f"{name}={row[name]}" for name in names)))
    else:
        console = Console(highlight=False)
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("#", no_wrap=True, min_width=len(str(len(rows))))
        for heading in names:
            longest = max(len(heading), *(len(one_line(str(row[heading]))) for row in rows))
            room = max(LEAST_ROOM, console.width - 4 - sum(len(other) + 2 for other in names if other != heading))
            width = min(longest, room)  # a long value leaves the others theirs
            shape = {"overflow": "ellipsis", "no_wrap": True, "min_width": width, "max_width": width}
            table.add_column(Text(one_line(heading)), **shape)  # type: ignore[arg-type]
        for number, row in enumerate(rows, start=1):
            table.add_row(str(number), *(Text(one_line(str(row[name]))) for name in names))
        console.print(table)
    if len(found) > len(rows):
        typer.echo(f"… and {len(found) - len(rows):,} more")
