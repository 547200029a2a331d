"""`e3 burst`: a folder of prompts, a few at a time, in processes that may be killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from comfyui_agent.batches.state_file import BadState
from comfyui_agent.cli.agents import Verbose
from comfyui_agent.cli.output import fail, log_for_people, one_line, print_json
from comfyui_agent.cli.queue_board import tell
from comfyui_agent.cli.signals import run_until_signal
from comfyui_agent.cli.workflows import workflows_of
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
from comfyui_agent.config.documents import shown_path
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.placement import NoSuchPlace
from comfyui_agent.domain.processes import module_command
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.engine.burst import Burst, BurstIsBusy, BurstIsPaused, BurstPlan
from comfyui_agent.engine.state_mirror import Summary

MORE = 10
MOST_FAILURES = 10
BUSY_SECONDS = 5.0
SHORTEST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
LEAVING_SECONDS = 1.8


def burst(
    prompts: Annotated[Path, typer.Argument(metavar="PROMPTS_DIR", help="A folder with prompts, a .txt file each.")],
    workflow: Annotated[str, typer.Option("--workflow", metavar="FILE", help="A workflow in API format.")],
    node: Annotated[str, typer.Option("--node", metavar="NODE[.INPUT]", help="Where the text goes, such as 98:6.")],
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The ComfyUI to work with.")] = "",
    size: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many prompts a burst.")] = 15,
    poll: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between looks at the server.")] = 5.0,
    state: Annotated[Path, typer.Option(metavar="FILE", help="The state file.")] = Path("re_render_state.json"),
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")] = Path("output"),
    max_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="End the burst after so many seconds, cleanly.")
    ] = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Burst after burst, each a process of its own, until nothing is left.")
    ] = False,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Render the next prompts of a folder, then leave; killed at any moment, nothing is lost or rendered twice.

    Exit 0: nothing is pending. 10: run it again. 1: nothing is pending but some failed, or an error. 143: after
    SIGTERM, with everything saved. The state file says of every prompt pending, completed or failed; set one to pending
    to have it rendered again. See docs/bursts.md.

    [bold]Examples[/bold]

    e3 burst prompts --workflow book.json --node 98:6
        The next fifteen, with the ComfyUI on this machine.

    e3 burst prompts --workflow book.json --node 98:6 --max-seconds 50 --json
        On a host that kills what runs for a minute.

    e3 burst prompts --workflow book.json --node 98:6 --until-done
        All of them.
    """
    log_for_people(verbose)
    place = workspace_at(workspace, database, [server] if server else None, config)
    check_addresses(place, are_given=bool(server))
    if not prompts.is_dir():
        fail(f"there is no folder {prompts}: name one with prompts in .txt files")
    found, where = _find_place(place, workflow, node)
    _check_paths(state, output_dir)
    plan = BurstPlan(
        prompts=prompts,
        template=found.template,
        workflow_id=found.recipe.workflow_id,
        place=where,
        state=Path(os.path.realpath(state)),
        output=output_dir,
        size=size,
        poll_seconds=poll,
        max_seconds=max_seconds,
    )
    if until_done:
        run_until_signal(_until_done(as_json))
    else:
        run_until_signal(_burst(place, plan, as_json))


def _find_place(workspace: Workspace, workflow: str, node: str) -> tuple[Workflow, str]:
    """The workflow, and the place in it where the text goes."""
    try:
        found = workflows_of(workspace).named(workflow, Path())
        return found, found.places.addressed(node if "." in node else f"{node}.text")
    except NoWorkflow as error:
        fail(f"--workflow {workflow}: {error}")
    except NoSuchPlace as error:
        fail(f"--node {node}: {error}")


def _check_paths(state: Path, output: Path) -> None:
    for folder in (state.parent, output):
        if folder.exists() and not folder.is_dir():
            fail(f"{folder} is a file: name a folder")
    if state.is_dir():
        fail(f"--state {state} is a folder: name a file")


async def _burst(workspace: Workspace, plan: BurstPlan, as_json: bool) -> int:
    async with opened(workspace, create=True) as store:
        work = Burst(store, workspace, plan)
        until = asyncio.get_running_loop().time() + BUSY_SECONDS
        while True:
            try:
                return _code_of(await _run(work, as_json))
            except BurstIsBusy:
                if asyncio.get_running_loop().time() < until:
                    await asyncio.sleep(0.2)
                    continue
                break
            except BurstIsPaused:
                _say(f"{work.batch_id} is paused: e3 batch resume {work.batch_id}")
                if as_json:
                    print_json(work.look().as_json())
                return 1
            except BadState as error:
                fail(str(error))
            except OSError as error:
                name = shown_path(plan.state)
                fail(f"the state file {name} cannot be written: {error.strerror or error}. Nothing is lost")
    _say(f"another burst works on {shown_path(plan.state)}: nothing was done here")
    try:
        summary = work.look()
        _print(summary, as_json)
        return _code_of(summary)
    except BadState as error:
        fail(str(error))


