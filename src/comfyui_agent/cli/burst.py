"""`e3 burst`: a folder of prompts, a few at a time, in processes that may be killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from comfyui_agent.batches.state_file import BadState
from comfyui_agent.cli.invocation import USUAL, Invocation, workspace_command
from comfyui_agent.cli.output import fail, one_line, print_json, warn
from comfyui_agent.cli.queue_board import event_line
from comfyui_agent.cli.workflow import workflows_of
from comfyui_agent.cli.workspace import check_addresses, opened, with_settings
from comfyui_agent.clock import now
from comfyui_agent.config.validation import shown_path
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.drawing import RANDOM_WORD
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.processes import module_command
from comfyui_agent.domain.prompts import SEED_INPUTS, NoSuchPlace
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.engine.burst import Burst, BurstIsBusy, BurstIsPaused, BurstPlan
from comfyui_agent.engine.state_mirror import Summary

SHOWN = (EventName.JOB_DONE, EventName.JOB_FAILED, EventName.JOB_RETRY)
MORE = 10
MOST_FAILURES = 10
BUSY_SECONDS = 5.0
SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
LEAVING_SECONDS = 1.8


@workspace_command(options=(*USUAL, "verbose"), until_signal=True)
async def burst(
    call: Invocation,
    prompts: Annotated[Path, typer.Argument(metavar="PROMPTS_DIR", help="A folder with prompts, a .txt file each.")],
    workflow: Annotated[str, typer.Option("--workflow", metavar="FILE", help="A workflow, in whatever form.")],
    node: Annotated[str, typer.Option("--node", metavar="NODE[.INPUT]", help="Where the text goes, such as 98:6.")],
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The ComfyUI to work with.")] = "",
    size: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many prompts a burst.")] = 15,
    poll: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between looks at the server.")] = 5.0,
    state: Annotated[Path, typer.Option(metavar="FILE", help="The state file.")] = Path("re_render_state.json"),
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")] = Path("output"),
    seed: Annotated[
        str, typer.Option(metavar="random|N", help="A new seed for each picture, or this one for all.")
    ] = "",
    max_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="End the burst after so many seconds, cleanly.")
    ] = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Burst after burst, each a process of its own, until nothing is left.")
    ] = False,
) -> int:
    """Render the next prompts of a folder, then leave; killed at any moment, nothing is lost or rendered twice.

    Exit 0: nothing is pending. 10: run it again. 1: nothing is pending but some failed, or an error. 143: after
    SIGTERM, with everything saved. The state file says of every prompt pending, completed or failed; set one to pending
    to have it rendered again. See docs/bursts.md.
    """
    workspace = with_settings(call.workspace, "comfyui", servers=(server,)) if server else call.workspace
    check_addresses(workspace, are_given=bool(server))
    if not prompts.is_dir():
        fail(f"there is no folder {prompts}: name one with prompts in .txt files")
    try:
        found = workflows_of(workspace).named(workflow, Path())
        place = found.places.addressed(node if "." in node else f"{node}.text")
    except NoWorkflow as error:
        fail(f"--workflow {workflow}: {error}")
    except NoSuchPlace as error:
        fail(f"--node {node}: {error}")
    if seed and seed.lower() != RANDOM_WORD and not (seed.isascii() and seed.isdigit() and int(seed) < 2**64):
        fail(f"--seed {seed} is neither random nor a whole number", code=2)
    seeds = [each.place for each in found.places.all.values() if each.name in SEED_INPUTS and not each.is_link]
    if seed and not seeds:
        fail(f"--seed: {workflow} has no seed", code=2)
    for folder in (state.parent, output_dir):
        if folder.exists() and not folder.is_dir():
            fail(f"{folder} is a file: name a folder")
    if state.is_dir():
        fail(f"--state {state} is a folder: name a file")
    plan = BurstPlan(
        prompts=prompts,
        template=found.template,
        workflow_id=found.recipe.workflow_id,
        place=place,
        state=Path(os.path.realpath(state)),
        output=output_dir,
        size=size,
        poll_seconds=poll,
        max_seconds=max_seconds,
        values=_drawn(found, place, dict.fromkeys(seeds, seed.lower()) if seed else {}),
    )
    return await (_until_done(call.as_json) if until_done else _burst(workspace, plan, call.as_json))


def _drawn(workflow: Workflow, place: str, seeds: Mapping[str, str]) -> Callable[[str], dict[str, Any]]:
    """The values by place for a text: seeds, and what the text leaves open, are drawn."""
    bare = replace(workflow.recipe, required_inputs=(), defaults={}, inputs={})

    def values(text: str) -> dict[str, Any]:
        given = {place: text, **{each: seed if seed == RANDOM_WORD else int(seed) for each, seed in seeds.items()}}
        bound = workflow.bound(given, recipe=bare)[0]
        return {each: bound[each] for each in given}

    return values


async def _burst(workspace: Workspace, plan: BurstPlan, as_json: bool) -> int:
    async with opened(workspace, create=True) as store:
        until = now() + BUSY_SECONDS
        work = Burst(store, workspace, plan)
        try:
            while True:
                try:
                    return _code_of(await _run(work, as_json))
                except BurstIsBusy:
                    if now() > until:
                        break
                    await asyncio.sleep(0.2)
            warn(f"another burst works on {shown_path(plan.state)}: nothing was done here")
            summary = work.look()
            _print(summary, as_json)
            return _code_of(summary)
        except BurstIsPaused:
            warn(f"{work.batch_id} is paused: e3 batch resume {work.batch_id}")
            if as_json:
                print_json(work.look().as_json())
            return 1
        except BadState as error:
            fail(str(error))
        except OSError as error:
            name = shown_path(plan.state)
            fail(f"the state file {name} cannot be written: {error.strerror or error}. Nothing is lost")


async def _run(work: Burst, as_json: bool) -> Summary:
    def began() -> None:
        for line in work.notes:
            warn(line)
        if work.picked:
            names = f"{work.picked:,} of {counted(len(work.items), 'prompt')}"
            typer.echo(f"Burst of {names}, at most {work.size} at a time. Ctrl-C stops; nothing gets lost.", err=True)

    shown: list[Summary] = []

    def show(summary: Summary) -> None:
        shown.append(summary)
        _print(summary, as_json)

    def show_event(event: Event) -> None:
        if event.batch_id == work.batch_id and event.name in SHOWN:
            with contextlib.suppress(OSError):
                typer.echo(event_line(event).replace(work.batch_id, "", 1), err=as_json)

    unsubscribe = work.bus.subscribe(show_event)
    try:
        return await work.run(began, show)
    except asyncio.CancelledError:
        if work.items and not shown:
            show(work.summary())
        raise
    finally:
        unsubscribe()


def _code_of(summary: Summary) -> int:
    if summary.trouble:
        return 1
    if summary.remaining:
        return MORE
    return 1 if summary.total_failed else 0


def _print(summary: Summary, as_json: bool) -> None:
    if as_json:
        print_json(summary.as_json())
    else:
        failed = f", {summary.failed - summary.cancelled} failed" if summary.failed > summary.cancelled else ""
        failed += f", {summary.cancelled} cancelled" if summary.cancelled else ""
        done = f"{summary.completed} of {summary.size}" if summary.size else "none"
        needy = f", {attention(summary.attention)}" if summary.attention else ""
        none = summary.next_item is None
        coming = "none, nothing is pending" if none else f"{summary.next_size} from {summary.next_item}"
        typer.echo(f"Completed in this burst: {done}{failed}")
        typer.echo(f"Overall: {summary.total_completed}/{summary.total}{needy}")
        typer.echo(one_line(f"Next burst: {coming}"))
    for name, reason in summary.failures[:MOST_FAILURES]:
        typer.echo(one_line(f"Failed: {name}: {reason}"), err=as_json)
    if len(summary.failures) > MOST_FAILURES:
        more = f"… and {len(summary.failures) - MOST_FAILURES} more: e3 batch show {summary.batch_id}"
        typer.echo(one_line(more), err=as_json)
    if summary.failures:
        remedy = f"Mend the cause, then: e3 batch retry {summary.batch_id}, then run the burst again"
        typer.echo(one_line(remedy), err=as_json)
    if summary.trouble:
        warn(summary.trouble)


async def _until_done(as_json: bool) -> int:
    """Run bursts in child processes, one after another. After a child was killed, the next one is smaller."""
    own = [argument for argument in sys.argv[1:] if argument not in ("--until-done", "--json")]
    command = module_command("comfyui_agent", *own, "--json")
    pause = SHORTEST_PAUSE
    completed = failed = 0
    while True:
        code, summary = await _run_child(command)
        ended = summary["completed"] + summary["failed"] if summary else 0
        if summary is not None:
            completed, failed = completed + summary["completed"], failed + summary["failed"]
            if code is not None:
                _print_child(summary, err=as_json)
        if code in (None, 0) or (code == 1 and (summary is None or not summary["remaining"])):
            if as_json and summary is not None:
                print_json(summary | {"completed": completed, "failed": failed})
            if code is None:
                raise asyncio.CancelledError
            return code
        if code == MORE or ended:
            pause = SHORTEST_PAUSE
        if code == MORE:
            if summary is not None and not ended:
                await asyncio.sleep(SHORTEST_PAUSE)  # all that is left waits for its retry
            continue
        if code in (2, 127):
            return code
        was_killed = code < 0 or code > 128
        warn(f"{'the burst was killed' if was_killed else 'it goes on later'}; the next one in {pause:.0f} s")
        await asyncio.sleep(1.0 if was_killed else pause)
        pause = min(LONGEST_PAUSE, pause * 2)


async def _run_child(command: list[str]) -> tuple[int | None, dict[str, Any] | None]:
    """Run one burst: its exit code, and its summary if it printed one. The code is None if this process is to end."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    reading = asyncio.ensure_future(process.communicate())
    code = None
    try:
        await asyncio.shield(reading)
        code = process.returncode or 0
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait({reading}, timeout=LEAVING_SECONDS)
    try:
        found = json.loads(reading.result()[0])
    except (ValueError, asyncio.InvalidStateError):
        return code, None
    return code, found if isinstance(found, dict) and "remaining" in found else None


def _print_child(summary: dict[str, Any], *, err: bool) -> None:
    failed = f", {summary['failed']} failed" if summary["failed"] else ""
    ahead = f"; next: {summary['next_size']} from {summary['next_item']}" if summary["remaining"] else ""
    line = f"Burst: {summary['completed']} completed{failed}. Overall {summary['total_completed']}/{summary['total']}"
    typer.echo(one_line(f"{line}{ahead}"), err=err)
