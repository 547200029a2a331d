"""The plan of one burst, and its summary."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.batches.state_file import Entry
from comfyui_agent.domain.batches import slug
from comfyui_agent.domain.bursts import ItemStatus
from comfyui_agent.domain.jobs import Template


@dataclass(frozen=True)
class BurstPlan:
    """What one burst renders, and how."""

    prompts: Path
    template: Template
    workflow_id: str
    place: str
    state: Path
    output: Path
    size: int = 15
    poll_seconds: float = 5.0
    max_seconds: float | None = None

    @property
    def batch_id(self) -> str:
        """The same for every burst with one state file."""
        path = os.path.realpath(self.state)
        return f"{slug(self.state.stem) or 'burst'}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


@dataclass(frozen=True)
class Summary:
    """How a burst ended, `size` being what it took on. `trouble` says why it ended early, if it did.

    `failures` are the prompt files that failed in it and why; of all bursts once nothing is pending.
    """

    size: int
    completed: int
    failed: int
    total_completed: int
    total_failed: int
    total: int
    remaining: int
    next_size: int
    next_item: str | None
    batch_id: str = ""
    attention: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, object]:
        """The keys that scripts rely on."""
        keys = ("completed", "failed", "total_completed", "total", "remaining", "next_size", "next_item")
        return {key: getattr(self, key) for key in keys}


def summarize(
    batch_id: str,
    entries: Mapping[str, Entry],
    before: Mapping[str, ItemStatus],
    size: int,
    next_size: int,
    trouble: str = "",
) -> Summary:
    """Count what the entries say now against what they said before."""
    statuses = {key: entry.word for key, entry in entries.items()}
    pending: Sequence[str] = [key for key, status in statuses.items() if status is ItemStatus.PENDING]

    def all_in(status: ItemStatus) -> list[str]:
        return [key for key, found in statuses.items() if found is status]

    def new_in(status: ItemStatus) -> list[str]:
        return [key for key in all_in(status) if before and before.get(key, ItemStatus.PENDING) is not status]

    shown = new_in(ItemStatus.FAILED) if pending else all_in(ItemStatus.FAILED)
    return Summary(
        size=size,
        completed=len(new_in(ItemStatus.COMPLETED)),
        failed=len(new_in(ItemStatus.FAILED)),
        total_completed=len(all_in(ItemStatus.COMPLETED)),
        total_failed=len(all_in(ItemStatus.FAILED)),
        total=len(statuses),
        remaining=len(pending),
        next_size=min(next_size, len(pending)),
        next_item=pending[0] if pending else None,
        batch_id=batch_id,
        failures=tuple((key, str(entries[key].more.get("error", ""))) for key in shown),
        trouble=trouble,
    )
