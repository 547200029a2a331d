"""The texts that results were made with, and the index that finds results by them.

Whoever serves the page fills it in the order in which jobs end, a moment after them. It may hold results that are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.store.job_orders import BadCursor, CursorPlace, cursor_of, place_of
from comfyui_agent.store.operation import Operation, query, statement, transition
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import parsed_object, record

EARLIEST = datetime(1, 1, 2, tzinfo=timezone.utc)
ORDER = "prompts"
LONGEST_INPUTS = 128 * 1024
"""Bytes. Only rows made by hand have more."""


@dataclass(frozen=True)
class PromptSource:
    """As much of a job as its prompt follows from."""

    id: JobId
    template_hash: str | None
    batch_id: str | None
    inputs: str | None


@dataclass(frozen=True)
class NextPrompts:
    """The results whose prompts are indexed next, the place that the index has reached, and the place behind them."""

    results: list[PromptSource]
    reached: str | None
    then: str


@query
def prompt_sources(session: Session, jobs: Sequence[JobId]) -> list[PromptSource]:
    rows = session.rows("prompt_sources", ids=list(jobs), longest=LONGEST_INPUTS)
    return [record(PromptSource, row) for row in rows]


@query
def sent_values(session: Session, jobs: Sequence[JobId]) -> dict[JobId, dict[str, Any]]:
    """What was filled in for the server that ran a job last, by place."""
    return {row["job_id"]: parsed_object(row["sent"]) for row in session.rows("sent_values", ids=list(jobs))}


@query
def next_prompts(session: Session, most: int, lag: float) -> NextPrompts | None:
    """At most so many results that ended more than `lag` seconds ago. None if all of them are in the index."""
    reached: str | None = session.value("prompts_indexed")
    place = _place(session, reached)
    facts = {"key": place.key, "id": place.id, "longest": LONGEST_INPUTS}
    rows = session.rows("results_to_index", most=most, lag=lag, **facts)
    return NextPrompts([record(PromptSource, row) for row in rows], reached, _note(rows[-1])) if rows else None


@transition
def add_prompts(session: Session, found: NextPrompts, texts: Sequence[tuple[JobId, str]]) -> int:
    """Index the prompts of some results, and note how far it is. Nothing if another process was quicker."""
    if not session.value("take_lock", name="prompts") or session.value("prompts_indexed") != found.reached:
        return 0
    if found.reached is None:
        session.run("forget_all_prompts")
    session.run("forget_prompts", ids=[each.id for each in found.results])  # what is rendered again has another text
    session.run("add_prompts", found=[list(each) for each in texts if each[1]])
    session.run("note_prompts_indexed", note=found.then)
    return len(found.results)


forget_prompts: Operation[[Sequence[JobId]], int] = statement("forget_prompts", "ids")


def _note(row: Row) -> str:
    return cursor_of(ORDER, CursorPlace(row["end_time"], row["id"]))


def _place(session: Session, reached: str | None) -> CursorPlace:
    """The place to go on from. A clock that was set back takes the index along."""
    now: datetime = session.value("now")
    try:
        place = place_of(reached)[1] if reached else CursorPlace(EARLIEST, 0)
    except BadCursor:
        place = CursorPlace(EARLIEST, 0)
    return CursorPlace(now, 0) if isinstance(place.key, datetime) and place.key > now else place
