"""How a run ends. Each ending is one transaction and needs the lease; triggers complete the batch in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.jobs import DONE, JobId
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.texts import json_text, whole
from comfyui_agent.store.errors import FileTaken
from comfyui_agent.store.event_log import add_event, note_ending
from comfyui_agent.store.grids import holder_of
from comfyui_agent.store.leases import change_leased, lost
from comfyui_agent.store.operation import Operation, column, query, transition
from comfyui_agent.store.port import Deferred, Result, Session
from comfyui_agent.store.records import Digest, Lease
from comfyui_agent.store.rows import paths_in, record

NOBODY = 0
"""Holds the files that are to be removed: no job has this number."""
LONGEST_TRACE = 32_000
LONGEST_TEXT = 8_000


@transition
def claim_files(
    session: Session,
    lease: Lease,
    paths: Sequence[str],
    seconds: float,
    digests: Mapping[str, Digest] = MappingProxyType({}),
    *,
    renews: bool = True,
) -> list[str]:
    """Prove the lease, prolong it if this `renews`, and claim files. Returns those it had. FileTaken for another's."""
    facts = {path: vars(digests.get(path, Digest())) for path in paths}
    if not renews:  # one statement for a name that is free
        holder = {"id": lease.job_id, "fence": lease.fence}
        paths = [path for path in paths if not session.run("claim_free_file", path=path, **holder, **facts[path])]
        if not paths:
            return []
    change_leased(session, "prove_lease", lease, seconds=seconds)
    ours = []
    for path in paths:
        owner = session.one("owner_of_file", path=path)
        if owner is not None and owner["job_id"] != lease.job_id:
            raise FileTaken(path, holder_of(owner))
        if owner is not None:
            ours.append(path)
        if not session.run("claim_file", path=path, job_id=lease.job_id, **facts[path]):
            raise FileTaken(path, "another job, which claimed it at the same moment")
    return ours


owned_files: Operation[[Sequence[str]], frozenset[str]] = column(frozenset, "owned_files", "paths")


@query
def digests_of(session: Session, paths: Sequence[str]) -> dict[str, Digest]:
    """What these results were when they were published."""
    return {row["path"]: record(Digest, row) for row in session.rows("digests_of_files", paths=paths)}


recorded_files: Operation[[Sequence[str]], frozenset[str]] = column(frozenset, "recorded_files", "paths")
"""The paths that are, or once were, a result or a grid."""
kept_pictures: Operation[[], frozenset[str]] = column(frozenset, "kept_pictures")
"""The names of kept input files that jobs use."""


@query
def list_strays(session: Session) -> list[str]:
    """Files that nothing refers to any more, and that are still to be removed."""
    return [row["path"] for row in session.rows("files_of_job", job_id=NOBODY)]


@transition
def with_unowned(session: Session, paths: Sequence[str], remove: Callable[[str], bool]) -> None:
    """Remove files that are nobody's, while nobody can claim them. One for which this returns False stays on record."""
    for path in paths:
        if session.one("owner_of_file", path=path) is None:
            is_ours = session.run("claim_file", path=path, job_id=NOBODY, **vars(Digest()))
            if is_ours and remove(path):
                session.run("forget_stray", path=path)


@transition
def complete_job(
    session: Session, lease: Lease, outputs: Sequence[str], duration: float | None, *, is_cached: bool = False
) -> Result[list[str]]:
    """Record the result of a job, and whether its server had it in its cache.

    Returns other files of the job that nothing refers to any more.
    """
    _keep_entry(session, lease)
    event = {"event": EventName.JOB_DONE.value, "failure_class": None, "message": None, "is_timed": True}
    run = {"job_id": lease.job_id, "attempt_id": lease.attempt_id, "sent": lease.sent, "outcome": DONE, "error": None}
    held = {"id": lease.job_id, "fence": lease.fence}
    made = {"outputs": list(outputs), "duration": duration, "is_cached": int(is_cached)}
    job = session.require("complete_job", lost(lease), **held, **event, **run, **made)
    # Strays that cannot be told are on record as nobody's, and are removed later.
    return Deferred(lambda: list(paths_in(job()["strays"])), lambda _: [])


