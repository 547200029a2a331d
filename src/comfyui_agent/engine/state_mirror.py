"""The state file of a burst, a mirror of what the database knows of its items; and what it sums up to."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from comfyui_agent.batches.state_file import Entry, digest_of, state_bytes, write_state
from comfyui_agent.domain.bursts import Item, ItemStatus
from comfyui_agent.pools import PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


@dataclass
class StateMirror:
    """Keeps the file in step with the database. `entries` is what it says, `items` what the database says."""

    store: OperationRunner
    batch_id: str
    path: Path
    entries: dict[str, Entry] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    digest: str = ""
    """Of the file as it was read or last written."""
    _writing: asyncio.Future[None] | None = field(default=None, init=False)

    async def reload(self) -> None:
        """Read the items, and say of each entry what became of it."""
        self.items = {item.key: item for item in await self.store.run(ops.burst_items, self.batch_id)}
        for key, item in self.items.items():
            entry = self.entries.get(key)
            if entry is None:
                continue
            more = {name: value for name, value in entry.more.items() if name not in ("result", "error")}
            if item.word is ItemStatus.COMPLETED and item.outputs:
                more["result"] = item.outputs[0]
            elif item.word is ItemStatus.FAILED:
                more["error"] = item.error
            self.entries[key] = replace(entry, word=item.word, more=more)

    async def write(self, *, persists: bool = True) -> None:
        """Write what the database knows, again and again if it `persists`. What is about to be written is noted first:
        so a kill in between can be told from a change by hand."""
        data = state_bytes(self.entries)
        before, digest = self.digest, digest_of(data)
        if digest == before and self.path.exists():
            return
        statuses = {item.job_id: item.word for item in self.items.values() if item.written is not item.word}
        await self.store.run(ops.note_written, self.batch_id, statuses, (before, digest))
        self.items = {
            key: replace(item, written=statuses.get(item.job_id, item.written)) for key, item in self.items.items()
        }
        while True:
            if self._writing is not None:  # a thread is not stopped by what stops us: one after another
                await asyncio.wait({self._writing})
            self.digest = digest
            self._writing = asyncio.ensure_future(PUBLISHING.run(write_state, self.path, data))
            try:
                await asyncio.shield(self._writing)
                await self.store.run(ops.confirm_written, self.batch_id, digest)
                return
            except OSError as error:
                self.digest = before
                if not persists:
                    raise
                log.error("the state file %s cannot be written: %s", self.path, error.strerror)
                await asyncio.sleep(RETRY_SECONDS)


def entry_of(item: Item, prompts: Path) -> Entry:
    """The entry of an item that only the database knows."""
    root = os.path.abspath(prompts)
    inner = os.path.relpath(os.path.dirname(item.key), root).replace(os.sep, "/")  # noqa: PTH120
    subfolder = ("" if inner.startswith(".") else inner) if item.subfolder is None else item.subfolder
    return Entry(ItemStatus.PENDING, subfolder, item.filename or os.path.basename(item.key))  # noqa: PTH119


@dataclass(frozen=True)
class Summary:
    """How a burst of `size` items ended. `trouble` says why it ended early, `failures` which prompt files failed and
    why."""

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
    cancelled: int = 0
    """How many of `failed` people gave up: cancelled, dismissed, or marked in the state file."""
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

    def all_in(status: ItemStatus) -> list[str]:
        return [key for key, found in statuses.items() if found is status]

    def new_in(status: ItemStatus) -> list[str]:
        return [key for key in all_in(status) if before and before.get(key, ItemStatus.PENDING) is not status]

    pending = all_in(ItemStatus.PENDING)
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
