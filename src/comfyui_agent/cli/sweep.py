"""`e3 sweep`: a workflow for every combination of values, as one batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workflows import fail_with, found_at
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    check_addresses,
    opened,
    workspace_at,
)
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.batches.axes import BadSweep
    from comfyui_agent.batches.sweep_file import SweepText
    from comfyui_agent.batches.sweep_request import SweepRequest
    from comfyui_agent.batches.sweeps import Sweep
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.store.store import Store

ROWS_SHOWN = 20
JSON_ROWS = 10_000
LEAST_ROOM = 8
YAML = (".yaml", ".yml")


def sweep(
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
    wait: Annotated[bool, typer.Option("--wait", help="Follow it; if no agent runs, do the work here.")] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Queue a workflow for every combination of some values, and print the id of the batch.

    Values: 1,2,3 and 1..10 and 1..10:2 and 0.1..0.5:0.1 and 1,2,..,10 and "a, b","c" and a | b and true,false and
    @file.txt and random:4. A bad one is an error before anything is queued. See docs/batches.md.

    [bold]Examples[/bold]

    e3 sweep wf_realistic_portrait --set 'seed=1..3' --set 'cfg=5,7.5,10' --wait
        Nine portraits and their grid.

    e3 sweep portrait.json --set '3.seed,11.seed=random:8' --dry-run
        Two nodes with the same seed; only looked at.

    e3 sweep sweep.yaml --json
        As it is written down, for a script.
    """
    place = workspace_at(workspace, database, config=config)
    check_addresses(place, are_given=False)
    flags = {
        "sets": sets or [],
        "inputs": inputs or [],
        "mode": mode,
        "name": name,
        "grid": {"x": x, "y": y, "pages": pages},
        "job_type": job_type,
        "priority": priority,
        "skip_bad": skip_bad,
    }
    run_until_signal(_sweep(place, _wish(place, workspace, what, flags), dry_run, wait, as_json))


@dataclass(frozen=True)
class _Asked:
    """What people want, and where they said it."""

    wish: SweepRequest
    base: Path
    text: SweepText | None = None
    flags: frozenset[str] = frozenset()

    def words(self, error: BadSweep) -> str:
        """What is wrong, with the line of the file that says it."""
        from comfyui_agent.config.validation import dotted

        is_flag = error.key[:1] == ("set",) and error.key[-1] in self.flags
        if self.text is None or is_flag:
            return str(error)
        own = f"{dotted(error.key)}: " if error.key else ""
        return f"{self.text.where(error.key)}: {own}{error.message}"


def _wish(workspace: Workspace, here: Path, what: str, flags: dict[str, Any]) -> _Asked:
    """What the file says, and on top what the command line says."""
    from comfyui_agent.batches.sweep_file import SweepText
    from comfyui_agent.batches.sweep_request import GridAxes, SweepRequest
    from comfyui_agent.cli.workflows import workflows_of
    from comfyui_agent.config.validation import Complaints
    from comfyui_agent.config.workflows import NoWorkflow

    text: SweepText | None = None
    base = Path()
    if what.lower().endswith(YAML):
        path = found_at(what, here)
        try:
            text = SweepText(path)
        except Complaints as error:
            fail_with(error)
        base = path.parent
    said = text.said if text else None
    workflows = workflows_of(workspace)
    try:
        workflow = workflows.named(said.workflow if said else what, base)
    except NoWorkflow as error:
        fail(f"{text.where(('workflow',))}: workflow: {error}" if text else f"{what}: {error}", code=2)
    sets = pairs("--set", flags["sets"], "NODE.input=VALUES, such as 3.seed=1..4")
    given = frozenset(sets)
    sets = {**(said.set if said else {}), **sets}
    if not sets:
        fail("there is nothing to vary: write --set 'NODE.input=VALUES', such as --set '3.seed=1..4'", code=2)
    own_grid = vars(said.grid) if said else {}
    grid = GridAxes(**{key: value or own_grid.get(key, "") for key, value in flags["grid"].items()})
    default = workspace.settings.default_priority
    own = said.priority if said else None
    wish = SweepRequest(
        workflow=workflow,
        sets=sets,
        inputs={**(said.inputs if said else {}), **pairs("--input", flags["inputs"], "NAME=VALUE")},
        mode=flags["mode"] or (said.mode if said else Mode.MATRIX),
        name=flags["name"] or (said.name if said else ""),
        job_type=flags["job_type"] or (said.job_type if said else ""),
        priority=next(each for each in (flags["priority"], own, default) if each is not None),
        grid=grid,
        skip_bad=flags["skip_bad"],
    )
    return _Asked(wish, base, text, given)


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


