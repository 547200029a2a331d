"""Bursts: which items belong to the current one, and what was written to their state file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.bursts import Item, ItemRequest, ItemStatus, Pick
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.needs import needs_of_template
from comfyui_agent.domain.texts import json_text, whole
from comfyui_agent.store.batches import resubmit_jobs
from comfyui_agent.store.event_log import note_ending
from comfyui_agent.store.job_commands import keep_workflows
from comfyui_agent.store.operation import Operation, query, statement, transition
from comfyui_agent.store.outcomes import LONGEST_TRACE
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import parsed_object, record, text, whole_number


@query
def burst_items(session: Session, batch_id: str) -> list[Item]:
    """Every item in its order."""
    return [
        record(
            Item,
            row,
            key=(text(row["config_name"]) or "").removeprefix(batch_id),
            written=ItemStatus(row["written"]) if row["written"] in set(ItemStatus) else None,
            error=(text(row["error_trace"]) or "").partition("\n")[0],
            **_where(row),
        )
        for row in session.rows("burst_items", id=batch_id)
    ]


def _where(row: Row) -> dict[str, str]:
    """The place of the result, as the state file gave it first."""
    said = parsed_object(row["metadata"])
    return {key: said[key] for key in ("subfolder", "filename") if isinstance(said.get(key), str)}


@transition
def begin_burst(
    session: Session, batch_id: str, worker: str, requests: Sequence[tuple[JobId, ItemRequest]], lowest: int
) -> int:
    """Begin a burst and carry out what its state file asks for. Returns how many steps it is below the largest size."""
    # A burst that did not end by itself was killed: the next one is a step smaller.
    known = _known(session, batch_id)
    level = max(0, min(lowest, (whole_number(known.get("level")) or 0) + (1 if known.get("worker") else 0)))
    _keep(session, batch_id, level=level, worker=worker)
    for job_id, request in requests:
        if request is ItemRequest.AGAIN:
            resubmit_jobs(session, [(job_id, None)], avoid_cache=True)
        elif request is ItemRequest.TRUST:
            session.run("trust_item", id=job_id)
        elif request is ItemRequest.SKIP:
            _fail(session, job_id, Failure(FailureClass.CANCELLED, "the state file says that it has failed"))
    session.run("put_off_items", id=batch_id)
    session.run("complete_empty", id=batch_id)
    return level


def _fail(session: Session, job_id: JobId, failure: Failure) -> None:
    trace = whole(failure.trace(), LONGEST_TRACE)
    kind = failure.kind.value
    note_ending(session, Event(EventName.JOB_FAILED, job_id=job_id, failure_class=kind, message=failure.message))
    session.run("fail_item", id=job_id, failure_class=kind, error_trace=trace)


@transition
def pick_items(session: Session, batch_id: str, picks: Sequence[Pick]) -> None:
    """Make items part of this burst. An item that cannot be rendered fails."""
    keep_workflows(session, picks)
    for each in picks:
        if each.is_at_server:
            session.run("place_item", id=each.job_id, file_path=each.file_path)
        elif each.problem:
            _fail(session, each.job_id, Failure(FailureClass.INVALID, each.problem))
        else:
            needs = needs_of_template(each.template, each.inputs).key
            facts = {"inputs": json_text(each.inputs), "template_hash": each.template.hash, "needs": needs}
            session.run("pick_item", id=each.job_id, file_path=each.file_path, **facts)
    session.run("complete_empty", id=batch_id)


@transition
def note_written(
    session: Session, batch_id: str, statuses: Mapping[JobId, ItemStatus], digests: tuple[str, str]
) -> None:
    """Note what is about to be written to the state file, and its digests before and after."""
    jobs: dict[ItemStatus, list[int]] = defaultdict(list)
    for job_id, status in statuses.items():
        jobs[status].append(job_id)
    for status, ids in jobs.items():
        session.run("note_written", word=status.value, ids=ids)
    _keep(session, batch_id, digest_before=digests[0], digest=digests[1], last=sorted(statuses))


@transition
def confirm_written(session: Session, batch_id: str, digest: str) -> None:
    _keep(session, batch_id, digest_before=digest, last=[])


forget_items: Operation[[Sequence[JobId]], int] = statement("forget_items", "ids")


@transition
def end_burst(session: Session, batch_id: str, *, has_worked: bool = True) -> None:
    """Note that a burst ended by itself. The next one is a step larger, if there was something to do."""
    level = whole_number(_known(session, batch_id).get("level")) or 0
    _keep(session, batch_id, level=max(0, level - int(has_worked)), worker=None)
    session.run("put_off_items", id=batch_id)


def _known(session: Session, batch_id: str) -> dict[str, Any]:
    row = session.one("batch_by_id", id=batch_id)
    return parsed_object(row["metadata"]) if row else {}


def _keep(session: Session, batch_id: str, **facts: Any) -> None:
    for key, value in facts.items():
        session.run("keep_burst", id=batch_id, key=key, value=json_text(value))
