"""What leads from one state of a job to the next: the rules that the store is held to."""

from __future__ import annotations

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import TextEnum


class JobEvent(TextEnum):
    """What can happen to a job."""

    LEASE = "lease"
    COMPLETE = "complete"
    REQUEUE = "requeue"
    FAIL = "fail"
    CANCEL = "cancel"
    RETRY = "retry"


class NotAllowed(Exception):
    """An event that the state of a job does not allow."""


TRANSITIONS: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    (JobStatus.PENDING, JobEvent.LEASE): JobStatus.PROCESSING,
    (JobStatus.PENDING, JobEvent.CANCEL): JobStatus.FAILED,
    (JobStatus.PENDING, JobEvent.FAIL): JobStatus.FAILED,
    (JobStatus.PROCESSING, JobEvent.COMPLETE): JobStatus.DONE,
    (JobStatus.PROCESSING, JobEvent.REQUEUE): JobStatus.PENDING,
    (JobStatus.PROCESSING, JobEvent.FAIL): JobStatus.FAILED,
    (JobStatus.PROCESSING, JobEvent.CANCEL): JobStatus.FAILED,
    (JobStatus.FAILED, JobEvent.RETRY): JobStatus.PENDING,
}


def next_status(status: JobStatus, event: JobEvent) -> JobStatus:
    """The state after an event. NotAllowed if the event cannot happen in this state."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise NotAllowed(f"a job that is {status} cannot {event.value}") from None