async def _sweep(workspace: Workspace, asked: _Asked, dry_run: bool, wait: bool, as_json: bool) -> int:
    from comfyui_agent.cli.batch_progress import code_of, follow

    found = await _define(workspace, asked)
    if dry_run:
        await _show_plan(workspace, found, as_json)
        return 0
    async with opened(workspace, create=True) as store:
        await _queue(workspace, store, found)
        if not as_json:
            typer.echo(found.batch.id)
        if wait:
            batch = await follow(store, workspace, found.batch.id, works=True, quiet=as_json)
        else:
            _hint(found)
            queued = await store.run(ops.find_batch, found.batch.id)
            assert queued is not None
            batch = queued
        if as_json:
            print_json(batch.as_json())
        elif wait and batch.grid:
            typer.echo(one_line(f"Grid  {workspace.root / batch.grid}"))
        return code_of(batch) if wait else 0


async def _define(workspace: Workspace, asked: _Asked) -> Sweep:
    from comfyui_agent.batches.axes import BadSweep
    from comfyui_agent.cli.workflows import lines_below
    from comfyui_agent.engine.intake.input_files import NotKept
    from comfyui_agent.engine.sweep_planner import PatientPlanner, define_sweep

    try:
        found = await define_sweep(workspace, asked.wish, lines_below(asked.base), PatientPlanner())
    except BadSweep as error:
        fail(asked.words(error), code=2)
    except NotKept as error:
        fail(str(error))
    for warning in found.warnings:
        typer.echo(one_line(f"e3: {warning}"), err=True)
    return found.sweep


async def _queue(workspace: Workspace, store: Store, found: Sweep) -> None:
    from comfyui_agent.batches.batch_writer import queue_batch
    from comfyui_agent.domain.binding import Unbindable
    from comfyui_agent.engine.intake.input_files import NotKept

    try:
        await queue_batch(store, workspace.locks, found.batch, found.jobs(), _counter(len(found)))
    except (Unbindable, NotKept) as error:
        fail(str(error))
    await note_audit(store, EventName.AUDIT_BATCH_CREATE, batch_id=found.batch.id, message=counted(len(found), "job"))


def _counter(total: int) -> Any:
    """Large ones are counted while they are put in."""
    shown = on_terminal() and total >= 5_000

    def count(number: int) -> None:
        if shown:
            typer.echo(f"\r{number:,} of {total:,} queued", err=True, nl=number == total)

    return count


def _hint(found: Sweep) -> None:
    jobs = counted(len(found), "job")
    typer.echo(f"{jobs} queued. Follow: e3 batch watch {found.batch.id}", err=True)


async def _past_durations(workspace: Workspace, workflow_id: str) -> list[float]:
    """Seconds of past results; nothing is made to find that out."""
    from comfyui_agent.cli.workspace import open_soon
    from comfyui_agent.store.errors import StoreError

    if "://" not in workspace.database and not Path(workspace.database).is_file():
        return []
    try:
        store = await open_soon(workspace)
    except StoreError:
        return []
    try:
        return sorted(await store.run(ops.past_durations, workflow_id))
    finally:
        await store.close(timeout=0.5)


async def _show_plan(workspace: Workspace, found: Sweep, as_json: bool) -> None:
    durations = await _past_durations(workspace, found.request.workflow.recipe.workflow_id)
    servers = len(workspace.settings.comfyui.urls)
    median = durations[len(durations) // 2] if durations else None
    estimate = None if median is None else median * len(found) / servers
    axes = found.combinations.axes
    if as_json:
        rows = [found.combinations.values_at(index) for index in range(min(len(found), JSON_ROWS))]
        print_json(
            {
                "total": len(found),
                "mode": found.combinations.mode.value,
                "axes": [
                    {"name": axis.name, "places": axis.places, "values": axis.values[:JSON_ROWS]} for axis in axes
                ],
                "combinations": rows,
                "estimated_seconds": None if estimate is None else round(estimate, 1),
            }
        )
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


def _print_table(found: Sweep) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [found.combinations.values_at(index) for index in range(min(len(found), ROWS_SHOWN))]
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
