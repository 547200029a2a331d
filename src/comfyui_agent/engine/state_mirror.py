"""The state file of a burst: a mirror of what the database knows of its items."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from comfyui_agent.batches.state_file import Entry, digest_of, state_bytes, write_state
from comfyui_agent.domain.bursts import Item, ItemStatus
from comfyui_agent.engine.thread_pools import PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class StateMirror:
    """Keeps the file in step with the database. `entries` is what it says, `items` what the database says."""

    def __init__(self, store: OperationRunner, batch_id: str, path: Path) -> None:
        self._store = store
        self._batch_id = batch_id
        self._path = path
        self._digest = ""
        self._writing: asyncio.Future[None] | None = None
        self.entries: dict[str, Entry] = {}
        self.items: dict[str, Item] = {}

    def begin(self, entries: Mapping[str, Entry], digest: str) -> None:
        """The file was read: what it says, and its digest."""
        self.entries = dict(entries)
        self._digest = digest

    async def reload(self) -> None:
        """Read the items, and say of each entry what became of it."""
        self.items = {item.key: item for item in await self._store.run(ops.burst_items, self._batch_id)}
        for key, item in self.items.items():
            entry = self.entries.get(key)
            if entry is not None:
                self.entries[key] = replace(entry, word=item.word, more=_with_outcome(entry, item))

    async def write(self, *, persists: bool = True) -> None:
        """Make the file say what the database knows. One that `persists` tries again until it can be written.

        What is about to be written is noted first: so a kill in between can be told from a change by hand.
        """
        data = state_bytes(self.entries)
        before, digest = self._digest, digest_of(data)
        if digest == before and self._path.exists():
            return
        statuses = {item.job_id: item.word for item in self.items.values() if item.written is not item.word}
        await self._store.run(ops.note_written, self._batch_id, statuses, (before, digest))
        self.items = {
            key: replace(item, written=statuses.get(item.job_id, item.written)) for key, item in self.items.items()
        }
        while True:
            if self._writing is not None:  # a thread is not stopped by what stops us: one after another
                await asyncio.wait({self._writing})
            self._digest = digest
            self._writing = asyncio.ensure_future(PUBLISHING.run(write_state, self._path, data))
            try:
                await asyncio.shield(self._writing)
                await self._store.run(ops.confirm_written, self._batch_id, digest)
                return
            except OSError as error:
                self._digest = before
                if not persists:
                    raise
                log.error("the state file %s cannot be written: %s", self._path, error.strerror)
                await asyncio.sleep(RETRY_SECONDS)


def entry_of(item: Item, prompts: Path) -> Entry:
    """The entry of an item that only the database knows."""
    root = os.path.abspath(prompts)
    inner = os.path.relpath(os.path.dirname(item.key), root).replace(os.sep, "/")  # noqa: PTH120
    subfolder = ("" if inner.startswith(".") else inner) if item.subfolder is None else item.subfolder
    return Entry(ItemStatus.PENDING, subfolder, item.filename or os.path.basename(item.key))  # noqa: PTH119


def _with_outcome(entry: Entry, item: Item) -> dict[str, object]:
    """Further keys: what its user wrote, and what became of it."""
    more = {key: value for key, value in entry.more.items() if key not in ("result", "error")}
    if item.word is ItemStatus.COMPLETED and item.outputs:
        more["result"] = item.outputs[0]
    elif item.word is ItemStatus.FAILED:
        more["error"] = item.error
    return more
