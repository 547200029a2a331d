"""`e3 comfyui`: the ComfyUI processes on this machine that E3 starts and supervises."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.progress import ProgressView
from comfyui_agent.cli.progress import Status as Shown
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.fleet.fleet import PROBE, Fleet
from comfyui_agent.fleet.launch.lifecycle import LaunchLimits
from comfyui_agent.fleet.launch.plan import Slot
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status, slot_folders
from comfyui_agent.fleet.launch.supervisor import Supervisor, slots_here
from comfyui_agent.fleet.server import Connection
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import working
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.processes import ProcessChange, ProcessReport, change_process, report_of

LOOK_SECONDS = 0.25
FOLLOW_SECONDS = 0.3
MOST_BYTES = 4 * 1024 * 1024
NONE = "comfyui.launch names no ComfyUI: write it into the configuration, see docs/comfyui_processes.md"

app = command_group("ComfyUI processes on this machine, started and supervised by E3.")

Slots = Annotated[
    list[str] | None, typer.Argument(metavar="NAME…", help="Processes as e3 comfyui status shows them; else all.")
]
SlotName = Annotated[str, typer.Argument(metavar="NAME", help="A process as e3 comfyui status shows it.")]


@workspace_command(app, until_signal=True)
async def up(call: Invocation, names: Slots = None) -> int:
    """Start ComfyUI processes, wait until they answer, and leave them running.

    One that runs already is left alone; one that was given up is tried again.

    [bold]Examples[/bold]

    e3 comfyui up
        All of comfyui.launch. e3 run does the same, and keeps them running.

    e3 comfyui up gpu1-1
        One of them.
    """
    async with _session(call, names, is_up=True) as session:
        await session.ask(ProcessChange.UP)
        states = await session.until(lambda state: state.status in (Status.UP, Status.FAILED))
    return _end(call, session, states)


@workspace_command(app, until_signal=True)
async def down(
    call: Invocation,
    names: Slots = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for what renders there.")] = False,
) -> int:
    """Stop ComfyUI processes, with all that they started. What renders there is finished first.

    They stay down, for agents as well, until e3 comfyui up.

    [bold]Examples[/bold]

    e3 comfyui down
        All of them, once their running prompts have ended.

    e3 comfyui down gpu0-2 --now
        One of them at once; its job is rendered again elsewhere, uncharged.
    """
    async with _session(call, names) as session:
        await session.ask(ProcessChange.STOP, hurry=now)
        states = await session.until(lambda state: state.status is Status.STOPPED)
    return _end(call, session, states, "Agents leave them down until: e3 comfyui up")


@workspace_command(app, until_signal=True)
async def restart(
    call: Invocation,
    names: Slots = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for what renders there.")] = False,
) -> int:
    """Restart ComfyUI processes: drained, stopped, started, and back at work once they answer.

    [bold]Examples[/bold]

    e3 comfyui restart gpu0-1
        After an update of its custom nodes.

    e3 comfyui restart --now
        All of them, whatever they render.
    """
    async with _session(call, names, is_up=True) as session:
        await session.ask(ProcessChange.RESTART, hurry=now)
        states = await session.until(
            lambda state: state.status is Status.FAILED or (state.status is Status.UP and not state.restart)
        )
    return _end(call, session, states)


@workspace_command(app)
async def status(call: Invocation, names: Slots = None) -> None:
    """Show each ComfyUI process: its state, its address, its restarts, and what is wrong with it.

    [bold]Examples[/bold]

    e3 comfyui status
        All of them.

    e3 comfyui status --json
        For a script.
    """
    folders = [SlotFolder(call.workspace.processes / slot.name) for slot in _named(_slots(call), names)]
    call.show_list([report_of(folder) for folder in folders], _line, NONE)
    if not call.as_json:
        call.warn_if_unattended()


@workspace_command(app, options=("workspace", "config"), until_signal=True)
async def logs(
    call: Invocation,
    name: SlotName,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, max=100_000, help="So many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is added, until Ctrl-C.")] = False,
) -> None:
    """Show what a ComfyUI process has written.

    [bold]Examples[/bold]

    e3 comfyui logs gpu0-1
        The last 50 lines.

    e3 comfyui logs gpu0-1 -n 500 -f
        More of them, and what comes.
    """
    (slot,) = _named(_slots(call), [name])
    path = call.workspace.processes / slot.name / "log.txt"
    try:
        position = max(0, path.stat().st_size - MOST_BYTES)
        text, position = _read(path, position)
        for line in text.splitlines()[-lines:]:
            typer.echo(one_line(line))
        while follow:
            await asyncio.sleep(FOLLOW_SECONDS)
            # It was put away and begun anew.
            text, position = _read(path, position if path.stat().st_size >= position else 0)
            for line in text.splitlines():
                typer.echo(one_line(line))
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}; e3 comfyui up starts the process")


def _read(path: Path, position: int) -> tuple[str, int]:
    with path.open("rb") as file:
        file.seek(position)
        data = file.read(MOST_BYTES)
    return data.decode("utf-8", "replace"), position + len(data)


def _slots(call: Invocation) -> list[Slot]:
    """The slots of the settings, then those that are in them no longer."""
    found = slots_here(call.workspace)
    known = {slot.name for slot in found}
    for folder in slot_folders(call.workspace):
        state = folder.state()
        port = state.url.rpartition(":")[2]
        if folder.name not in known and port.isdecimal() and (found or report_of(folder).pid):
            found.append(Slot(folder.name, state.card, int(port)))
    return found or fail(NONE)


def _named(slots: Sequence[Slot], names: Sequence[str] | None) -> list[Slot]:
    by_name = {slot.name: slot for slot in slots}
    for name in names or ():
        if name not in by_name:
            fail(f"there is no process {name}: name one of {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)] if names else list(slots)


@dataclass(frozen=True)
class _Session:
    """Slots, and a supervisor that works until something is reached."""

    call: Invocation
    store: Store
    supervisor: Supervisor

    @property
    def folders(self) -> list[SlotFolder]:
        return [SlotFolder(self.call.workspace.processes / slot.name) for slot in self.supervisor.slots]

    async def ask(self, change: ProcessChange, *, hurry: bool = False) -> None:
        for slot, folder in zip(self.supervisor.slots, self.folders, strict=True):
            await change_process(self.store, self.call.actor, folder, slot.url, change, hurry=hurry)

    async def until(self, is_reached: Callable[[SlotState], bool]) -> Mapping[str, SlotState]:
        """Look at the slots until each has reached something, and tell what happens meanwhile."""
        shown: dict[str, str] = {}

        def drawn() -> Shown:
            return Shown("  ".join(f"{name}: {text}" for name, text in shown.items()))

        view = ProgressView(drawn, err=self.call.as_json)
        with view:
            while True:
                states = await self.supervisor.look()
                for name, state in states.items():
                    text = f"{state.status} ({state.reason})" if state.reason else str(state.status)
                    if shown.get(name) != text:
                        view.say(f"{name}: {text}")
                    shown[name] = text
                if all(is_reached(state) for state in states.values()):
                    return states
                await self.supervisor.pause()


@contextlib.asynccontextmanager
async def _session(call: Invocation, names: Sequence[str] | None, *, is_up: bool = False) -> AsyncIterator[_Session]:
    slots = _named(_slots(call), names)
    if is_up:  # what is not in the settings any more cannot be started, and a tuner starts its own
        spare = {slot.name for slot in slots if slot.is_spare} - {*(names or ())}
        slots = [slot for slot in slots if slot.launch and slot.name not in spare]

    def connect(url: str) -> Connection:
        client, probe = (ComfyClient(url, limits=PROBE, listen=False) for _ in range(2))
        return Connection(str(client.address), client, probe)

    fleet = Fleet((), connect, Limits(), SYSTEM_CLOCK)
    limits = LaunchLimits(silent_seconds=call.workspace.settings.comfyui.failover_seconds, look_seconds=LOOK_SECONDS)
    async with call.opened(create=True) as store:
        supervisor = Supervisor(
            slots,
            call.workspace,
            fleet,
            store,
            SYSTEM_CLOCK,
            lambda event: store.run(ops.add_event, event),
            limits,
            is_attended=lambda: bool(working(call.workspace.locks)),
        )
        try:
            yield _Session(call, store, supervisor)
        finally:
            await fleet.stop()


def _end(call: Invocation, session: _Session, states: Mapping[str, SlotState], then: str = "") -> int:
    reports = [report_of(folder) for folder in session.folders]
    if call.as_json:
        print_json([report.as_json() for report in reports])
    elif then:
        typer.echo(then)
    return 1 if any(state.status is Status.FAILED for state in states.values()) else 0


def _line(report: ProcessReport) -> str:
    state = report.state
    line = f"{report.folder.name:<8}  {state.status:<8}  {state.url or '-'}"
    line += f"  pid {report.pid}" if report.pid else ""
    line += f"  since {state.at} UTC" if state.at else ""
    line += f"  {state.restarts} restarts" if state.restarts else ""
    line += "  down until e3 comfyui up" if not state.wanted else "  spare" if state.spare else ""
    return f"{line}  {state.reason}" if state.reason else line
