"""The rules of bursts: the size of the next one, and when the state file overrules the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import assert_never

from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import TextEnum

SHRINKS_BY = 3


class ItemStatus(TextEnum):
    """The three states of a state file."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


class ItemRequest(TextEnum):
    """What happens to an item when a burst begins."""

    KEEP = "keep"
    """The database is right. The file follows it."""
    AGAIN = "again"
    TRUST = "trust"
    """The user marked it as completed: take it as done."""
    SKIP = "skip"
    """The user marked it as failed: do not render it."""


@dataclass(frozen=True)
class Item:
    """A prompt file and its job as in the database. `written` is the last status written to the state file."""

    job_id: JobId
    key: str
    status: JobStatus
    written: ItemStatus | None
    is_at_server: bool
    is_backing_off: bool = False
    """It failed, and its next attempt is not due yet."""
    needs_attention: bool = False
    outputs: tuple[str, ...] = ()
    error: str = ""
    subfolder: str | None = None
    filename: str | None = None

    @property
    def word(self) -> ItemStatus:
        match self.status:
            case JobStatus.DONE:
                return ItemStatus.COMPLETED
            case JobStatus.FAILED:
                return ItemStatus.FAILED
            case JobStatus.PENDING | JobStatus.PROCESSING:
                return ItemStatus.PENDING
            case _:
                assert_never(self.status)


@dataclass(frozen=True)
class Pick:
    """An item for this burst. With a `problem` it cannot be rendered; `is_at_server` means it was sent already."""

    job_id: JobId
    template: Template
    inputs: Mapping[str, Any] = field(default_factory=dict)
    file_path: str = ""
    problem: str = ""
    is_at_server: bool = False


def request_for(
    in_file: ItemStatus | None, written: ItemStatus | None, known: ItemStatus | None, *, is_untouched: bool
) -> ItemRequest:
    """What the state file asks for an item.

    `in_file` is its status in the file, `written` the last status that E3 wrote there, `known` the status in the
    database. An `is_untouched` file was changed by nobody but E3, so it asks for nothing.
    """
    if in_file is None or is_untouched or in_file is known:
        return ItemRequest.KEEP
    if known is not None and in_file is written:
        return ItemRequest.KEEP  # a crash came before the file was updated
    match in_file:
        case ItemStatus.PENDING:
            return ItemRequest.AGAIN if known is not None else ItemRequest.KEEP
        case ItemStatus.COMPLETED:
            return ItemRequest.TRUST
        case ItemStatus.FAILED:
            return ItemRequest.SKIP
        case _:
            assert_never(in_file)


def sizes(ceiling: int) -> list[int]:
    """All sizes from the ceiling down: 15, 5, 1."""
    found = [max(1, ceiling)]
    while found[-1] > 1:
        found.append(max(1, found[-1] // SHRINKS_BY))
    return found


def size_of(ceiling: int, level: int) -> int:
    """The size of a burst after so many steps down."""
    ladder = sizes(ceiling)
    return ladder[max(0, min(level, len(ladder) - 1))]


def poll_of(seconds: float, level: int) -> float:
    """Seconds between polls: doubled with every step down."""
    factor: int = 2 ** max(0, min(level, 10))
    return min(60.0, seconds * factor)
