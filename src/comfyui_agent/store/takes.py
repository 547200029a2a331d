"""Takes: the results of a job that was rendered again. One of them counts; the others are kept until they are old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.store.operation import Operation, column, command, listing, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import paths_in

TAKES_AT_ONCE = 200


@dataclass(frozen=True)
class Take:
    """An earlier or later result of a job, which does not count now."""

    number: int
    outputs: tuple[str, ...]
    start_time: str | None
    end_time: str | None
    duration: float | None
    server: str | None
    inputs: str | None
    """The values by place that it was made with, as JSON."""


names_of_others: Operation[[JobId, Sequence[str]], list[str]] = column(list, "names_of_others", "job_id", "paths")
"""The paths among these that another job or a grid has."""
list_takes: Operation[[JobId], list[Take]] = listing(Take, "takes_of_job", "job_id")
"""The results of a job that do not count, oldest first."""


@command
def choose_take(session: Session, job_id: JobId, number: int) -> bool:
    """Let another result of an ended job count, with all that it was made with. The grid of its batch is due again."""
    take = {"job_id": job_id, "number": number}
    session.rows("hold_job", job_id=job_id)  # another choice, or a change of its file, waits
    session.run("keep_take", **take)
    if not session.run("choose_take", **take):
        return False
    session.run("forget_take", **take)
    session.run("grid_is_stale", job_id=job_id)
    return True


@transition
def remove_old_takes(session: Session, before: datetime) -> int:
    """Remove the next results that do not count and are older than a time. Agents remove their files soon after."""
    rows = session.rows("old_takes", before=before, most=TAKES_AT_ONCE)
    for row in rows:
        if session.run("forget_take", job_id=row["job_id"], number=row["number"]):  # it was not chosen meanwhile
            for path in paths_in(row["outputs"]):
                session.run("disclaim_file", path=path, job_id=row["job_id"])
    return len(rows)
