"""Orders in which people see jobs. Each is read from any place on, at a cost that does not grow with what lies before.

An order goes by a column of `jobs`, then by id. Rows without a value in that column are at one end of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.cursors import FIRST_ID, LAST_ID, CursorPlace
from comfyui_agent.store.names import indexed_up_to, phrase_of
from comfyui_agent.store.port import Row, Session

SAMPLE, COMMON = 50_000, 1_000
"""A text is common if that many of the newest names contain it."""
NEWEST = "newest"
LAST_LETTER = "\U0010ffff"


@dataclass(frozen=True)
class JobSlice:
    """Ids of jobs in an order, and the place to read on from. None: there are no more."""

    ids: list[int]
    then: CursorPlace | None


class JobOrder(Protocol):
    """An order of jobs. No job comes twice from its beginning to its end."""

    @property
    def name(self) -> str:
        """Its name in cursors."""

    def place_of(self, row: Row) -> CursorPlace:
        """The place of a job in this order."""

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        """At most `most` jobs behind a place. None stands for the beginning."""


@dataclass(frozen=True)
class IndexOrder:
    """An order that an index keeps. Names three queries: from the beginning, behind a value, behind no value."""

    name: str
    column: str | None
    first: str
    after: str
    after_none: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_id: int = FIRST_ID

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(row[self.column] if self.column is not None else None, row["id"])

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        if place is None:
            query, place = self.first, CursorPlace(None, self.first_id)
        else:
            query = self.after_none if place.key is None else self.after
        ids = _ids(session, query, key=place.key, id=place.id, most=most, **self.facts)
        if len(ids) < most:
            return JobSlice(ids, None)
        last = session.one("keys_of_job", id=ids[-1])
        return JobSlice(ids, None if last is None else self.place_of(last))


class MatchingNames:
    """Jobs whose names may contain a text, newest first. Jobs that the index does not know yet are among them."""

    name = "names"

    def __init__(self, text: str) -> None:
        self._phrase = phrase_of(text)
        self._head: list[int] | None = None

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(None, row["id"])

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        before, indexed = place.id if place is not None else LAST_ID, indexed_up_to(session)
        if before > indexed + 1:
            ids = _ids(session, "newest_before", id=before, above=indexed, most=most)
            return JobSlice(ids, CursorPlace(None, ids[-1] if len(ids) == most else indexed + 1))
        if before == indexed + 1 and self._head is not None:
            ids, is_over = self._head[:most], len(self._head) < min(most, COMMON)
        else:
            ids = _ids(session, "names_matching", match=self._phrase, id=before, most=most)
            is_over = len(ids) < most
        return JobSlice(ids, None if is_over else CursorPlace(None, ids[-1]))

    def is_common(self, session: Session) -> bool:
        """Whether many of the newest indexed names contain the text. What this reads is not read again."""
        newest = indexed_up_to(session)
        self._head = _ids(session, "names_matching", match=self._phrase, id=newest + 1, most=COMMON)
        return len(self._head) == COMMON and self._head[-1] > newest - SAMPLE


def by_status(status: JobStatus) -> JobOrder:
    """Jobs of one status: processing by start, pending as they will run, ended newest first."""
    match status:
        case JobStatus.PROCESSING:
            query = "rendering_after_none"
            return IndexOrder(status.value, "start_time", query, "rendering_after", query)
        case JobStatus.PENDING:
            query = "waiting_after_none"
            return IndexOrder(status.value, "priority", query, "waiting_after", query)
        case JobStatus.FAILED | JobStatus.DONE:
            facts = {"status": status.value}
            return IndexOrder(status.value, "end_time", "ended_first", "ended_after", "ended_after_none", facts)


def needing_attention() -> JobOrder:
    """Failed jobs that were neither cancelled nor dismissed, newest first."""
    return IndexOrder("attention", "end_time", "attention_first", "attention_after", "attention_after_none")


def members(batch_id: str) -> JobOrder:
    """The members of a batch in their order."""
    facts = {"batch_id": batch_id}
    return IndexOrder("members", "batch_index", "members_first", "members_from", "members_from_none", facts)


def members_by_status(batch_id: str, status: JobStatus) -> JobOrder:
    """The members of a batch that have one status, oldest first."""
    query, facts = "members_in_state", {"batch_id": batch_id, "status": status.value}
    return IndexOrder(query, None, query, query, query, facts)


def newest_first() -> JobOrder:
    """Every job, newest first."""
    query, facts = "newest_before", {"above": FIRST_ID}
    return IndexOrder(NEWEST, None, query, query, query, facts, first_id=LAST_ID)


def by_prefix(text: str) -> JobOrder:
    """Jobs whose names begin with a text, from the last name to the first."""
    first, facts = "names_beginning_first", {"text": text, "end": text + LAST_LETTER}
    return IndexOrder("beginning", "config_name", first, "names_beginning", first, facts)


def _ids(session: Session, query: str, **values: Any) -> list[int]:
    row = session.one(query, **values)
    ids: list[int] = json.loads(row["ids"]) if row is not None else []
    return ids