@transition
def requeue_job(session: Session, lease: Lease, failure: Failure, again: Retry, *, avoid_server: bool = False) -> None:
    """End a run as failed. The job runs again."""
    facts = {"charged": again.charged, "strike": again.strike, "wait": again.after_seconds, "avoid": avoid_server}
    job = change_leased(session, "requeue_job", lease, **_error(failure), **facts)
    _end_attempt(session, lease, failure)
    add_event(session, _event(EventName.JOB_RETRY, lease, failure), **job)


@transition
def wait_for_server(
    session: Session, lease: Lease, failure: Failure, away: float, executed: float, *, is_held: bool = False
) -> None:
    """Make a job wait whose server has not answered for `away` seconds. The run stays open.

    `executed`: how long the prompt had been executed, 0 if it was not. `is_held`: the job waits for this server alone.
    """
    job = change_leased(session, "wait_for_server", lease, **_error(failure), away=round(away, 3), is_held=is_held)
    session.run("note_executed", attempt_id=lease.attempt_id, seconds=round(executed, 3))
    add_event(session, _event(EventName.JOB_RETRY, lease, failure), **job)


@transition
def fail_job(session: Session, lease: Lease, failure: Failure, over: GiveUp) -> list[str]:
    """End a run and its job as failed. Returns files that were claimed and not delivered."""
    _keep_entry(session, lease)
    is_poison = over.kind is FailureClass.POISON
    ending = replace(_event(EventName.JOB_FAILED, lease, failure), failure_class=over.kind.value)
    note_ending(session, ending, is_timed=True)
    facts = _error(failure) | {"failure_class": over.kind.value, "strike": is_poison}
    job = change_leased(session, "fail_job", lease, **facts, needs_regeneration=over.needs_regeneration)
    _end_attempt(session, lease, failure)
    if is_poison:
        add_event(session, Event(EventName.ALERT_POISON, job_id=lease.job_id, message=failure.message), **job)
    return undelivered(session, lease.job_id)


@transition
def return_unsent(session: Session, lease: Lease) -> None:
    """Undo a lease of which nothing reached the server. The run is not counted."""
    change_leased(session, "unsend_job", lease)
    session.run("forget_attempt", attempt_id=lease.attempt_id)


@transition
def refuse_job(session: Session, lease: Lease, failure: Failure) -> None:
    """Fail a job that cannot be made into a prompt. The run is not counted."""
    return_unsent(session, lease)
    note_ending(session, _event(EventName.JOB_FAILED, lease, failure))
    change_leased(session, "refuse_job", lease, **_error(failure))


def undelivered(session: Session, job_id: JobId) -> list[str]:
    """Give up the files that a job claimed and that are not its result. Returns them."""
    job = session.one("job_by_id", id=job_id)
    if job is None and session.one("had_result", job_id=job_id):
        return []  # nobody knows which files were delivered: none is touched
    return _disclaim(session, job_id, set(paths_in(job["outputs"]) if job else ()))


def _disclaim(session: Session, job_id: JobId, keep: set[str]) -> list[str]:
    strays = [row["path"] for row in session.rows("undelivered_files", job_id=job_id) if row["path"] not in keep]
    for path in strays:
        session.run("disclaim_file", path=path, job_id=job_id)
    return strays


def _keep_entry(session: Session, lease: Lease) -> None:
    if lease.entry is not None:
        session.send("keep_entry", **vars(lease))


def _end_attempt(session: Session, lease: Lease, failure: Failure) -> None:
    facts = {key: _cut(value) for key, value in asdict(failure).items() if value and value is not True}
    session.run("end_attempt", **vars(lease), outcome=failure.kind.value, error=json_text(facts))


def _cut(value: str | tuple[str, ...]) -> str | list[str]:
    """A text, or the last lines of several, short enough to be kept."""
    if isinstance(value, str):
        return whole(value, LONGEST_TEXT)
    kept: list[str] = []
    room = LONGEST_TEXT
    for line in reversed(value):
        if room <= 0:
            break
        kept.append(whole(line, room))
        room -= len(line)
    return kept[::-1]


def _event(name: EventName, lease: Lease, failure: Failure) -> Event:
    return Event(name, job_id=lease.job_id, failure_class=failure.kind.value, message=failure.message)


def _error(failure: Failure) -> dict[str, Any]:
    return {"error_trace": whole(failure.trace(), LONGEST_TRACE), "failure_class": failure.kind.value}
