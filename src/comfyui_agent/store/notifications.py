"""Notifications: which events people were not told of yet, and who tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from comfyui_agent.domain.events import Event
from comfyui_agent.store.event_log import newest_event
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record

KEY = "notified_"
OLDEST_SECONDS = 24 * 3600.0
"""What is older is no news: no agent ran, or notifications were off."""
MOST_EVENTS = 10_000


@dataclass(frozen=True)
class Untold:
    """The events of one kind behind the number `after`, up to `until`. Times are seconds by the database's clock."""

    noted: str
    """As it stands in the database. Empty if nobody was ever told: then what is there is no news."""
    told_at: float
    after: int
    until: int
    now: float


@dataclass(frozen=True)
class EndedJobs:
    done: int
    began: float | None
    """Seconds since the first one was started."""
    ended: float | None


@query
def untold(session: Session, kind: str) -> Untold:
    noted = str(session.value("last_notification", key=KEY + kind) or "")
    told_at, _, after = noted.partition(" ")
    now: datetime = session.value("now")
    return Untold(noted, float(told_at or 0), int(after or 0), newest_event(session), now.timestamp())


@transition
def claim_notification(session: Session, kind: str, found: Untold, *, is_message: bool) -> bool:
    """Note that people are told of these events, or need not be. False if another agent was quicker."""
    value = f"{found.now if is_message else found.told_at} {max(found.after, found.until)}"
    return bool(session.run("claim_notification", key=KEY + kind, value=value, before=found.noted))


@query
def events_between(session: Session, found: Untold, names: Sequence[str]) -> list[Event]:
    facts = {"after": found.after, "until": found.until, "seconds": OLDEST_SECONDS, "most": MOST_EVENTS}
    return [record(Event, row) for row in session.rows("events_between", names=[str(name) for name in names], **facts)]


@query
def jobs_ended_between(session: Session, found: Untold) -> EndedJobs:
    facts = {"after": found.after, "until": found.until, "seconds": OLDEST_SECONDS}
    return EndedJobs(**(session.one("jobs_ended_between", **facts) or {}))
