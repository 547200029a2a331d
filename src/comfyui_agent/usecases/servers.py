"""Servers: how they are used, taking one out of work and back, and the processes of those that E3 launches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from comfyui_agent.comfy.address import address_of, name_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.server_states import ServerState, ServerUse
from comfyui_agent.domain.texts import listed
from comfyui_agent.engine.server_reports import ServerReport, look_at
from comfyui_agent.engine.tuner import read_tunings
from comfyui_agent.fleet.launch.process import is_running
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState, Status, server_urls
from comfyui_agent.pools import PROCESSES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.needs import LoadedSet
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.intake import Intake

UNSEEN = LoadedSet("", None, None, 0, 0, 0)


class ServerChange(Enum):
    PAUSE = EventName.AUDIT_SERVER_PAUSE
    DRAIN = EventName.AUDIT_SERVER_DRAIN
    RESUME = EventName.AUDIT_SERVER_RESUME


@dataclass(frozen=True)
class ChangedServer:
    """A server and its state; None while it works."""

    url: str
    state: ServerState | None

    @property
    def name(self) -> str:
        return name_of(self.url)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "url": self.url, "state": self.state.value if self.state else "working"}


async def known_servers(store: Store, workspace: Workspace) -> list[str]:
    """The address of every server: configured (ValueError if it is none), out of work, or with work of ours."""
    configured = [address_of(url) for url in server_urls(workspace)]
    out_of_work = [each.server for each in await store.run(ops.servers_out_of_work)]
    at_work = [attempt.server for attempt in await store.run(ops.open_attempts) if attempt.server]
    return list(dict.fromkeys([*configured, *out_of_work, *at_work]))


async def look_at_servers(store: Store, workspace: Workspace) -> list[ServerReport]:
    """Every configured server, as it answers now, with what the database knows about it."""
    return await judge_reports(store, await asyncio.gather(*(look_at(url) for url in server_urls(workspace))))


async def judge_reports(store: Store, reports: Sequence[ServerReport]) -> list[ServerReport]:
    """Reports with what the database knows about their servers."""
    states = {each.server: each.state for each in await store.run(ops.servers_out_of_work)}
    stuck = await store.run(ops.stuck_prompts)
    return [report.judged(states, stuck) for report in reports]


async def server_uses(store: Store, intake: Intake, reports: Sequence[ServerReport]) -> dict[str, ServerUse]:
    """How each server is used, by its address."""
    sets, waiting = await store.run(ops.server_sets), await store.run(ops.waiting_needs)
    offers = await intake.offers({name for each in waiting if each for name in each.classes})
    found = {}
    for report in reports:
        each, offered = sets.get(report.url, UNSEEN), offers.get(report.url)
        lacking = [known.lacks(offered) if known and offered is not None else () for known in waiting]
        elsewhere = {other.model_set for url, other in sets.items() if url != report.url}
        is_left = all(known and known.model_set in elsewhere for known in waiting)
        unused = _reason(report, lacking, is_left=is_left)
        found[report.url] = ServerUse(each.names or None, each.since, each.loads, each.stays, each.overtakes, unused)
    return found


def _reason(report: ServerReport, lacking: Sequence[Sequence[str]], *, is_left: bool) -> str | None:
    """Why a server has no work; None if it has, or gets some. `lacking`: what it lacks for each kind of waiting job."""
    if report.state != "up":
        return f"it is {report.state}"
    if report.running or report.pending:
        return None
    if lacking and all(lacking):
        missing = list(dict.fromkeys(lack for each in lacking for lack in each))
        return f"it lacks what waiting jobs need: {listed(missing)}"
    if not lacking:
        return "nothing waits"
    return "others have the models of what waits loaded" if is_left else None


async def change_server(store: Store, actor: Actor, url: str, change: ServerChange) -> ChangedServer:
    """Pause, drain or resume a server. Paused, it gets nothing new; drained, what waits there goes elsewhere, too."""
    state: ServerState | None = None
    match change:
        case ServerChange.PAUSE:
            await store.run(ops.pause_server, url)
            state = ServerState.PAUSED
        case ServerChange.DRAIN:
            state = await store.run(ops.drain_server, url)
        case ServerChange.RESUME:
            await store.run(ops.resume_server, url)
    await actor.audit(store, change.value, server=url)
    return ChangedServer(url, state)


class ProcessChange(Enum):
    UP = EventName.AUDIT_SERVER_UP
    STOP = EventName.AUDIT_SERVER_STOP
    RESTART = EventName.AUDIT_SERVER_RESTART

    def on(self, state: SlotState) -> SlotState:
        """What it means for a slot."""
        if self is ProcessChange.STOP:
            return replace(state, wanted=False)
        # An old failure counts no longer.
        status = Status.STOPPED if state.status in (Status.FAILED, Status.WAITING) else state.status
        restart = state.restart or self is ProcessChange.RESTART
        return replace(state, wanted=True, restart=restart, status=status, until=0.0, bad_starts=())


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


async def change_process(
    store: Store, actor: Actor, folder: SlotFolder, url: str, change: ProcessChange, *, hurry: bool = False
) -> None:
    """Note what is asked for. Whoever supervises the slot does it: an agent, or a command that waits for it."""
    await PROCESSES.run(folder.change, lambda state: replace(change.on(state), hurry=hurry))
    await actor.audit(store, change.value, server=url)
