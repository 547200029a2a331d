"""`e3 comfyui`: the ComfyUI processes on this machine that E3 starts and supervises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json, warn
from comfyui_agent.cli.progress import ProgressView
from comfyui_agent.cli.progress import Status as Shown
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.fleet.fleet import PROBE, Fleet, connect_over_http
from comfyui_agent.fleet.launch.lifecycle import LaunchLimits
from comfyui_agent.fleet.launch.plan import NO_CARD, Slot, slots_here
from comfyui_agent.fleet.launch.process import is_outdated, plain
from comfyui_agent.fleet.launch.state import SlotState, Status, slot_folders
from comfyui_agent.fleet.launch.supervisor import Supervisor
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.servers import ProcessChange, ProcessReport, change_process, report_of

LOOK_SECONDS = 0.25
FOLLOW_SECONDS = 0.3
MOST_BYTES = 4 * 1024 * 1024
NONE = "comfyui.launch names no ComfyUI: write it into the configuration, see docs/comfyui_processes.md"

app = command_group("ComfyUI processes on this machine, started and supervised by E3.")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME…", help="Processes as e3 comfyui status shows them; else all.")
]
Now = Annotated[bool, typer.Option("--now", help="Do not wait for what renders there.")]


@workspace_command(app, until_signal=True)
async def up(call: Invocation, names: Names = None) -> int:
    """Start ComfyUI processes, wait until they answer, and leave them running.

    One that runs already is left alone; one that was given up is tried again.
    """
    return await _change(call, names, ProcessChange.UP)


@workspace_command(app, until_signal=True)
async def down(call: Invocation, names: Names = None, now: Now = False) -> int:
    """Stop ComfyUI processes, with all that they started. What renders there is finished first.

    They stay down, for agents as well, until e3 comfyui up.
    """
    code = await _change(call, names, ProcessChange.STOP, hurry=now)
    if not call.as_json:
        typer.echo("Agents leave them down until: e3 comfyui up")
    return code


@workspace_command(app, until_signal=True)
async def restart(call: Invocation, names: Names = None, now: Now = False) -> int:
    """Restart ComfyUI processes: drained, stopped, started, and back at work once they answer."""
    return await _change(call, names, ProcessChange.RESTART, hurry=now)


@workspace_command(app)
async def status(call: Invocation, names: Names = None) -> None:
    """Show each ComfyUI process: its state, its address, its restarts, and what is wrong with it."""
    slots = _slots(call, names)
    call.show_list([report_of(slot.folder(call.workspace)) for slot in slots], _line, NONE)
    if not call.as_json:
        call.warn_if_unattended_here()
    for slot in slots:
        if is_outdated(slot, slot.folder(call.workspace), call.workspace.root):
            warn(f"{slot.name} was started with other settings: e3 comfyui restart {slot.name}")


@workspace_command(app, options=("workspace", "config", "as_json"), until_signal=True)
async def logs(
    call: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A process as e3 comfyui status shows it.")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, max=100_000, help="So many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added, until Ctrl-C.")] = False,
) -> None:
    """Show what a ComfyUI process has written."""
    (slot,) = _slots(call, [name])
    path = slot.folder(call.workspace).path / "log.txt"
    try:
        found, position = _lines(path, max(0, path.stat().st_size - MOST_BYTES))
        found = found[-lines:]
        if call.as_json:
            print_json(found)
            return
        while True:
            for line in found:
                typer.echo(one_line(line))
            if not follow:
                return
            await asyncio.sleep(FOLLOW_SECONDS)
            # A shorter one was put away and begun anew.
            found, position = _lines(path, position if path.stat().st_size >= position else 0)
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}; e3 comfyui up starts the process")


def _lines(path: Path, position: int) -> tuple[list[str], int]:
    with path.open("rb") as file:
        file.seek(position)
        data = file.read(MOST_BYTES)
    return plain(data).splitlines(), position + len(data)


def _line(report: ProcessReport) -> str:
    state = report.state
    line = f"{report.folder.name:<8}  {state.status:<8}  {state.url or '-'}"
    line += f"  pid {report.pid}" if report.pid else ""
    line += f"  since {state.at} UTC" if state.at else ""
    line += f"  restarted {state.restarts} times" if state.restarts else ""
    line += "  down until e3 comfyui up" if not state.wanted else "  spare" if state.spare else ""
    return f"{line}  {state.reason}" if state.reason else line


def _slots(call: Invocation, names: Sequence[str] | None) -> list[Slot]:
    """The slots that are named, else all: those of the settings, and those that are in them no longer."""
    found = {slot.name: slot for slot in slots_here(call.workspace)}
    for folder in slot_folders(call.workspace):
        port = folder.state().url.rpartition(":")[2]
        if folder.name not in found and port.isdecimal() and report_of(folder).pid:
            found[folder.name] = Slot(folder.name, folder.state().card, int(port))
    if not found:
        fail(NO_CARD if call.workspace.settings.comfyui.launch else NONE)
    for name in names or ():
        if name not in found:
            fail(f"there is no process {name}: name one of {', '.join(found)}")
    return [found[name] for name in dict.fromkeys(names or found)]


async def _change(call: Invocation, names: Names, change: ProcessChange, *, hurry: bool = False) -> int:
    """Ask for a change, see to it, and show what happens meanwhile. The exit code is 1 if a process was given up."""
    is_stop, shown = change is ProcessChange.STOP, dict[str, str]()
    # What is not in the settings any more can only be stopped.
    slots = [slot for slot in _slots(call, names) if slot.launch or is_stop]
    fleet = Fleet((), connect_over_http("", PROBE, SYSTEM_CLOCK, listen=False), Limits())
    limits = LaunchLimits(silent_seconds=call.workspace.settings.comfyui.failover_seconds, look_seconds=LOOK_SECONDS)
    view = ProgressView(lambda: Shown("  ".join(f"{name}: {text}" for name, text in shown.items())), err=call.as_json)

    def is_over(state: SlotState) -> bool:
        is_reached = state.status is Status.STOPPED if is_stop else state.status is Status.UP and not state.restart
        return is_reached or state.spare or state.status is Status.FAILED

    async with call.opened(create=True) as store:
        supervisor = Supervisor(
            slots, call.workspace, fleet, store, SYSTEM_CLOCK, lambda event: store.run(ops.add_event, event), limits
        )
        for slot in slots:
            await change_process(store, call.actor, slot.folder(call.workspace), slot.url, change, hurry=hurry)
        try:
            with view:
                while True:
                    states = await supervisor.look()
                    for name, state in states.items():
                        text = f"{state.status} ({state.reason})" if state.reason else str(state.status)
                        if shown.get(name) != text:
                            view.say(f"{name}: {text}")
                        shown[name] = text
                    if all(map(is_over, states.values())):
                        break
                    await supervisor.pause()
        finally:
            await fleet.stop()
    if call.as_json:
        print_json([report_of(slot.folder(call.workspace)).as_json() for slot in slots])
    return 1 if any(state.status is Status.FAILED for state in states.values()) else 0
