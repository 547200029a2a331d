"""The state of the queue at one moment: for the first screen, and a few figures for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.server_states import LostServer
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.batches import batch_from
from comfyui_agent.store.event_log import newest_event
from comfyui_agent.store.job_pages import JobFilter, job_page
from comfyui_agent.store.job_queries import count_jobs
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.records import Counts
from comfyui_agent.store.rows import record
from comfyui_agent.store.server_states import lost_servers

MINUTES = 60
LATELY = 5
SHORTEST = 20.0
"""A pace is told from at least so many seconds."""
RESULTS, FAILURES, RENDERING, BATCHES = 12, 8, 64, 20
NEWEST_LOOKED_AT = 500
PRIORITIES_LOOKED_AT = 200
KEPT_COUNTED = 10_000


@dataclass(frozen=True)
class Minute:
    """How many jobs ended in one minute, such as `2025-08-09 12:30` in UTC. Cancelled jobs do not count."""

    at: str
    done: int
    failed: int


@dataclass(frozen=True)
class Overview:
    """Counts, pace, and the newest jobs of each kind. Times are UTC text."""

    at: str
    counts: Counts
    done_last_five: int
    """In the last five minutes, to ten seconds. Cancelled jobs do not count as failed."""
    seconds_lately: float
    """Since the first of them was done; five minutes at most."""
    failed_last_five: int
    done_last_hour: int
    failed_last_hour: int
    minutes: tuple[Minute, ...]
    """The last 60, the oldest first; the last one is not over yet."""
    queue_age_seconds: float | None
    """The longest wait of a job that may run. None if there is none."""
    kept: int
    """Jobs that wait for a person: paused with their batch, or for a later burst. Counted up to 10,000."""
    processing: list[Job]
    failed: list[Job]
    done: list[Job]
    batches: list[Batch]
    lost: list[LostServer]
    """Servers that stopped answering while they had prompts. Their jobs wait."""

    @property
    def per_minute(self) -> float:
        """Jobs done a minute, over the last five, or since the first of them if that is less."""
        return self.done_last_five / max(self.seconds_lately, SHORTEST) * 60


@query
def read_overview(session: Session) -> Overview:
    now: str = session.value("now")
    ended = session.rows("endings", seconds=MINUTES * 60)
    lately = [row for row in ended if row["ago"] < LATELY * 60]
    return Overview(
        at=now,
        counts=count_jobs(session),
        done_last_five=_count(lately, JobStatus.DONE),
        seconds_lately=max((row["ago"] for row in lately if row["status"] == JobStatus.DONE.value), default=0.0),
        failed_last_five=_count(lately, JobStatus.FAILED),
        done_last_hour=_count(ended, JobStatus.DONE),
        failed_last_hour=_count(ended, JobStatus.FAILED),
        minutes=_minutes(now, ended),
        queue_age_seconds=_queue_age(session),
        kept=session.value("kept_back", most=KEPT_COUNTED),
        processing=job_page(session, JobFilter(status=JobStatus.PROCESSING), None, RENDERING).jobs,
        failed=[record(Job, each) for each in session.rows("newest_failures", most=FAILURES)],
        done=[record(Job, each) for each in session.rows("newest_results", most=RESULTS, looked_at=NEWEST_LOOKED_AT)],
        batches=[batch_from(session, each) for each in session.rows("open_batches", most=BATCHES)],
        lost=lost_servers(session),
    )


@dataclass(frozen=True)
class Gauges:
    """Figures of one moment. None of them counts over all jobs."""

    counts: Counts
    queue_age_seconds: float
    unfinished_batches: Mapping[str, int]
    newest_event: int


@query
def read_gauges(session: Session) -> Gauges:
    return Gauges(
        counts=count_jobs(session),
        queue_age_seconds=_queue_age(session) or 0.0,
        unfinished_batches={row["status"]: row["batches"] for row in session.rows("unfinished_by_status")},
        newest_event=newest_event(session),
    )


def _queue_age(session: Session) -> float | None:
    seconds = session.value("longest_waiting", most=PRIORITIES_LOOKED_AT)
    return None if seconds is None else max(0.0, seconds)


def _count(ended: list[Row], status: JobStatus) -> int:
    return sum(row["jobs"] for row in ended if row["status"] == status.value)


def _minutes(now: str, ended: list[Row]) -> tuple[Minute, ...]:
    """The last hour by minutes of the clock, oldest first."""
    this = datetime.fromisoformat(now[:16])
    found = {f"{this - timedelta(minutes=ago):%Y-%m-%d %H:%M}": [0, 0] for ago in reversed(range(MINUTES))}
    for row in ended:
        if row["minute"] in found:
            found[row["minute"]][row["status"] == JobStatus.FAILED.value] += row["jobs"]
    return tuple(Minute(at, done, failed) for at, (done, failed) in found.items())
