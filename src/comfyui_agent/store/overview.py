"""How it stands, at one moment: all that the first screen says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.server_states import LostServer
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.batches import batch_from
from comfyui_agent.store.job_pages import JobFilter, job_page
from comfyui_agent.store.job_queries import count_jobs, job_from
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Counts
from comfyui_agent.store.server_states import lost_servers

MINUTES = 60
LATELY = 5
SHORTEST = 20.0
"""No pace is told from less."""
RESULTS, FAILURES, RENDERING, BATCHES = 12, 8, 64, 20
NEWEST_LOOKED_AT = 500
PRIORITIES_LOOKED_AT = 200
KEPT_COUNTED = 10_000
TIME = "%Y-%m-%d %H:%M:%S.%f"
TEN_SECONDS = len("2025-08-09 12:30:4")
MINUTE = len("2025-08-09 12:30")


@dataclass(frozen=True)
class Minute:
    """What ended in one minute of the clock, which is UTC text such as `2025-08-09 12:30`. Failed is not cancelled."""

    at: str
    done: int
    failed: int


@dataclass(frozen=True)
class Overview:
    """How many jobs there are, how fast they end, and the newest of each kind. Times are UTC text."""

    at: str
    counts: Counts
    done_last_five: int
    """In the last five minutes, to ten seconds. What was cancelled has not failed."""
    seconds_lately: float
    """Since the first of them ended: five minutes at most."""
    failed_last_five: int
    done_last_hour: int
    failed_last_hour: int
    minutes: tuple[Minute, ...]
    """The last 60, the oldest first; the last one is not over yet."""
    queue_age_seconds: float | None
    """How long the job has waited that has waited longest, of those that may run; None if there is none."""
    kept: int
    """How many wait for a person: paused with their batch, or kept for a later burst; 10,000 stands for more."""
    processing: list[Job]
    """As they began, at most 64."""
    failed: list[Job]
    """The newest that need attention, at most 8."""
    done: list[Job]
    """The newest that have results, at most 12."""
    batches: list[Batch]
    """Those that are under way, the newest first, at most 20."""
    lost: list[LostServer]
    """Servers that stopped answering with prompts of jobs that wait because of that."""

    @property
    def per_minute(self) -> float:
        """Jobs done a minute, over the last five, or since the first of them if that is less."""
        return self.done_last_five / max(self.seconds_lately, SHORTEST) * 60


@query
def read_overview(session: Session) -> Overview:
    row = session.one("now")
    assert row is not None
    now = datetime.strptime(row["now"], TIME)
    hour, lately = now - timedelta(minutes=MINUTES), now - timedelta(minutes=LATELY)
    until = row["now"][:TEN_SECONDS]
    rows = session.rows("endings", since=hour.strftime(TIME)[:TEN_SECONDS], until=until)
    ended = {(each["at"], each["status"]): each["jobs"] for each in rows}

    def since(moment: datetime, status: JobStatus) -> int:
        first = moment.strftime(TIME)[:TEN_SECONDS]
        return sum(jobs for (at, state), jobs in ended.items() if state == status.value and at > first)

    def seconds_since_first(moment: datetime) -> float:
        after = moment.strftime(TIME)[:TEN_SECONDS]
        first = min((at for at, state in ended if state == JobStatus.DONE.value and at > after), default=None)
        return 0.0 if first is None else (now - datetime.strptime(f"{first}0.0", TIME)).total_seconds()

    waiting = session.one("longest_waiting", most=PRIORITIES_LOOKED_AT)
    seconds = waiting["seconds"] if waiting is not None else None
    return Overview(
        at=row["now"],
        counts=count_jobs(session),
        done_last_five=since(lately, JobStatus.DONE),
        seconds_lately=seconds_since_first(lately),
        failed_last_five=since(lately, JobStatus.FAILED),
        done_last_hour=since(hour, JobStatus.DONE),
        failed_last_hour=since(hour, JobStatus.FAILED),
        minutes=_minutes(now, ended),
        queue_age_seconds=max(0.0, seconds) if seconds is not None else None,
        kept=int((session.one("kept_back", most=KEPT_COUNTED) or {"jobs": 0})["jobs"]),
        processing=job_page(session, JobFilter(status=JobStatus.PROCESSING), None, RENDERING).jobs,
        failed=[job_from(each) for each in session.rows("newest_failures", most=FAILURES)],
        done=[job_from(each) for each in session.rows("newest_results", most=RESULTS, looked_at=NEWEST_LOOKED_AT)],
        batches=[batch_from(session, each) for each in session.rows("open_batches", most=BATCHES)],
        lost=lost_servers(session),
    )


def _minutes(now: datetime, ended: dict[tuple[str, str], int]) -> tuple[Minute, ...]:
    found = {(now - timedelta(minutes=ago)).strftime(TIME)[:MINUTE]: [0, 0] for ago in reversed(range(MINUTES))}
    for (at, status), jobs in ended.items():
        if at[:MINUTE] in found:
            found[at[:MINUTE]][status == JobStatus.FAILED.value] += jobs
    return tuple(Minute(at, done, failed) for at, (done, failed) in found.items())
