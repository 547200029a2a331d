"""A batch: jobs that are one thing, with a name, a progress and an end. Runs on Python 3.9."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

LONGEST_NAME = 60
LONGEST_MEMBER_NAME = 80


class BatchKind(str, Enum):
    """What the jobs came from."""

    SWEEP = "sweep"
    BURST = "burst"
    BOOK = "book"
    FILES = "files"

    def __str__(self) -> str:
        return self.value


class BatchStatus(str, Enum):
    """The states that users see. A retry of members leads from each end back to ACTIVE, as a new generation."""

    PENDING = "pending"
    """Its jobs are being put in; none of them runs."""
    ACTIVE = "active"
    """It is whole, and nothing has landed in this generation."""
    COLLECTING = "collecting"
    """Results have landed, and others are to come."""
    COMPLETE = "complete"
    """Every member has ended."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    def __str__(self) -> str:
        return self.value

    @property
    def has_ended(self) -> bool:
        return self in (BatchStatus.COMPLETE, BatchStatus.CANCELLED, BatchStatus.EXPIRED)


@dataclass(frozen=True)
class NewBatch:
    """A batch that is about to be filled. `metadata` is what reads it back: axes of a sweep, the title of a book."""

    id: str
    name: str
    kind: BatchKind
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_serial: bool = False
    wants_grid: bool = False
    created_by: int | None = None
    """The token that makes it, and with it its jobs."""


@dataclass(frozen=True)
class Batch:
    """A batch as it stands; the counts are those of its jobs at that moment."""

    id: str
    name: str
    kind: BatchKind
    status: BatchStatus
    generation: int
    created_at: str
    completed_at: str | None
    grid: str | None
    reason: str | None
    is_paused: bool
    grid_problem: str | None
    is_grid_due: bool
    metadata: Mapping[str, Any]
    created_by: int | None = None
    pending: int = 0
    processing: int = 0
    done: int = 0
    failed: int = 0
    attention: int = 0
    """Of those that failed: neither cancelled nor dismissed."""

    @property
    def total(self) -> int:
        return self.pending + self.processing + self.done + self.failed

    @property
    def ended(self) -> int:
        return self.done + self.failed

    def as_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind.value,
            "status": self.status.value,
            "total": self.total,
            "pending": self.pending,
            "processing": self.processing,
            "done": self.done,
            "failed": self.failed,
            "created_at": self.created_at,
            "completed_at": self.completed_at,
            "generation": self.generation,
            "grid": self.grid,
        }


def slug(text: str, longest: int = LONGEST_NAME) -> str:
    """A text as a part of file names: letters, digits, dots, dashes and underscores; empty if nothing is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", plain)[:longest].strip("._-")


def is_grid_name(name: str) -> bool:
    """Whether a file in the folder of a batch has a name that is kept for its grid: grid.png, grid_2.jpg, …"""
    return re.fullmatch(r"grid(_[0-9]+)?(\.[a-z0-9]+)?", name, re.IGNORECASE | re.ASCII) is not None


def mint_batch_id(name: str, fallback: str) -> str:
    """`{name}_{8 hex}`: no other batch has it."""
    return f"{slug(name) or fallback}_{secrets.token_hex(4)}"


def member_name(number: str, values: Mapping[str, Any], varying: Sequence[str]) -> str:
    """A name for the file of a member: its number, and what is different about it. It is safe in paths.

    `varying` are the names whose values tell the members apart; of `3.seed`, `seed` is shown.
    """
    words = [f"{slug(name.rpartition('.')[2], 20)}-{slug(str(values[name]), 24)}" for name in varying]
    return "_".join([number, *words])[:LONGEST_MEMBER_NAME].rstrip("._-")
