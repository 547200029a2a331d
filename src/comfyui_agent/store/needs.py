"""What jobs need of a server, how long they took, and which models each server was given last."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.forecast import Work
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.needs import ANYTHING, ModelInput, Needs, Timing, model_files, model_names
from comfyui_agent.store.operation import Operation, listing, query, statement, transition
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import record, text, whole_number


@dataclass(frozen=True)
class Described:
    """As much of a job as its needs follow from."""

    id: JobId
    template_hash: str | None
    workflow_id: str
    inputs: str | None


@dataclass(frozen=True)
class LoadedSet:
    """The models that a server was given last, and how often that changed."""

    server: str
    model_set: str | None
    since: str | None
    loads: int
    stays: int
    overtakes: int
    models: tuple[ModelInput, ...] = ()

    @property
    def names(self) -> str:
        """The models that are loaded. Empty if that is not known."""
        return "" if self.model_set is None else model_names(self.models)


@dataclass(frozen=True)
class Ahead:
    """How many jobs come before one: `earlier` of better priorities, from `first` to `last`, and `older` of its own."""

    earlier: int = 0
    first: int | None = None
    last: int | None = None
    older: int = 0
    overtaken_seconds: float | None = None
    """How long ago a later job was first preferred to it."""


@query
def find_needs(session: Session, keys: Collection[str]) -> list[Needs]:
    return [_needs(row) for row in session.rows("find_needs", keys=sorted(keys))]


@query
def seconds_like(session: Session, needs: Needs) -> float | None:
    """How long renders took with the same models at the same size, whatever their workflow. None if there were none."""
    found: float | None = session.value("seconds_like", model_set=needs.model_set, pixels=needs.pixels)
    return found


@query
def known_models(session: Session, most: int) -> list[str]:
    """The model files that jobs have named, of at most so many different sets of models."""
    rows = session.rows("known_models", most=most)
    return sorted({name for row in rows for name in model_files(_models(row))})


@query
def waiting_needs(session: Session, most: int = 200) -> list[Needs | None]:
    """What the jobs that may run need; None stands for needs that nobody knows. Empty if no job waits."""
    return [_needs(row) if row["key"] else None for row in session.rows("waiting_needs", most=most)]


@query
def jobs_ahead(session: Session, job: Job, most: int = 10_000) -> Ahead:
    row = session.one("jobs_ahead", id=job.id, priority=job.priority, most=most)
    return Ahead() if row is None else record(Ahead, row)


@query
def needs_of_memory(session: Session) -> list[Needs]:
    """Needs of jobs that ran out of memory."""
    return [_needs(row) for row in session.rows("needs_of_memory")]


jobs_without_needs: Operation[[Any, int], list[Described]] = listing(
    Described, "jobs_without_needs", "priority", "most"
)
"""The oldest jobs of a priority whose needs are not known yet."""


@transition
def set_needs(session: Session, found: Sequence[tuple[JobId, Needs | None]]) -> None:
    """Note what jobs need. None: nobody can know, so any server may have them."""
    needs = {each.key: each.as_row() for _, each in found if each is not None}
    session.run("keep_workflows", templates=[], needs=list(needs.values()))
    for job_id, each in found:
        session.run("set_needs", id=job_id, needs=each.key if each else ANYTHING)


@query
def work_left(session: Session, configured: Sequence[str], batch_id: str | None = None) -> list[Work]:
    """What is to be done for a batch, else all, by server. Those that are configured count if no server has work."""
    rows = session.rows("work_left", configured=configured, batch_id=batch_id)
    return [record(Work, row) for row in rows]


@dataclass(frozen=True)
class RendersOfNeeds:
    """How many renders with certain needs some servers have done, and their mean seconds."""

    needs: str
    renders: int
    seconds: float


@query
def server_sets(session: Session) -> dict[str, LoadedSet]:
    rows = session.rows("server_sets")
    return {row["server"]: record(LoadedSet, row, models=_models(row)) for row in rows}


timings: Operation[[], list[Timing]] = listing(Timing, "timings")
renders_at: Operation[[Sequence[str]], list[RendersOfNeeds]] = listing(RendersOfNeeds, "renders_at", "servers")
raise_memory: Operation[[str, int], int] = statement("raise_memory", "key", "memory")
forget_set: Operation[[str], int] = statement("forget_set", "server")


def _needs(row: Row) -> Needs:
    classes, memory_over = tuple(json.loads(row["classes"])), whole_number(row["memory_over"])
    return Needs(row["workflow"], _models(row), classes, row["pixels"], memory_over)


def _models(row: Row) -> tuple[ModelInput, ...]:
    return tuple(ModelInput(*each) for each in json.loads(text(row["models"]) or "[]"))
