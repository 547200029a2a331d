"""What people are told when work has ended or somebody is needed: the kinds of messages, and their words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import TextEnum, attention, counted, printable, whole

MOST_LINES, LONGEST_LINE = 10, 200


class NotificationKind(TextEnum):
    BATCH = "batch"
    BOOK = "book"
    NIGHT = "night"
    ATTENTION = "attention"
    SERVER = "server"


EVENTS: Mapping[NotificationKind, tuple[EventName, ...]] = {
    NotificationKind.BATCH: (EventName.BATCH_COMPLETED, EventName.BATCH_EXPIRED),
    NotificationKind.BOOK: (EventName.BATCH_COMPLETED, EventName.BATCH_EXPIRED),
    NotificationKind.NIGHT: (EventName.JOB_DONE, EventName.JOB_FAILED),
    NotificationKind.ATTENTION: (EventName.JOB_FAILED,),
    NotificationKind.SERVER: (EventName.SERVER_DOWN, EventName.ALERT_SERVER),
}
"""The events after which there may be something to tell."""


@dataclass(frozen=True)
class Message:
    title: str
    body: str
    tone: str = "info"
    """One of info, success, warning and failure."""
    files: tuple[Path, ...] = ()


TEST = Message("A test of E3", "Notifications of this workspace arrive here.")


def of_batches(kind: NotificationKind, ended: Sequence[Batch]) -> Message:
    needy = any(batch.attention or batch.status is BatchStatus.EXPIRED for batch in ended)
    many = f"{counted(len(ended), kind.value, 'batches' if kind is NotificationKind.BATCH else '')} have ended"
    title = many if len(ended) > 1 else f"The {kind} {_safe(ended[0].name)} has ended"
    lines = [f"{batch.name}: {_standing(batch)}" if len(ended) > 1 else _standing(batch) for batch in ended]
    return Message(title, _lines(lines), "warning" if needy else "success")


def of_night(done: int, seconds: float, needy: int) -> Message:
    trouble = f", {attention(needy)}" if needy else ""
    tone = "warning" if needy else "success"
    return Message("The queue is empty", f"{done:,} done in {duration_of(seconds)}{trouble}.", tone)


def of_failures(reasons: Mapping[str, str], needy: int) -> Message:
    """Jobs have failed, by their names. In all, `needy` jobs need attention."""
    title = f"{counted(len(reasons), 'job needs', 'jobs need')} attention"
    total = f"\nIn all, {attention(needy)}." if needy > len(reasons) else ""
    return Message(title, _lines([f"{name}: {reason}" for name, reason in reasons.items()]) + total, "warning")


def of_servers(reasons: Mapping[str, str]) -> Message:
    title = f"{len(reasons):,} servers were lost" if len(reasons) > 1 else "A server was lost"
    return Message(title, _lines([f"{name}: {reason}" for name, reason in reasons.items()]), "failure")


def _standing(batch: Batch) -> str:
    expired = f"; it expired: {batch.reason}" if batch.status is BatchStatus.EXPIRED else ""
    return (
        f"{batch.done:,} of {batch.total:,} done{f', {attention(batch.attention)}' if batch.attention else ''}{expired}"
    )


def _lines(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return "\n".join([*map(_safe, lines[:MOST_LINES]), *more])


def _safe(line: str) -> str:
    """The first line of what others wrote. No chat takes a part of it for a mention or a tag."""
    return re.sub(r"[@<]", "\\g<0>\u2060", whole(printable(line.partition("\n")[0]), LONGEST_LINE))
