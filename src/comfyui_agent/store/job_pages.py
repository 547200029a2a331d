"""Pages of jobs and batches. The work for one page is bounded, whatever is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import TextEnum, json_text
from comfyui_agent.store import job_orders
from comfyui_agent.store.batches import batch_from
from comfyui_agent.store.job_queries import count_jobs
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import record

MOST_LOOKED_AT = 5_000
MOST_ON_A_PAGE = 1_000
FIRST_LOOK = 200
AT_ONCE = 100
"""Rows that are held at a time while their size is not known."""
FEW = 1_000
GROWTH = 4
MOST_WORDS, MOST_NEEDS = 16, 10_000
ENDED = ("failed", "done", "starred", "rejected")
"""Orders by end, newest first."""
IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


class Rated(TextEnum):
    """What people think of results: starred, not rejected, rejected."""

    STARRED = "starred"
    KEPT = "kept"
    REJECTED = "rejected"


@dataclass(frozen=True)
class JobFilter:
    """Which jobs someone wants to see. None and an empty text do not restrict."""

    status: JobStatus | None = None
    text: str = ""
    """A part of the name. Every character stands for itself; case does not matter for a to z."""
    batch_id: str | None = None
    workflow_id: str | None = None
    server: str | None = None
    job_type: str | None = None
    failure_class: str | None = None
    attention: bool | None = None
    """Only jobs that need it, or only failed ones that do not."""
    rated: Rated | None = None
    model: str | None = None
    """A model file that its workflow names."""
    since: datetime | None = None
    until: datetime | None = None
    """When it ended: then or later, and before then."""
    prompt: str = ""
    """Words that are all in its prompt. Case does not matter for a to z."""
    is_by_age: bool = False
    """The newest first, whatever becomes of them meanwhile. A batch has its own order."""

    @property
    def words(self) -> list[str]:
        return self.prompt.split()[:MOST_WORDS]

    @property
    def state(self) -> JobStatus | None:
        """The one status of its jobs. None: any."""
        return self.status if self.attention is None else JobStatus.FAILED

    @property
    def is_selective(self) -> bool:
        """Whether rows have to be looked at one by one. Indexes find a status or a batch alone."""
        said = (self.text, self.workflow_id, self.server, self.job_type, self.failure_class)
        return any((*said, self.rated, self.model, self.since, self.prompt)) or self.attention is not None

    @property
    def is_possible(self) -> bool:
        """Whether a row can match. No text in the database has a NUL or half a character, for instance."""
        said = (self.text, self.batch_id, self.workflow_id, self.server, self.job_type, self.failure_class)
        if self.attention is not None and self.status not in (None, JobStatus.FAILED):
            return False
        return not any(IMPOSSIBLE.search(text) for text in (*said, self.model, self.prompt) if text)


RATED: Mapping[Rated | None, job_orders.JobOrder] = {
    Rated.STARRED: job_orders.STARRED,
    Rated.REJECTED: job_orders.REJECTED,
}


@dataclass(frozen=True)
class JobPage:
    """Some jobs in order, and the cursor of the next page, if there is one. A page that ends early is not whole."""

    jobs: list[Job]
    cursor: str | None
    is_whole: bool


@dataclass(frozen=True)
class BatchPage:
    """Some batches, newest first, and the cursor of the next page."""

    batches: list[Batch]
    cursor: str | None


@query
def job_page(
    session: Session, wanted: JobFilter, cursor: str | None = None, limit: int = 50, *, most_bytes: int | None = None
) -> JobPage:
    """A page of at most `limit` jobs from a cursor on. BadCursor if the cursor belongs to another request.

    Large values are left out. With `most_bytes`, the page ends before its jobs take more; it has at least one.
    Processing jobs come first, then pending ones as they will run, then failed and done ones, newest first. A batch has
    its own order. With a text, names that begin with it come first, from the last name on, then the newest. With a
    prompt, results come as they ended, newest first, and so does what is starred or rejected.
    """
    if not wanted.is_possible:
        return JobPage([], None, True)
    order, place = job_orders.place_of(cursor) if cursor is not None else (None, None)
    orders = _orders(session, wanted, order)
    if order is not None:
        while orders and orders[0].name != order:
            orders = orders[1:]
        if not orders:
            raise job_orders.BadCursor("the cursor belongs to a page of another question")
    if place is None and wanted.until and orders[0].name in ENDED:
        place = job_orders.CursorPlace(wanted.until, job_orders.FIRST_ID)
    return _Reader(session, wanted, min(max(limit, 1), MOST_ON_A_PAGE), most_bytes).read(orders, place)


@query
def batch_page(
    session: Session, kind: BatchKind | None = None, cursor: str | None = None, limit: int = 50
) -> BatchPage:
    """Batches from a cursor on, newest first."""
    name = f"batches {kind or ''}"
    order, place = job_orders.place_of(cursor) if cursor is not None else (name, None)
    if order != name:
        raise job_orders.BadCursor("the cursor belongs to a page of another question")
    limit = min(max(limit, 1), MOST_ON_A_PAGE)
    facts: dict[str, Any] = {"kind": kind.value if kind else None, "most": limit + 1}
    if place is None:
        query = "batches_of_kind_first" if kind else "batches_first"
    else:
        query = "batches_of_kind_before" if kind else "batches_before"
        facts |= {"key": place.key, "id": place.id}
        if not session.can_compare("created_at", place.key):
            raise job_orders.BadCursor("the cursor is not one that a page ended with")
    rows = session.rows(query, **facts)
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = job_orders.cursor_of(name, job_orders.CursorPlace(last["created_at"], last["place"]))
    return BatchPage([batch_from(session, row) for row in rows[:limit]], following)


def _orders(session: Session, wanted: JobFilter, order: str | None) -> list[job_orders.JobOrder]:
    """The orders to read one after the other. A later page goes on in the order of the first."""
    if wanted.batch_id:
        return [job_orders.members_of(wanted.batch_id, wanted.state)]
    if wanted.is_by_age:
        return [job_orders.NEWEST]
    if wanted.attention and not wanted.text:
        return [job_orders.ATTENTION]
    if wanted.rated in RATED and not wanted.text:
        return [RATED[wanted.rated]]
    if any(len(word) >= job_orders.LETTERS for word in wanted.words) and not wanted.text:
        return [job_orders.MatchingPrompts(wanted.words)]
    if not wanted.text:
        return [each for status, each in job_orders.BY_STATUS.items() if wanted.state in (None, status)]
    names = job_orders.MatchingNames(wanted.text) if len(wanted.text) >= job_orders.LETTERS else None
    if wanted.state is not None and _is_status_better(session, wanted.state, names, order):
        return [job_orders.BY_STATUS[wanted.state]]
    return [job_orders.by_prefix(wanted.text), names or job_orders.NEWEST]


def _is_status_better(
    session: Session, status: JobStatus, names: job_orders.MatchingNames | None, order: str | None
) -> bool:
    """Whether to go by status: few jobs have it, or so many contain the text that some are found soon."""
    if order is not None:
        return order == status.value
    is_small = getattr(count_jobs(session), status.value) <= FEW
    return bool(is_small or names is None or names.is_common(session))


class _Reader:
    """Reads orders until a page is full, or enough rows were looked at."""

    def __init__(self, session: Session, wanted: JobFilter, limit: int, most_bytes: int | None) -> None:
        self._session = session
        self._wanted = wanted
        self._asked = limit
        self._limit = limit
        self._bytes_left = sys.maxsize if most_bytes is None else most_bytes
        self._found: list[tuple[job_orders.JobOrder, Row]] = []
        self._left = MOST_LOOKED_AT
        self._needs = _needs_with(session, wanted.model) if wanted.model else None

    def read(self, orders: Sequence[job_orders.JobOrder], place: job_orders.CursorPlace | None) -> JobPage:
        for order in orders:
            reached = self._read_on(order, place)
            if len(self._found) > self._limit:
                last_order, last = self._found[self._limit - 1]
                return self._page(job_orders.cursor_of(last_order.name, last_order.place_of(last)))
            if reached is not None:
                return self._page(job_orders.cursor_of(order.name, reached))
            place = None
        return JobPage([record(Job, row) for _, row in self._found], None, True)

    def _page(self, cursor: str) -> JobPage:
        jobs = [record(Job, row) for _, row in self._found[: self._limit]]
        return JobPage(jobs, cursor, len(jobs) == self._asked)

    def _read_on(
        self, order: job_orders.JobOrder, place: job_orders.CursorPlace | None
    ) -> job_orders.CursorPlace | None:
        """Read on from a place. Returns where it stopped, None at the end of the order."""
        size = FIRST_LOOK + GROWTH * self._limit if self._wanted.is_selective else self._limit + 1
        while self._left > 0:
            part = order.read(self._session, place, min(size, self._left))
            self._left -= len(part.ids)
            self._take(order, part.ids)
            place, size = part.then, size * GROWTH
            if place is None or len(self._found) > self._limit:
                return place
            if order.name in ENDED and self._is_before(place):
                return None
        return place

    def _is_before(self, place: job_orders.CursorPlace) -> bool:
        """Whether everything from here on ended too early."""
        since = self._wanted.since
        return since is not None and isinstance(place.key, datetime) and place.key < since

    def _take(self, order: job_orders.JobOrder, ids: Sequence[int]) -> None:
        """Keep the jobs that are asked for, and one more than fits, to know that there are more."""
        for start in range(0, len(ids), AT_ONCE):
            for row in self._among(order, ids[start : start + AT_ONCE]):
                self._found.append((order, row))
                self._bytes_left -= sum(len(value) for value in row.values() if isinstance(value, (str, bytes)))
                if self._bytes_left < 0 and len(self._found) > 1:
                    self._limit = min(self._limit, len(self._found) - 1)
                    return
            if len(self._found) > self._limit:
                return

    def _among(self, order: job_orders.JobOrder, ids: Sequence[int]) -> list[Row]:
        wanted = self._wanted
        facts = {name: value or None for name, value in vars(wanted).items()}
        facts |= {"status": wanted.state and wanted.state.value, "attention": wanted.attention}
        facts |= {"rated": wanted.rated and wanted.rated.value, "words": wanted.words or None, "needs": self._needs}
        is_rest = order is job_orders.NEWEST or isinstance(order, job_orders.MatchingNames)
        facts["not_beginning"] = (wanted.text or None) if is_rest else None
        most = self._limit + 1 - len(self._found)
        return self._session.rows("jobs_among", ids=ids, most=most, **facts)


def _needs_with(session: Session, model: str) -> list[str]:
    """The keys of all needs that name a model file."""
    return [row["key"] for row in session.rows("needs_with_model", named=f",{json_text(model)}]", most=MOST_NEEDS)]
