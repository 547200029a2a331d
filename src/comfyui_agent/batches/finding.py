"""Which batch is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfyui_agent.domain.batches import Batch, BatchKind

if TYPE_CHECKING:
    from comfyui_agent.store.store import Store

MOST_LOOKED_AT = 1_000
MOST_NAMED = 5


class NoBatch(Exception):
    """No batch is meant, or several: what is wrong with the name, and what to do on a command line."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class SeveralBatches(NoBatch):
    """A name that more than one batch has."""


async def find_batch(store: Store, name: str, kind: BatchKind | None = None) -> Batch:
    """A batch by its id, or by its name if only one has it. NoBatch if there is none, SeveralBatches if too many."""
    found = await store.batch(name)
    if found is None:
        named = [each for each in await store.batches(kind=kind, limit=MOST_LOOKED_AT) if each.name == name]
        if len(named) > 1:
            ids = ", ".join(each.id for each in named[:MOST_NAMED])
            raise SeveralBatches(f"several batches are called {name!r}", f"name one by its id, such as {ids}")
        found = await store.batch(named[0].id) if named else None  # lists leave large metadata out
    if found is None or (kind is not None and found.kind is not kind):
        what = kind.value if kind else "batch"
        listing = "book" if kind is BatchKind.BOOK else "batch"
        raise NoBatch(f"there is no {what} {name!r}", f"see e3 {listing} ls")
    return found
