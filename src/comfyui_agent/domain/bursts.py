"""The rules of bursts: how large the next one is, and whose word counts about an item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.states import JobStatus

SHRINKS_BY = 3


class ItemStatus(str, Enum):
    """The three words of a state file."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


class ItemRequest(str, Enum):
    """What becomes of an item when a burst begins."""

    KEEP = "keep"
    """What the memory knows holds; the file follows it."""
    AGAIN = "again"
    """Render it again."""
    TRUST = "trust"
    """It is done, says its user."""
    SKIP = "skip"
    """It shall not be rendered, says its user."""


@dataclass(frozen=True)
class Item:
    """A prompt file and its job, as the memory has them. `written` is what the state file was last told about it."""

    job_id: JobId
    key: str
    status: JobStatus
    written: ItemStatus | None
    is_at_server: bool
    is_backing_off: bool = False
    """It failed, and its next attempt is not due yet."""
    needs_attention: bool = False
    """It failed, and was neither cancelled nor dismissed."""
    outputs: tuple[str, ...] = ()
    error: str = ""
    subfolder: str | None = None
    filename: str | None = None

    @property
    def word(self) -> ItemStatus:
        return word_of(self.status)


@dataclass(frozen=True)
class Pick:
    """An item that this burst renders, or that cannot be rendered for a reason. One that is at a server is not sent
    again; only its place may be another."""

    job_id: JobId
    template: Template
    inputs: Mapping[str, Any] = field(default_factory=dict)
    file_path: str = ""
    problem: str = ""
    is_at_server: bool = False


def word_of(status: JobStatus) -> ItemStatus:
    if status is JobStatus.DONE:
        return ItemStatus.COMPLETED
    return ItemStatus.FAILED if status is JobStatus.FAILED else ItemStatus.PENDING


def wish_for(
    said: ItemStatus | None, written: ItemStatus | None, known: ItemStatus | None, *, is_untouched: bool
) -> ItemRequest:
    """What to do with an item.

    `said` is what the file says, `written` what it was last told, `known` what the memory knows; None where there is
    nothing. Nobody but E3 has changed a file that `is_untouched`: what it says may be old, and is nobody's wish.
    """
    if said is None or is_untouched or said is known:
        return ItemRequest.KEEP
    if known is not None and said is written:
        return ItemRequest.KEEP  # a crash came before the file was told
    if said is ItemStatus.PENDING:
        return ItemRequest.AGAIN if known is not None else ItemRequest.KEEP
    return ItemRequest.TRUST if said is ItemStatus.COMPLETED else ItemRequest.SKIP


def sizes(ceiling: int) -> list[int]:
    """15, 5, 1: each a third of the one before."""
    found = [max(1, ceiling)]
    while found[-1] > 1:
        found.append(max(1, found[-1] // SHRINKS_BY))
    return found


def size_of(ceiling: int, level: int) -> int:
    """The size of a burst after so many steps down."""
    ladder = sizes(ceiling)
    return ladder[max(0, min(level, len(ladder) - 1))]


def poll_of(seconds: float, level: int) -> float:
    """Twice as slow with every step down."""
    factor: int = 2 ** max(0, min(level, 10))
    return min(60.0, seconds * factor)
