"""Checks of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention, counted, megabytes
from comfyui_agent.store.job_pages import JobFilter, job_page
from comfyui_agent.store.job_queries import count_jobs, list_jobs
from comfyui_agent.store.liveness import bury_dead
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import text
from comfyui_agent.store.store import Store

RESULTS_LOOKED_AT, RESULTS_AT_ONCE = 10_000, 1_000
NAMED = 3
LARGE_LOG = 64 * 1024 * 1024
OLD_READER = ": some program keeps reading an old state; close it"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    is_fine: bool
    message: str


async def examine(store: Store, host: str, missing: Callable[[Sequence[str]], Sequence[str]]) -> list[Finding]:
    """Check everything. No job is changed; `host` is the caller's, `missing` says which results are not there."""
    await bury_dead(store, host)
    log = store.driver.log_bytes
    return [
        await store.run(_pages),
        await store.run(_counted),
        await store.run(_leases, host),
        await _results(store, missing),
        Finding("write-ahead log", log <= LARGE_LOG, megabytes(log) + ("" if log <= LARGE_LOG else OLD_READER)),
        await store.run(_sizes),
    ]


@query
def _pages(session: Session) -> Finding:
    problem = session.value("check_pages")
    is_fine = problem == "ok"
    return Finding("pages", is_fine, "sound" if is_fine else f"{problem}: restore a copy of the database")


@query
def _counted(session: Session) -> Finding:
    wrong = session.rows("wrong_counts")
    if not wrong:
        return Finding("counts", True, "agree with the jobs")
    words = ", ".join(f"{row['status']} says {row['said']}, there are {row['counted']}" for row in wrong)
    return Finding("counts", False, f"{words}: e3 db recover counts again")


async def look_at_jobs(store: Store) -> Finding:
    """Whether a job needs attention."""
    needy = (await store.run(count_jobs)).attention
    if not needy:
        return Finding("jobs", True, "none needs attention")
    names = ", ".join(job.config_name for job in await store.run(list_jobs, attention=True, limit=NAMED))
    more = f" and {needy - NAMED:,} more" if needy > NAMED else ""
    words = (
        f"{attention(needy)}: {names}{more}. See e3 queue ls --attention; then e3 retry --failed or e3 dismiss --failed"
    )
    return Finding("jobs", False, words)


@query
def _leases(session: Session, host: str) -> Finding:
    count = session.one("count_leases", host=host)
    assert count is not None
    if count["orphans"]:
        words = counted(count["orphans"], "job has", "jobs have")
        message = f"{words} no living agent: a running agent takes over, or e3 db recover"
        return Finding("leases", False, message)
    return Finding("leases", True, f"{count['held']} held")


async def _results(store: Store, missing: Callable[[Sequence[str]], Sequence[str]]) -> Finding:
    gone: list[str] = []
    looked_at, cursor = 0, None
    while looked_at < RESULTS_LOOKED_AT:
        page = await store.run(job_page, JobFilter(status=JobStatus.DONE), cursor, RESULTS_AT_ONCE)
        looked_at, cursor = looked_at + len(page.jobs), page.cursor
        try:
            away = frozenset(missing([path for job in page.jobs for path in job.outputs]))
        except OSError as error:
            return Finding("results", False, f"they cannot be looked at now: {error.strerror}")
        gone += [job.config_name for job in page.jobs if not away.isdisjoint(job.outputs)]
        if cursor is None:
            break
    if gone:
        return Finding("results", False, f"{len(gone)} of {looked_at} done jobs miss files, such as {gone[0]}")
    return Finding("results", True, f"the files of {counted(looked_at, 'done job')} are there")


@query
def _sizes(session: Session) -> Finding:
    """The sizes of things. They are never a fault."""
    size = session.one("size_of_database")
    assert size is not None
    given_back = megabytes(size["free"] + session.value("bytes_of_unused_templates"))
    words = f"{megabytes(size['bytes'])}, of which e3 db compact gives back about {given_back}"
    largest = [f"{text(row['config_name'])} ({row['bytes'] / 1024:,.1f} KB)" for row in session.rows("largest_jobs")]
    return Finding("sizes", True, f"{words}; the largest jobs are {', '.join(largest)}" if largest else words)
