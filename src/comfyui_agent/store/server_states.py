"""Servers that get no work: paused or drained by people, stuck, or lost."""

from __future__ import annotations

from collections.abc import Collection

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.server_states import STUCK_REMEDY, LostServer, ServerInState, ServerState, StuckPrompt
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.operation import Operation, OperationKind, command, listing, query, statement
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record

servers_out_of_work: Operation[[], list[ServerInState]] = listing(ServerInState, "servers_out_of_work")
"""Every server that people took out of work."""


pause_server: Operation[[str], int] = statement("pause_server", "server", kind=OperationKind.COMMAND)
"""Give a server nothing new. What it has runs on."""


@command
def drain_server(session: Session, server: str) -> ServerState:
    """Begin to empty a server. An empty one is drained at once."""
    session.run("drain_server", server=server)
    finish_drain(session, server)
    return ServerState(session.value("state_of_server", server=server))


@command
def finish_drain(session: Session, server: str) -> bool:
    """Mark a draining server as drained if no run is open there. Returns whether that happened now; told once."""
    if not session.run("finish_drain", server=server):
        return False
    add_event(session, Event(EventName.SERVER_DRAINED, server=server))
    return True


@command
def resume_server(session: Session, server: str) -> bool:
    """Give a server work again. Returns whether it was out of work."""
    return session.run("resume_server", server=server) > 0


stuck_prompts: Operation[[], list[StuckPrompt]] = listing(StuckPrompt, "stuck_prompts")
"""Prompts that do not end, oldest first."""


@command
def note_stuck(session: Session, server: str, prompt_id: str, reason: str) -> bool:
    """Note a prompt that does not end and cannot be interrupted. Returns whether that is new; told once."""
    if not session.run("note_stuck", server=server, prompt_id=prompt_id, reason=reason):
        return False
    words = f"stuck: {STUCK_REMEDY} ({reason})"
    add_event(session, Event(EventName.ALERT_SERVER, server=server, prompt_id=prompt_id, message=words))
    return True


forget_stuck: Operation[[str], int] = statement("forget_stuck", "prompt_id", kind=OperationKind.COMMAND)


@query
def is_blocked(session: Session, servers: Collection[str], batch_id: str | None = None) -> bool:
    """Whether all that is left waits for these servers, in one batch if it is named."""
    return bool(session.value("is_blocked", servers=sorted(servers), batch_id=batch_id))


@query
def lost_servers(session: Session, batch_id: str | None = None) -> list[LostServer]:
    """Servers that stopped answering and that jobs wait for, in one batch if it is named."""
    return [record(LostServer, row) for row in session.rows("lost_servers", batch_id=batch_id)]
