"""A batch: jobs treated as one thing, with a name, progress and an end. Runs on Python 3.9."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.domain.texts import TextEnum

LONGEST_NAME = 60
LONGEST_MEMBER_NAME = 80
COUNTS = ("total", "pending", "processing", "done", "failed")
JSON_KEYS = ("id", "name", "kind", "status", *COUNTS, "created_at", "completed_at", "generation", "grid")


class BatchKind(TextEnum):
    """Where the jobs came from."""

    SWEEP = "sweep"
    BURST = "burst"
    BOOK = "book"
    FILES = "files"
    CLIENT = "client"
    """What a client of ComfyUI has queued at the gateway at one time."""


class BatchStatus(TextEnum):
    """The states that users see. A retry of members of an ended batch leads back to ACTIVE, as a new generation."""

    PENDING = "pending"
    """Jobs are being added. None of them runs."""
    ACTIVE = "active"
    """All jobs are there. None has ended in this generation."""
    COLLECTING = "collecting"
    """Some members have ended, others have not."""
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def has_ended(self) -> bool:
        return self in (BatchStatus.COMPLETE, BatchStatus.CANCELLED, BatchStatus.EXPIRED)


@dataclass(frozen=True)
class NewBatch:
    """A batch to be filled. `metadata` describes it: the axes of a sweep, the title of a book."""

    id: str
    name: str
    kind: BatchKind
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_serial: bool = False
    wants_grid: bool = False
    created_by: int | None = None
    external_id: str | None = None
    """The caller's own key. No other batch of the same token has it."""


@dataclass(frozen=True)
class Batch:
    """A batch as read from the database, with the counts of its jobs at that moment."""

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
    external_id: str | None = None
    pending: int = 0
    processing: int = 0
    done: int = 0
    failed: int = 0
    attention: int = 0
    reopened_at: str | None = None
    """When its current generation began. None for the first."""

    @property
    def total(self) -> int:
        return self.pending + self.processing + self.done + self.failed

    @property
    def ended(self) -> int:
        return self.done + self.failed

    def as_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        return {key: getattr(self, key) for key in JSON_KEYS} | {"kind": self.kind.value, "status": self.status.value}


def slug(text: str, longest: int = LONGEST_NAME) -> str:
    """A text as a part of a file name: letters, digits, dots, dashes and underscores. It may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9._-]+", "_", plain)[:longest].strip("._-")


def is_grid_name(name: str) -> bool:
    """Whether a file name in a batch folder is reserved for the grid: grid.png, grid_2.jpg, …"""
    return re.fullmatch(r"grid(_[0-9]+)?(\.[a-z0-9]+)?", name, re.IGNORECASE | re.ASCII) is not None


def mint_batch_id(name: str, fallback: str) -> str:
    """A new id: `{name}_{8 hex}`."""
    return f"{slug(name) or fallback}_{secrets.token_hex(4)}"


def member_name(number: str, values: Mapping[str, Any], varying: Sequence[str]) -> str:
    """The file name of a member: its number and its values of the `varying` inputs. It is safe in paths."""
    parts = [f"{slug(name.rpartition('.')[2], 20)}-{slug(str(values[name]), 24)}" for name in varying]
    return "_".join([number, *parts])[:LONGEST_MEMBER_NAME].rstrip("._-")
