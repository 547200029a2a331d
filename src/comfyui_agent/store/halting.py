"""Servers that people take out of work: pause, drain, resume. Leases respect it in their own transaction."""

from __future__ import annotations

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.halts import Halt, HaltedServer
from comfyui_agent.store.port import Session
from comfyui_agent.store.recording import note


def halted_servers(session: Session) -> list[HaltedServer]:
    """Every server that is out of work."""
    return [
        HaltedServer(row["server"], Halt(row["state"]), bool(row["has_runs"])) for row in session.rows("halted_servers")
    ]


def pause(session: Session, server: str) -> None:
    session.run("pause_server", server=server)


def drain(session: Session, server: str) -> Halt:
    """Begin to empty a server; one where nothing is, is drained at once."""
    session.run("drain_server", server=server)
    finish_drain(session, server)
    row = session.one("state_of_server", server=server)
    assert row is not None
    return Halt(row["state"])


def finish_drain(session: Session, server: str) -> bool:
    """`drained`, told once, if it was being drained and no run of any agent is open there; whether that was now."""
    if not session.run("finish_drain", server=server):
        return False
    note(session, Event(EventName.SERVER_DRAINED, server=server))
    return True


def resume(session: Session, server: str) -> bool:
    """Back to work; whether it was out of work."""
    return session.run("resume_server", server=server) > 0
