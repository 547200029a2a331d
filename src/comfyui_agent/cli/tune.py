"""`e3 tune`: how many ComfyUI processes each card is worth, found with a workflow of one's own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail, print_json
from comfyui_agent.cli.progress import ProgressView, Status, bar
from comfyui_agent.cli.sweep import pairs
from comfyui_agent.cli.workflow import workflows_of
from comfyui_agent.config.workflows import NoWorkflow
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.payloads import PayloadError, bound_to_defaults
from comfyui_agent.lab.tuning import CannotTune, TuningRun, sandbox_in

BAR_WIDTH = 30
NONE = "comfyui.launch names no ComfyUI: write it into the configuration, see docs/tuning.md"


@workspace_command(options=("workspace", "config", "as_json", "verbose"), until_signal=True)
async def tune(
    call: Invocation,
    workflow: Annotated[
        str,
        typer.Argument(metavar="WORKFLOW", help="An id of workflows.yaml, or a file.", autocompletion=workflow_names),
    ],
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A value of an input.")] = None,
    jobs: Annotated[int, typer.Option(min=10, max=100_000, help="So many jobs are kept waiting meanwhile.")] = 1000,
    max_minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="End after so long, settled or not.")] = 30.0,
    card: Annotated[str, typer.Option(metavar="gpu0", help="One card; else all of comfyui.launch.")] = "",
) -> int:
    """Find out how many ComfyUI processes each card is worth, by rendering a workflow with one, two, three of them.

    It renders in a workspace that is thrown away, with the processes of comfyui.launch, and ends them. See
    docs/tuning.md.
    """
    if not call.workspace.settings.comfyui.launch:
        fail(NONE)
    try:
        found = workflows_of(call.workspace).named(workflow, Path())
        payload = bound_to_defaults(found, call.workspace, pairs("--set", sets or [], "NAME=VALUE"))
    except (NoWorkflow, PayloadError) as error:
        fail(str(error), code=2)
    run: TuningRun | None = None
    try:
        run = TuningRun(sandbox_in(call.workspace, card), payload, jobs, max_minutes * 60)
        await _follow(call, run)
    except CannotTune as error:
        fail(str(error))
    finally:  # also after Ctrl-C
        if run is not None:
            _show(call, run)
    if not run.is_settled:
        fail(f"not settled within {duration_of(run.seconds)}: write more --max-minutes")
    return 0


async def _follow(call: Invocation, run: TuningRun) -> None:
    """Show what is decided, and how many were rendered."""
    shown: dict[str, str] = {}
    began = time.monotonic()

    def status() -> Status:
        spent = time.monotonic() - began
        return Status(f"  {counted(run.rendered, 'picture')}, at most {duration_of(run.seconds)}", spent / run.seconds)

    def show() -> None:
        for card, tuning in run.cards.items():
            if shown.get(card) != tuning.found.decision:
                shown[card] = tuning.found.decision
                view.say(f"{card}: {tuning.found.decision}")

    with ProgressView(status, err=call.as_json) as view:
        await run.until_settled(show)


def _show(call: Invocation, run: TuningRun) -> None:
    found = run.as_json()
    if call.as_json:
        print_json(found)
        return
    console = Console(highlight=False)
    for card in found["cards"]:
        if lines := table_lines(card["measured"]):
            console.print(Text(f"\n{card['card']:<5}  processes  images/min    gain  memory each", "dim"))
            for line, drawn in lines:
                console.print(Text(line) + Text(drawn, "cyan"), soft_wrap=True)
            typer.echo(f"\nFor {card['card']} in comfyui.launch: per_gpu: {card['per_gpu']}")


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """A line for each number of processes that was measured, and its bar."""
    most = max((row["images_per_minute"] for row in rows), default=0.0)
    lines = []
    for row in rows:
        gain = "-" if row["gain"] is None else f"{100 * row['gain']:+.0f} %"
        memory = "-" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 1024**3:.1f} GB"
        line = f"{row['processes']:>16}  {row['images_per_minute']:>10.1f}  {gain:>6}  {memory:>11}  "
        lines.append((line, bar(row["images_per_minute"] / most, BAR_WIDTH).rstrip("─")))
    return lines
