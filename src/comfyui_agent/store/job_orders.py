"""Orders in which people see jobs, each walked from any place on without a look at what lies before it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.cursors import FIRST_ID, LAST_ID, CursorPlace
from comfyui_agent.store.names import indexed_up_to, phrase_of
from comfyui_agent.store.port import Row, Session

SAMPLE, COMMON = 50_000, 1_000
"""A text is common if so many of the newest names have it."""
NEWEST = "newest"
LAST_LETTER = "\U0010ffff"
BEHIND_ALL_TEXTS = b"\xff" * 8
"""In the order of the database, bytes come after every text."""


@dataclass(frozen=True)
class Step:
    """Ids of jobs in an order, and the place to go on from; None: there is nothing behind them."""

    ids: list[int]
    then: CursorPlace | None


class Walk(Protocol):
    """An order. No job comes twice on the way from its beginning to its end."""

    @property
    def order(self) -> str:
        """Its name in cursors."""

    def place_of(self, row: Row) -> CursorPlace:
        """Where a job is in this order."""

    def step(self, session: Session, place: CursorPlace | None, most: int) -> Step:
        """At most so many jobs behind a place; None stands for the beginning."""


@dataclass(frozen=True)
class IndexWalk:
    """An order that an index keeps. Rows without a value to go by are at one end of it."""

    order: str
    column: str | None
    start: CursorPlace
    after: str
    after_none: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(row[self.column] if self.column is not None else None, row["id"])

    def step(self, session: Session, place: CursorPlace | None, most: int) -> Step:
        place = place or self.start
        query = self.after_none if place.key is None else self.after
        ids = _ids(session, query, key=place.key, id=place.id, most=most, **self.facts)
        if len(ids) < most:
            return Step(ids, None)
        last = session.one("keys_of_job", id=ids[-1])
        return Step(ids, None if last is None else self.place_of(last))


class NamesWalk:
    """Jobs that may have a text in their names, the newest first. What the index does not know yet is among them."""

    order = "names"

    def __init__(self, text: str) -> None:
        self._phrase = phrase_of(text)
        self._head: list[int] | None = None

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(None, row["id"])

    def step(self, session: Session, place: CursorPlace | None, most: int) -> Step:
        before, indexed = place.id if place is not None else LAST_ID, indexed_up_to(session)
        if before > indexed + 1:
            ids = _ids(session, "newest_before", id=before, above=indexed, most=most)
            return Step(ids, CursorPlace(None, ids[-1] if len(ids) == most else indexed + 1))
        if before == indexed + 1 and self._head is not None:
            ids, is_over = self._head[:most], len(self._head) < min(most, COMMON)
        else:
            ids = _ids(session, "names_matching", match=self._phrase, id=before, most=most)
            is_over = len(ids) < most
        return Step(ids, None if is_over else CursorPlace(None, ids[-1]))

    def is_common(self, session: Session) -> bool:
        """Whether many of the newest names in the index have it. What was read for that is not read again."""
        newest = indexed_up_to(session)
        self._head = _ids(session, "names_matching", match=self._phrase, id=newest + 1, most=COMMON)
        return len(self._head) == COMMON and self._head[-1] > newest - SAMPLE


def section(status: JobStatus) -> Walk:
    """The jobs in one state: what renders as it began, what waits as it will run, what ended the newest first."""
    first = CursorPlace(None, FIRST_ID)
    match status:
        case JobStatus.PROCESSING:
            return IndexWalk(status.value, "start_time", first, "rendering_after", "rendering_after_none")
        case JobStatus.PENDING:
            return IndexWalk(status.value, "priority", first, "waiting_after", "waiting_after_none")
        case JobStatus.FAILED | JobStatus.DONE:
            start, facts = CursorPlace(BEHIND_ALL_TEXTS, LAST_ID), {"status": status.value}
            return IndexWalk(status.value, "end_time", start, "ended_after", "ended_after_none", facts)


def needing_attention() -> Walk:
    """What failed and was neither cancelled nor dismissed, the newest first."""
    return IndexWalk(
        "attention", "end_time", CursorPlace(BEHIND_ALL_TEXTS, LAST_ID), "attention_after", "attention_after_none"
    )


def members(batch_id: str) -> Walk:
    """The members of a batch in their order."""
    start, facts = CursorPlace(-math.inf, FIRST_ID), {"batch_id": batch_id}
    return IndexWalk("members", "batch_index", start, "members_from", "members_from_none", facts)


def members_in_state(batch_id: str, status: JobStatus) -> Walk:
    """Those that are in one state, the oldest first."""
    query, facts = "members_in_state", {"batch_id": batch_id, "status": status.value}
    return IndexWalk(query, None, CursorPlace(None, FIRST_ID), query, query, facts)


def newest() -> Walk:
    """Every job, the newest first."""
    query, facts = "newest_before", {"above": FIRST_ID}
    return IndexWalk(NEWEST, None, CursorPlace(None, LAST_ID), query, query, facts)


def beginning(text: str) -> Walk:
    """Jobs whose names begin with a text as it is written, from the last name to the first."""
    query, start = "names_beginning", CursorPlace(text + LAST_LETTER, LAST_ID)
    return IndexWalk("beginning", "config_name", start, query, query, {"text": text})


def _ids(session: Session, query: str, **values: Any) -> list[int]:
    row = session.one(query, **values)
    ids: list[int] = json.loads(row["ids"]) if row is not None else []
    return ids
