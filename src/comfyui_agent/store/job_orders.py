"""Orders in which people see jobs. Each is read from any place on, at a cost that does not grow with what lies before.

An order goes by a column of `jobs`, then by id. Rows without a value in that column are at one end of it. A cursor is
the place where a page ended, as a text that comes back with the next request.

The index of names says which jobs have three given letters in a row in their names. The page server fills it in the
order of ids, some time after the jobs. It may hold jobs that are gone or have another name by now, so readers check
the name itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from comfyui_agent.domain.jobs import REJECT, STAR
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import time_text
from comfyui_agent.store.store import Store

Key = int | float | str | bytes | datetime | None
"""What rows are ordered by. People write values of other types into a database, too."""

KEYS = (int, float, str, bytes, datetime, type(None))
FIRST_ID, LAST_ID = -(2**63), 2**63 - 1
LETTERS = 3
LONGEST_PHRASE = 48
SAMPLE, COMMON = 50_000, 1_000
"""A text is common if that many of the newest names contain it."""
LAST_LETTER = "\U0010ffff"


class BadCursor(ValueError):
    """No page ended with this cursor, or the page belongs to another request."""


@dataclass(frozen=True)
class CursorPlace:
    """A row in an order: its value in the column that the order goes by, and its id."""

    key: Key
    id: int


def cursor_of(order: str, place: CursorPlace) -> str:
    """The cursor of a place in an order."""
    key: Any = place.key
    if isinstance(key, bytes):
        key = {"bytes": key.hex()}
    elif isinstance(key, datetime):
        key = {"time": time_text(key)}
    written = json.dumps([order, key, place.id], separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(written.encode("ascii")).decode("ascii").rstrip("=")


def place_of(cursor: str) -> tuple[str, CursorPlace]:
    """The order and the place that a cursor stands for. BadCursor if it stands for none."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order, key, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if isinstance(key, dict) and "time" in key:
            key = datetime.fromisoformat(key["time"]).replace(tzinfo=timezone.utc)
        elif isinstance(key, dict):
            key = bytes.fromhex(key["bytes"])
        elif isinstance(key, str):
            key.encode("utf-8")  # half of a surrogate pair is no text
        is_key = type(key) in KEYS and (type(key) is not int or FIRST_ID <= key <= LAST_ID)
        if is_key and isinstance(order, str) and type(row_id) is int and FIRST_ID <= row_id <= LAST_ID:
            return order, CursorPlace(key, row_id)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise BadCursor("the cursor is not one that a page ended with")


@dataclass(frozen=True)
class JobSlice:
    """Ids of jobs in an order, and the place to read on from. None: there are no more."""

    ids: list[int]
    then: CursorPlace | None


@dataclass(frozen=True)
class IndexOrder:
    """An order that an index keeps. Names its queries: from the beginning, behind a value, behind no value."""

    name: str
    column: str | None
    first: str
    after: str = ""
    after_none: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_id: int = FIRST_ID

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(row[self.column] if self.column is not None else None, row["id"])

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        """At most `most` jobs behind a place. None stands for the beginning."""
        query = self.first
        if place is not None:
            query = (self.after if place.key is not None else self.after_none) or self.first
            if not session.can_compare(self.column, place.key):
                raise BadCursor("the cursor is not one that a page ended with")
        place = place or CursorPlace(None, self.first_id)
        ids = _ids(session, query, key=place.key, id=place.id, most=most, **self.facts)
        last = session.one("keys_of_job", id=ids[-1]) if len(ids) == most else None
        return JobSlice(ids, None if last is None else self.place_of(last))


class MatchingNames:
    """Jobs whose names may contain a text, newest first. Jobs that the index does not know yet are among them."""

    name = "names"

    def __init__(self, text: str) -> None:
        self._phrase = text[:LONGEST_PHRASE]

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(None, row["id"])

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        before, indexed = place.id if place is not None else LAST_ID, indexed_up_to(session)
        if before > indexed + 1:
            ids = _ids(session, "newest_before", id=before, above=indexed, most=most)
            return JobSlice(ids, CursorPlace(None, ids[-1] if len(ids) == most else indexed + 1))
        ids = _ids(session, "names_matching", match=self._phrase, id=before, above=FIRST_ID, most=most)
        return JobSlice(ids, None if len(ids) < most else CursorPlace(None, ids[-1]))

    def is_common(self, session: Session) -> bool:
        """Whether many of the newest indexed names contain the text."""
        newest = indexed_up_to(session)
        span = {"id": newest + 1, "above": max(newest - SAMPLE, FIRST_ID)}
        return len(_ids(session, "names_matching", match=self._phrase, **span, most=COMMON)) == COMMON


