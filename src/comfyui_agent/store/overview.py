"""The state of the queue at one moment: for the first screen, and a few figures for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.server_states import LostServer
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.batches import batch_from
from comfyui_agent.store.event_log import newest_event
from comfyui_agent.store.job_pages import JobFilter, job_page
from comfyui_agent.store.job_queries import count_jobs
from comfyui_agent.store.needs import LoadedSet, server_sets
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Counts
from comfyui_agent.store.rows import record, time_text
from comfyui_agent.store.server_states import lost_servers

MINUTES = 60
LATELY = 5
SHORTEST = 20.0
"""A pace is told from at least so many seconds."""
RESULTS, FAILURES, RENDERING, BATCHES = 12, 8, 64, 20
NEWEST_LOOKED_AT = 500
PRIORITIES_LOOKED_AT = 200
KEPT_COUNTED = 10_000
BUCKET = 10
"""Seconds that the endings of jobs are counted by."""
STEPS_BACK, WORK_COUNTED, PICTURES_OF_WORK = 200, 100_000, 24


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
        return _per_minute(self.done_last_five, self.seconds_lately)

    @property
    def left(self) -> int:
        """How many jobs may still run, without those that wait for a person."""
        return max(0, self.counts.pending + self.counts.processing - self.kept)


@dataclass(frozen=True)
class _Endings:
    """How many jobs ended, by the first moment of each ten seconds and by status."""

    now: datetime
    jobs: Mapping[tuple[datetime, str], int]

    def since(self, minutes: int, status: JobStatus) -> int:
        """How many ended in the last minutes."""
        first = _bucket(self.now - timedelta(minutes=minutes))
        return sum(jobs for (at, state), jobs in self.jobs.items() if state == status.value and at > first)

    def seconds_since_first_done(self, minutes: int) -> float:
        """How long ago the first job of the last minutes was done; 0 if there was none."""
        first = _bucket(self.now - timedelta(minutes=minutes))
        done = [at for at, state in self.jobs if state == JobStatus.DONE.value and at > first]
        return (self.now - min(done)).total_seconds() if done else 0.0

    def by_minute(self) -> tuple[Minute, ...]:
        """The last hour by minutes of the clock, oldest first."""
        this = self.now.replace(second=0, microsecond=0)
        found = {this - timedelta(minutes=ago): [0, 0] for ago in reversed(range(MINUTES))}
        for (at, status), jobs in self.jobs.items():
            minute = at.replace(second=0)
            if minute in found:
                found[minute][status == JobStatus.FAILED.value] += jobs
        return tuple(Minute(at.strftime("%Y-%m-%d %H:%M"), done, failed) for at, (done, failed) in found.items())


def _endings(session: Session, minutes: int, batch_id: str | None = None) -> _Endings:
    now: datetime = session.value("now")
    times = {"since": _bucket(now - timedelta(minutes=minutes)), "until": now}
    rows = session.rows("results_of_batch", id=batch_id, **times) if batch_id else session.rows("endings", **times)
    return _Endings(
        now, {(each["at"], each["status"]): each["jobs"] for each in rows if isinstance(each["at"], datetime)}
    )


def _per_minute(done: int, seconds: float) -> float:
    return done / max(seconds, SHORTEST) * 60


@query
def done_per_minute(session: Session, batch_id: str | None = None) -> float:
    """`Overview.per_minute` alone, or that of one batch."""
    ended = _endings(session, LATELY, batch_id)
    return _per_minute(ended.since(LATELY, JobStatus.DONE), ended.seconds_since_first_done(LATELY))


@query
def read_overview(session: Session) -> Overview:
    ended = _endings(session, MINUTES)
    return Overview(
        at=time_text(ended.now),
        counts=count_jobs(session),
        done_last_five=ended.since(LATELY, JobStatus.DONE),
        seconds_lately=ended.seconds_since_first_done(LATELY),
        failed_last_five=ended.since(LATELY, JobStatus.FAILED),
        done_last_hour=ended.since(MINUTES, JobStatus.DONE),
        failed_last_hour=ended.since(MINUTES, JobStatus.FAILED),
        minutes=ended.by_minute(),
        queue_age_seconds=_queue_age(session),
        kept=session.value("kept_back", most=KEPT_COUNTED),
        processing=job_page(session, JobFilter(status=JobStatus.PROCESSING), None, RENDERING).jobs,
        failed=[record(Job, each) for each in session.rows("newest_failures", most=FAILURES)],
        done=[record(Job, each) for each in session.rows("newest_results", most=RESULTS, looked_at=NEWEST_LOOKED_AT)],
        batches=[batch_from(session, each) for each in session.rows("open_batches", most=BATCHES)],
        lost=lost_servers(session),
    )


@dataclass(frozen=True)
class Trouble:
    """Why some jobs need attention, in the words of their rows: how many that are."""

    failure_class: str | None
    run_count: int
    """0 if they were not sent to a server."""
    source: str | None
    jobs: int


@dataclass(frozen=True)
class Work:
    """A stretch of work, without half an hour in which nothing ended."""

    began: datetime
    ended: datetime
    done: int
    """Counted up to 100,000."""
    troubles: tuple[Trouble, ...]
    """What of it needs attention now, the most frequent first."""
    results: list[Job]
    """The newest of it."""

    @property
    def attention(self) -> int:
        return sum(trouble.jobs for trouble in self.troubles)


@query
def last_work(session: Session) -> Work | None:
    """The last stretch of work. None if nothing has ended yet, but what was cancelled or dismissed."""
    found = session.one("last_work", most=STEPS_BACK) or {}
    first, last = found.get("at"), found.get("ended_at")
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    done = session.rows("done_between", first=first, last=last, most=WORK_COUNTED)[0]
    began = done["started_at"] if isinstance(done["started_at"], datetime) else first
    troubles = session.rows("troubles_between", first=first, last=last, most=WORK_COUNTED)
    rows = session.rows("newest_results", most=PICTURES_OF_WORK, looked_at=NEWEST_LOOKED_AT)
    newest = [record(Job, each) for each in rows]
    return Work(
        began=min(began, first),
        ended=last,
        done=done["done"],
        troubles=tuple(record(Trouble, each) for each in troubles),
        results=[job for job in newest if time_text(first) <= (job.end_time or "") <= time_text(last)],
    )


@dataclass(frozen=True)
class Gauges:
    """Figures of one moment. None of them counts over all jobs."""

    counts: Counts
    queue_age_seconds: float
    unfinished_batches: Mapping[str, int]
    newest_event: int
    sets: Mapping[str, LoadedSet] = field(default_factory=dict)


@query
def read_gauges(session: Session) -> Gauges:
    return Gauges(
        counts=count_jobs(session),
        queue_age_seconds=_queue_age(session) or 0.0,
        unfinished_batches={row["status"]: row["batches"] for row in session.rows("unfinished_by_status")},
        newest_event=newest_event(session),
        sets=server_sets(session),
    )


def _queue_age(session: Session) -> float | None:
    seconds = session.value("longest_waiting", most=PRIORITIES_LOOKED_AT)
    return None if seconds is None else max(0.0, seconds)


def _bucket(moment: datetime) -> datetime:
    return moment.replace(second=moment.second // BUCKET * BUCKET, microsecond=0)
