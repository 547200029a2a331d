"""Events. Each is recorded in the transaction of what happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from comfyui_agent.domain.events import Event
from comfyui_agent.domain.texts import whole
from comfyui_agent.store.operation import Operation, column, figure, query, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record

LONGEST_MESSAGE = 2_000
KEPT = 1_000_000
KEPT_AUDIT = 100_000
PRUNED_AT_ONCE = 5_000


@transition
def add_event(session: Session, /, event: Event, **facts: Any) -> None:
    """Record an event with the time of the database."""
    session.send("note_event", **_columns(replace(event, **facts)))


def note_ending(session: Session, event: Event, *, is_timed: bool = False) -> None:
    """Record how a job is about to end, with its prompt and server and, if timed, its duration."""
    session.send("note_ending", **_columns(event), duration=None, is_timed=is_timed)


def _columns(event: Event) -> dict[str, Any]:
    message = whole(event.message, LONGEST_MESSAGE) if event.message else None
    return vars(event) | {"event": str(event.name), "message": message}


@query
def events_after(session: Session, after: int, most: int = 500) -> list[Event]:
    return [record(Event, row) for row in session.rows("events_after", after=after, most=most)]


@query
def alerts(session: Session, seconds: float, most: int = 50) -> list[Event]:
    """Alerts of the last seconds, newest first."""
    return [record(Event, row) for row in session.rows("newest_alerts", seconds=seconds, most=most)]


@query
def audit_trail(
    session: Session, *, seconds: float | None = None, actor: str = "", before: int | None = None, most: int = 50
) -> list[Event]:
    """Changes that people asked for, newest first: of the last seconds, by actors with a text, before an event."""
    rows = session.rows("audit_trail", seconds=seconds, actor=actor or None, before=before, most=most)
    return [record(Event, row) for row in rows]


newest_event: Operation[[], int] = figure(int, "newest_event")
earlier_identities: Operation[[], list[str]] = column(lambda found: found[0].split() if found else [], "moved_from")
"""The identities that this database had before it was copied to its place."""
failures_since: Operation[[int], int] = figure(int, "failures_since", "after")


@transition
def prune_events(session: Session) -> int:
    """Remove the oldest events beyond a million, some at a time. The newest audit events stay."""
    return session.run("prune_events", keep=KEPT, keep_audit=KEPT_AUDIT, most=PRUNED_AT_ONCE)