class MatchingPrompts:
    """Results whose prompts may have some words, newest first. What ended a moment ago is not among them yet."""

    name = "prompts"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        parts = [word[start : start + LETTERS] for word in words for start in range(len(word) - LETTERS + 1)]
        self._letters = list(dict.fromkeys(parts))[:LONGEST_PHRASE]
        self._places: dict[int, int] = {}

    def place_of(self, row: Row) -> CursorPlace:
        return CursorPlace(None, self._places[row["id"]])

    def read(self, session: Session, place: CursorPlace | None, most: int) -> JobSlice:
        before = place.id if place is not None else LAST_ID
        facts = {"letters": self._letters, "words": self._words}
        row = session.rows("prompts_matching", id=before, most=most, **facts)[0]
        ids, places = json.loads(row["ids"]), json.loads(row["places"])
        self._places.update(zip(ids, places, strict=True))
        return JobSlice(ids, None if len(ids) < most else CursorPlace(None, places[-1]))


JobOrder = IndexOrder | MatchingNames | MatchingPrompts
"""No job comes twice from the beginning of an order to its end. `name` stands for it in cursors."""

ENDED = ("end_time", "ended_first", "ended_after", "ended_after_none")
BY_STATUS: Mapping[JobStatus, JobOrder] = {
    JobStatus.PROCESSING: IndexOrder("processing", "start_time", "rendering_after_none", "rendering_after"),
    JobStatus.PENDING: IndexOrder("pending", "priority", "waiting_after_none", "waiting_after"),
    JobStatus.FAILED: IndexOrder("failed", *ENDED, {"status": "failed"}),
    JobStatus.DONE: IndexOrder("done", *ENDED, {"status": "done"}),
}
"""Processing jobs by start, pending ones as they will run, ended ones newest first."""
STARRED = IndexOrder("starred", "end_time", "rated_first", "rated_after", "rated_after_none", {"rating": STAR})
REJECTED = IndexOrder("rejected", "end_time", "rated_first", "rated_after", "rated_after_none", {"rating": REJECT})
ATTENTION = IndexOrder("attention", "end_time", "attention_first", "attention_after", "attention_after_none")
NEWEST = IndexOrder("newest", None, "newest_before", facts={"above": FIRST_ID}, first_id=LAST_ID)


def members_of(batch_id: str, status: JobStatus | None) -> JobOrder:
    """The members of a batch in their order. Those of one status come oldest first."""
    facts = {"batch_id": batch_id}
    if status is not None:
        return IndexOrder("members_in_state", None, "members_in_state", facts=facts | {"status": status.value})
    return IndexOrder("members", "batch_index", "members_first", "members_from", "members_from_none", facts)


def by_prefix(text: str) -> JobOrder:
    """Jobs whose names begin with a text, from the last name to the first."""
    facts = {"text": text, "end": text + LAST_LETTER}
    return IndexOrder("beginning", "config_name", "names_beginning_first", "names_beginning", facts=facts)


def indexed_up_to(session: Session) -> int:
    """The last id in the index of names. Newer jobs are looked at one by one."""
    return int(session.value("names_indexed", first=FIRST_ID))


@query
def is_behind(session: Session) -> bool:
    """Whether there are names to index."""
    row = session.one("names_indexed", first=FIRST_ID)
    return row is not None and row["newest"] is not None and row["newest"] > row["indexed"]


@transition
def add_names(session: Session, most: int) -> int:
    """Index the next names. Returns how many."""
    if not session.value("take_lock", name="names"):
        return 0
    after = indexed_up_to(session)
    if after == FIRST_ID:
        session.run("forget_names")
    following = session.one("last_of_next", after=after, most=most)
    if following is None or not following["names"]:
        return 0
    session.run("index_names", after=after, last=following["id"])
    session.run("note_indexed", last=following["id"])
    return int(following["names"])


async def index_names(store: Store, most: int = 2_000) -> int:
    """Index the names of new jobs. Returns how many."""
    return await store.run(add_names, most) if await store.run(is_behind) else 0


def _ids(session: Session, query: str, **values: Any) -> list[int]:
    ids: list[int] = json.loads(session.value(query, **values))
    return ids
