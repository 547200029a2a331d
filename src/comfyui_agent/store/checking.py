"""Whether the memory is sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.port import Session
from comfyui_agent.store.recovering import is_orphan
from comfyui_agent.store.store import Store

RESULTS_LOOKED_AT = 10_000
LARGE_LOG = 64 * 1024 * 1024


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    is_fine: bool
    message: str


async def examine(store: Store, is_dead: Callable[[str], bool], root: Path) -> list[Finding]:
    """Look at everything. Nothing is changed."""
    return [
        await store.driver.read(_pages),
        await store.driver.read(_counted),
        await store.driver.read(lambda session: _leases(session, is_dead)),
        await _results(store, root),
        _log(store.driver.log_bytes),
    ]


def _pages(session: Session) -> Finding:
    problems = [next(iter(row.values())) for row in session.rows("check_pages")]
    is_fine = problems == ["ok"]
    return Finding("pages", is_fine, "sound" if is_fine else f"{problems[0]}: restore a copy of the database")


def _counted(session: Session) -> Finding:
    wrong = session.rows("wrong_counts")
    if not wrong:
        return Finding("counts", True, "agree with the jobs")
    words = ", ".join(f"{row['status']} says {row['said']}, there are {row['counted']}" for row in wrong)
    return Finding("counts", False, f"{words}: e3 db recover counts again")


def _leases(session: Session, is_dead: Callable[[str], bool]) -> Finding:
    held = session.rows("processing_jobs")
    orphans = [row for row in held if is_orphan(row, is_dead)]
    if orphans:
        message = f"{len(orphans)} jobs have no living agent: a running agent takes them over, or e3 db recover"
        return Finding("leases", False, message)
    return Finding("leases", True, f"{len(held)} held")


async def _results(store: Store, root: Path) -> Finding:
    jobs = await store.jobs(status=JobStatus.DONE, limit=RESULTS_LOOKED_AT)
    gone = [job for job in jobs if not all((root / path).is_file() for path in job.outputs)]
    if gone:
        return Finding(
            "results", False, f"{len(gone)} of {len(jobs)} done jobs miss files, such as {gone[0].config_name}"
        )
    return Finding("results", True, f"the files of {len(jobs)} done jobs are there")


def _log(size: int) -> Finding:
    megabytes = f"{size / 1024 / 1024:.0f} MB"
    if size <= LARGE_LOG:
        return Finding("write-ahead log", True, megabytes)
    return Finding("write-ahead log", False, f"{megabytes}: some program keeps reading an old state; close it")
