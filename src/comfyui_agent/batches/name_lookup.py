"""Finding jobs and batches by the names that people give."""

from __future__ import annotations

from collections.abc import Iterable

from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import nearest
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

MOST_LOOKED_AT = 1_000
MOST_NAMED = 5
ENDINGS = (".yaml", ".yml")


class NotFound(Exception):
    """No job or batch has the name, or several have it. `remedy` is for the command line."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class NoBatch(NotFound):
    """No batch has the name."""


class SeveralBatches(NoBatch):
    """Several batches have the name."""


async def find_job(store: Store, name: str) -> Job:
    """A job by its name, its id, or its name without `.yaml`. NotFound suggests a similar name."""
    for each in (name, *(f"{name}{ending}" for ending in ENDINGS)):
        found = await store.run(ops.find_job, each)
        if found is not None:
            return found
    batch = await store.run(ops.find_batch, name)
    if batch is not None:
        noun = "book" if batch.kind is BatchKind.BOOK else "batch"
        raise NotFound(f"{name!r} is a {noun} and no job", f"see e3 {noun} show {name}")
    jobs = await store.run(ops.list_jobs, limit=MOST_LOOKED_AT)
    near = _near(name, [job.config_name for job in jobs])
    raise NotFound(f"there is no job {name!r}", near or "see e3 queue ls")


def _near(name: str, known: Iterable[str]) -> str:
    """`did you mean fox.yaml?`, also if the ending was left out."""
    meant = {each.removesuffix(ending): each for each in known for ending in ("", *ENDINGS) if each.endswith(ending)}
    found = nearest(name, meant)
    return f"did you mean {meant[found]}?" if found is not None else ""


async def find_batch(store: Store, name: str, kind: BatchKind | None = None) -> Batch:
    """A batch by its id, or by its name if only one has it. NoBatch if there is none, SeveralBatches if more."""
    found, known = await store.run(ops.find_batch, name), []
    if found is None:
        known = await store.run(ops.newest_batches, kind=kind, limit=MOST_LOOKED_AT)
        named = [each for each in known if each.name == name]
        if len(named) > 1:
            ids = ", ".join(each.id for each in named[:MOST_NAMED])
            raise SeveralBatches(f"several batches are called {name!r}", f"name one by its id, such as {ids}")
        found = await store.run(ops.find_batch, named[0].id) if named else None  # lists leave large metadata out
    if found is None or (kind is not None and found.kind is not kind):
        what = kind.value if kind else "batch"
        listing = "book" if kind is BatchKind.BOOK else "batch"
        near = _near(name, [word for each in known for word in (each.id, each.name)])
        raise NoBatch(f"there is no {what} {name!r}", near or f"see e3 {listing} ls")
    return found