async def _run(work: Burst, as_json: bool) -> Summary:
    def began() -> None:
        for line in work.notes:
            _say(line)
        if work.picked:
            names = f"{work.picked:,} of {counted(len(work.items), 'prompt')}"
            typer.echo(f"Burst of {names}, at most {work.size} at a time. Ctrl-C stops; nothing gets lost.", err=True)

    shown: list[Summary] = []

    def show(summary: Summary) -> None:
        shown.append(summary)
        _print(summary, as_json)

    unsubscribe = work.bus.subscribe(lambda event: _line(work, event, as_json))
    try:
        return await work.run(began, show)
    except asyncio.CancelledError:
        if work.items and not shown:
            show(work.summary())
        raise
    finally:
        unsubscribe()


def _line(work: Burst, event: Event, as_json: bool) -> None:
    shown = (EventName.JOB_DONE, EventName.JOB_FAILED, EventName.JOB_RETRY)
    if event.batch_id == work.batch_id and event.name in shown:
        with contextlib.suppress(OSError):
            typer.echo(tell(event).replace(work.batch_id, "", 1), err=as_json)


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
        for line in lines_of(summary):
            typer.echo(one_line(line))
    for line in failures_of(summary):
        typer.echo(one_line(line), err=as_json)
    if summary.trouble:
        _say(summary.trouble)


def lines_of(summary: Summary) -> list[str]:
    """A summary for people."""
    failed = f", {summary.failed} failed" if summary.failed else ""
    done = f"{summary.completed} of {summary.size}" if summary.size else "none"
    lines = [f"Completed in this burst: {done}{failed}"]
    needy = f", {attention(summary.attention)}" if summary.attention else ""
    lines.append(f"Overall: {summary.total_completed}/{summary.total}{needy}")
    if summary.next_item is None:
        return [*lines, "Next burst: none, nothing is pending"]
    return [*lines, f"Next burst: {summary.next_size} from {summary.next_item}"]


def failures_of(summary: Summary) -> list[str]:
    """What failed and why, a line each, and what to do about it."""
    if not summary.failures:
        return []
    lines = [f"Failed: {name}: {reason}" for name, reason in summary.failures[:MOST_FAILURES]]
    if len(summary.failures) > MOST_FAILURES:
        lines.append(f"… and {len(summary.failures) - MOST_FAILURES} more: e3 batch show {summary.batch_id}")
    again = f"e3 batch retry {summary.batch_id}, then run the burst again"
    return [*lines, f"Mend the cause, then: {again}"]


def _say(message: str) -> None:
    typer.echo(one_line(f"e3: {message}"), err=True)


# Burst after burst.


async def _until_done(as_json: bool) -> int:
    """Run bursts in child processes, one after another. After a child was killed, the next one is smaller."""
    command = module_command("comfyui_agent", *_own_arguments())
    pause = SHORTEST_PAUSE
    completed = failed = 0
    while True:
        said: list[str] = []
        try:
            code = await _child(command, said)
        except asyncio.CancelledError:
            summary = _summary_in("".join(said))
            if as_json and summary is not None:
                both = {"completed": completed + summary["completed"], "failed": failed + summary["failed"]}
                print_json(summary | both)
            raise
        summary = _summary_in("".join(said))
        if summary is not None:
            completed, failed = completed + summary["completed"], failed + summary["failed"]
            _tell_of(summary, err=as_json)
        if code in (0, MORE) or (summary is not None and summary["completed"] + summary["failed"]):
            pause = SHORTEST_PAUSE
        if code == 0 or (code == 1 and (summary is None or not summary["remaining"])):
            if as_json and summary is not None:
                print_json(summary | {"completed": completed, "failed": failed})
            return code
        if code == MORE:
            if summary is not None and not summary["completed"] + summary["failed"]:
                await asyncio.sleep(SHORTEST_PAUSE)  # all that is left waits for its retry
            continue
        if code in (2, 127):
            return code
        reason = "the burst was killed" if code < 0 or code > 128 else "it goes on later"
        _say(f"{reason}; the next one in {pause:.0f} s")
        await asyncio.sleep(1.0 if code < 0 or code > 128 else pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def _own_arguments() -> list[str]:
    """The arguments of this command for one burst that answers in JSON."""
    kept = [argument for argument in sys.argv[1:] if argument not in ("--until-done", "--json")]
    return [*kept, "--json"]


async def _child(command: list[str], said: list[str]) -> int:
    """Run one burst; its exit code. Its output is added to `said`. It is ended if this process is."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    reading = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait({reading}, timeout=LEAVING_SECONDS)
        raise
    finally:
        if reading.done() and not reading.cancelled():
            said.append(reading.result()[0].decode("utf-8", "replace"))
    return process.returncode or 0


def _summary_in(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "remaining" in found else None


def _tell_of(summary: dict[str, Any], *, err: bool) -> None:
    failed = f", {summary['failed']} failed" if summary["failed"] else ""
    ahead = f"; next: {summary['next_size']} from {summary['next_item']}" if summary["remaining"] else ""
    line = f"Burst: {summary['completed']} completed{failed}. Overall {summary['total_completed']}/{summary['total']}"
    typer.echo(one_line(f"{line}{ahead}"), err=err)
