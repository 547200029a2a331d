"""The ComfyUI processes that E3 launches: what they do, and asking for a start, a stop or a restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.engine.tuner import read_tunings
from comfyui_agent.fleet.launch.process import is_running
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, slot_folders
from comfyui_agent.pools import PROCESSES
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor


class ProcessChange(Enum):
    UP = EventName.AUDIT_SERVER_UP
    STOP = EventName.AUDIT_SERVER_STOP
    RESTART = EventName.AUDIT_SERVER_RESTART

    @property
    def on(self) -> Callable[[SlotState], SlotState]:
        """What it means for a slot."""
        match self:
            case ProcessChange.UP:
                return SlotState.asked_to_run
            case ProcessChange.STOP:
                return lambda state: replace(state, wanted=False)
            case ProcessChange.RESTART:
                return lambda state: replace(state.asked_to_run(), restart=True)


@dataclass(frozen=True)
class ProcessReport:
    """A slot and its process."""

    folder: SlotFolder
    state: SlotState
    pid: int | None

    def as_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        state = self.state
        tuning = read_tunings(self.folder.path.parent).get(state.card)
        return {
            "slot": self.folder.name,
            "url": state.url,
            "status": state.status.value,
            "pid": self.pid,
            "gpu": state.card,
            "restarts": state.restarts,
            "since": state.at or None,
            "reason": state.reason or None,
            "wanted": state.wanted,
            "tuning": tuning and {key: tuning[key] for key in ("processes", "per_minute", "decision", "is_settled")},
        }


def report_of(folder: SlotFolder) -> ProcessReport:
    return ProcessReport(folder, folder.state(), folder.pid if is_running(folder) else None)


def processes_by_url(workspace: Workspace) -> dict[str, ProcessReport]:
    """The processes of a workspace, by the address of their server."""
    if not workspace.settings.comfyui.launch:
        return {}
    return {report.state.url: report for report in map(report_of, slot_folders(workspace))}


async def change_process(
    store: Store, actor: Actor, folder: SlotFolder, url: str, change: ProcessChange, *, hurry: bool = False
) -> None:
    """Note what is asked for. Whoever supervises the slot does it: an agent, or a command that waits for it."""
    await PROCESSES.run(folder.change, lambda state: replace(change.on(state), hurry=hurry))
    await actor.audit(store, change.value, server=url)
