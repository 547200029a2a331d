"""Taking a server out of work, and putting it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from comfyui_agent.comfy.address import address_of, name_of
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor


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
    """The address of every server of this queue: configured, out of work, or with work of ours.

    ValueError if the address of a configured one is none.
    """
    configured = [address_of(url) for url in server_urls(workspace)]
    out_of_work = [each.server for each in await store.run(ops.servers_out_of_work)]
    at_work = [attempt.server for attempt in await store.run(ops.open_attempts) if attempt.server]
    return list(dict.fromkeys([*configured, *out_of_work, *at_work]))


async def change_server(store: Store, actor: Actor, url: str, change: ServerChange) -> ChangedServer:
    """Pause, drain or resume a server. Paused, it gets nothing new; drained, what waits there goes elsewhere, too."""
    state: ServerState | None = None
    match change:
        case ServerChange.PAUSE:
            state = await store.run(ops.pause_server, url)
        case ServerChange.DRAIN:
            state = await store.run(ops.drain_server, url)
        case ServerChange.RESUME:
            await store.run(ops.resume_server, url)
    await actor.audit(store, change.value, server=url)
    return ChangedServer(url, state)
