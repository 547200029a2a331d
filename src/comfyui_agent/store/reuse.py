"""Results that are taken over from another job that was made of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.store.leases import change_leased, leased_from
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.outcomes import complete_job, digests_of
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Lease, Leased
from comfyui_agent.store.rows import paths_in


@dataclass(frozen=True)
class RecordedResult:
    """The result of another job: its files with their SHA-256, and the job that was rendered for it."""

    origin: JobId
    files: tuple[tuple[str, str], ...]


@transition
def note_fingerprint(session: Session, lease: Lease, fingerprint: str) -> None:
    change_leased(session, "note_fingerprint", lease, fingerprint=fingerprint)


@query
def find_same_result(session: Session, fingerprint: str, job_id: JobId) -> RecordedResult | None:
    """The result of another job with this fingerprint. None if there is none, or one of its files has no digest."""
    row = session.one("same_result", fingerprint=fingerprint, id=job_id)
    if row is None:
        return None
    paths = paths_in(row["outputs"])
    digests = digests_of(session, paths)
    files = tuple((path, found.sha256) for path in paths if (found := digests.get(path)) and found.sha256)
    return RecordedResult(JobId(row["origin"]), files) if files and len(files) == len(paths) else None


@query
def is_reusable_waiting(session: Session) -> bool:
    """Whether a waiting job may only need a recorded result."""
    return session.one("reusable_job") is not None


@transition
def complete_reused(session: Session, lease: Lease, outputs: Sequence[str], origin: JobId) -> list[str]:
    """Record a result that was taken over, as no run. Returns other files of the job that nothing refers to."""
    strays = complete_job(session, lease, outputs, None)
    session.run("note_reused", id=lease.job_id, origin=origin)
    session.run("remove_attempt", attempt_id=lease.attempt_id)
    return strays


@transition
def lease_reusable(session: Session, worker: str, server: str, prompt_id: PromptId, seconds: float) -> Leased | None:
    """Lease the oldest waiting job that may only need a recorded result, whatever its turn. Nothing is to be sent."""
    row = session.one("reusable_job")
    if row is None:
        return None
    run = {"worker": worker, "server": server, "prompt_id": prompt_id, "seconds": seconds}
    job = session.one("take_job", id=row["id"], is_load=False, **run)
    return None if job is None else replace(leased_from(job, job["attempt_id"]), is_ahead=True)
