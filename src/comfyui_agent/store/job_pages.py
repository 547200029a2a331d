"""Pages of jobs and batches for people who have a million of them: work is bounded, whatever is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.batches import batch_from
from comfyui_agent.store.cursors import LAST_ID, CursorPlace, cursor_of, place_of
from comfyui_agent.store.cursors import BadCursor as BadCursor
from comfyui_agent.store.job_orders import (
    BEHIND_ALL_TEXTS,
    NEWEST,
    NamesWalk,
    Walk,
    beginning,
    members,
    members_in_state,
    needing_attention,
    newest,
    section,
)
from comfyui_agent.store.job_queries import count_jobs, job_from
from comfyui_agent.store.names import LETTERS
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Row, Session

MOST_LOOKED_AT = 5_000
"""So many rows are looked at for one page."""
MOST_ON_A_PAGE = 1_000
FIRST_LOOK = 200
AT_ONCE = 100
"""So many rows are held at a time while it is not known how large they are."""
FEW = 1_000
GROWTH = 4
IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
SECTIONS = (JobStatus.PROCESSING, JobStatus.PENDING, JobStatus.FAILED, JobStatus.DONE)


@dataclass(frozen=True)
class JobFilter:
    """Which jobs someone wants to see; None and an empty text ask for nothing in particular."""

    status: JobStatus | None = None
    text: str = ""
    """A part of the name. Every character stands for itself; a to z are the same in both sizes."""
    batch_id: str | None = None
    workflow_id: str | None = None
    server: str | None = None
    job_type: str | None = None
    failure_class: str | None = None
    attention: bool | None = None
    """Only jobs that need it, or only failed ones that do not."""

    @property
    def state(self) -> JobStatus | None:
        """The one state that its jobs are in; None: any."""
        return self.status if self.attention is None else JobStatus.FAILED

    @property
    def is_selective(self) -> bool:
        """Whether rows have to be looked at one by one; a state or a batch alone is found in an index."""
        said = self.text or self.workflow_id or self.server or self.job_type or self.failure_class
        return bool(said) or self.attention is not None

    @property
    def is_possible(self) -> bool:
        """Whether a row can hold what is asked for: no text has a NUL or half a character in it, for instance."""
        said = (self.text, self.batch_id, self.workflow_id, self.server, self.job_type, self.failure_class)
        if self.attention is not None and self.status not in (None, JobStatus.FAILED):
            return False
        return not any(IMPOSSIBLE.search(text) for text in said if text)


@dataclass(frozen=True)
class JobPage:
    """Some jobs in order, and the cursor of the next page; None: there are no more.

    Where many rows do not fit what was asked for, or rows are large, a page may end before it is full: it is not
    whole, and its cursor leads on.
    """

    jobs: list[Job]
    cursor: str | None
    is_whole: bool


@dataclass(frozen=True)
class BatchPage:
    """Some batches, the newest first, and the cursor of the next page."""

    batches: list[Batch]
    cursor: str | None


@query
def job_page(
    session: Session,
    wanted: JobFilter,
    cursor: str | None = None,
    limit: int = 50,
    *,
    most_bytes: int | None = None,
) -> JobPage:
    """A page of at most so many jobs from a cursor on. BadCursor if it belongs to another question.

    What is large in a job is left out. With `most_bytes`, the page ends before its jobs take more; it has at least one.

    What renders comes first, then what waits as it will run, then what failed and what is done, the newest first. A
    batch has its own order. With a text, the newest job comes first; for less than three letters those come before it
    whose names begin with the text.
    """
    if not wanted.is_possible:
        return JobPage([], None, True)
    order, place = place_of(cursor) if cursor is not None else (None, None)
    walks = _walks(session, wanted, order)
    if order is not None:
        while walks and walks[0].order != order:
            walks = walks[1:]
        if not walks:
            raise BadCursor("the cursor belongs to a page of another question")
    return _Reader(session, wanted, min(max(limit, 1), MOST_ON_A_PAGE), most_bytes).read(walks, place)


@query
def batch_page(
    session: Session, kind: BatchKind | None = None, cursor: str | None = None, limit: int = 50
) -> BatchPage:
    """Batches from a cursor on, the newest first."""
    name = f"batches {kind or ''}"
    order, place = place_of(cursor) if cursor is not None else (name, None)
    if order != name:
        raise BadCursor("the cursor belongs to a page of another question")
    place, limit = place or CursorPlace(BEHIND_ALL_TEXTS, LAST_ID), min(max(limit, 1), MOST_ON_A_PAGE)
    facts = {"key": place.key, "id": place.id, "most": limit + 1}
    if kind is None:
        rows = session.rows("batches_before", **facts)
    else:
        rows = session.rows("batches_of_kind_before", kind=kind.value, **facts)
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = cursor_of(name, CursorPlace(last["created_at"], last["place"]))
    return BatchPage([batch_from(session, row) for row in rows[:limit]], following)


def _walks(session: Session, wanted: JobFilter, order: str | None) -> list[Walk]:
    """The orders to go through, one after the other. A later page goes on in the order of the first."""
    if wanted.batch_id:
        if wanted.state is not None:
            return [members_in_state(wanted.batch_id, wanted.state)]
        return [members(wanted.batch_id)]
    if wanted.attention and not wanted.text:
        return [needing_attention()]
    if not wanted.text:
        return [section(status) for status in SECTIONS if wanted.state in (None, status)]
    names = NamesWalk(wanted.text) if len(wanted.text) >= LETTERS else None
    if wanted.state is not None and _is_section_better(session, wanted.state, names, order):
        return [section(wanted.state)]
    return [names] if names is not None else [beginning(wanted.text), newest()]


def _is_section_better(session: Session, status: JobStatus, names: NamesWalk | None, order: str | None) -> bool:
    """Few jobs are in that state: all are soon looked at. Or many have the text: some are soon found."""
    if order is not None:
        return order == status.value
    is_small = getattr(count_jobs(session), status.value) <= FEW
    return bool(is_small or names is None or names.is_common(session))


class _Reader:
    """Goes through orders until a page is full, or enough was looked at."""

    def __init__(self, session: Session, wanted: JobFilter, limit: int, most_bytes: int | None) -> None:
        self._session = session
        self._wanted = wanted
        self._asked = limit
        self._limit = limit
        self._bytes_left = sys.maxsize if most_bytes is None else most_bytes
        self._found: list[tuple[Walk, Row]] = []
        self._left = MOST_LOOKED_AT

    def read(self, walks: Sequence[Walk], place: CursorPlace | None) -> JobPage:
        for walk in walks:
            reached = self._go_through(walk, place)
            if len(self._found) > self._limit:
                order, last = self._found[self._limit - 1]
                return self._page(cursor_of(order.order, order.place_of(last)))
            if reached is not None:
                return self._page(cursor_of(walk.order, reached))
            place = None
        return JobPage([job_from(row) for _, row in self._found], None, True)

    def _page(self, cursor: str) -> JobPage:
        jobs = [job_from(row) for _, row in self._found[: self._limit]]
        return JobPage(jobs, cursor, len(jobs) == self._asked)

    def _go_through(self, walk: Walk, place: CursorPlace | None) -> CursorPlace | None:
        """Read on from a place; where it ended before the order did."""
        size = FIRST_LOOK + GROWTH * self._limit if self._wanted.is_selective else self._limit + 1
        while self._left > 0:
            step = walk.step(self._session, place, min(size, self._left))
            self._left -= len(step.ids)
            self._take(walk, step.ids)
            place, size = step.then, size * GROWTH
            if place is None or len(self._found) > self._limit:
                return place
        return place

    def _take(self, walk: Walk, ids: Sequence[int]) -> None:
        """Keep those that are asked for, one more than there is room for: so it is known that there are more."""
        for start in range(0, len(ids), AT_ONCE):
            for row in self._among(walk, ids[start : start + AT_ONCE]):
                self._found.append((walk, row))
                self._bytes_left -= sum(len(value) for value in row.values() if isinstance(value, (str, bytes)))
                if self._bytes_left < 0 and len(self._found) > 1:
                    self._limit = min(self._limit, len(self._found) - 1)
                    return
            if len(self._found) > self._limit:
                return

    def _among(self, walk: Walk, ids: Sequence[int]) -> list[Row]:
        wanted = self._wanted
        return self._session.rows(
            "jobs_among",
            ids=json_text(ids),
            status=wanted.state.value if wanted.state is not None else None,
            attention=None if wanted.attention is None else int(wanted.attention),
            workflow_id=wanted.workflow_id or None,
            server=wanted.server or None,
            job_type=wanted.job_type or None,
            failure_class=wanted.failure_class or None,
            text=wanted.text or None,
            not_beginning=wanted.text if walk.order == NEWEST else None,
            most=self._limit + 1 - len(self._found),
        )
