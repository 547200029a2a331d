"""Members of a batch by place. The cost grows with how many are asked for, not with the size of the batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from comfyui_agent.domain.jobs import Job
from comfyui_agent.store.batches import members_after
from comfyui_agent.store.cursors import LAST_ID
from comfyui_agent.store.job_queries import job_from
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Session
from comfyui_agent.store.store import Store

PART = 1_000


@query
def members_at(session: Session, batch_id: str, indexes: Sequence[int]) -> list[Job]:
    """The members at these places, in order."""
    found: list[Job] = []
    for first, last in _stretches(indexes):
        after, after_id, most = first - 1, LAST_ID, last - first + 2
        while True:
            rows = session.rows("brief_members_after", id=batch_id, after=after, after_id=after_id, most=most)
            rows_here = [row for row in rows if isinstance(row["batch_index"], int) and row["batch_index"] <= last]
            found += map(job_from, rows_here)
            if len(rows_here) < most:
                break  # otherwise someone has put several at one place
            after, after_id = rows_here[-1]["batch_index"], rows_here[-1]["id"]
    return found


@query
def members_without_place(session: Session, batch_id: str, most: int) -> list[Job]:
    """Members that someone put in by hand, without a place."""
    return [job_from(row) for row in session.rows("brief_members_without_place", id=batch_id, most=most)]


async def batch_members(store: Store, batch_id: str, *, is_whole: bool = False) -> AsyncIterator[Job]:
    """Every member in order, read in parts. Large values are left out, unless the members are wanted whole."""
    last: Job | None = None
    while found := await store.run(members_after, batch_id, last, PART, is_whole=is_whole):
        for job in found:
            yield job
        last = found[-1]


def _stretches(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last number of each run of consecutive numbers."""
    first: int | None = None
    last = -1
    for index in sorted(set(indexes)):
        if first is not None and index == last + 1:
            last = index
            continue
        if first is not None:
            yield first, last
        first = last = index
    if first is not None:
        yield first, last
