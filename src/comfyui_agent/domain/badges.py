"""The labels and marks of states, the same in every interface."""

from __future__ import annotations

from dataclasses import dataclass

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus


@dataclass(frozen=True)
class Badge:
    """A state as people see it: `○ Pending`."""

    mark: str
    word: str

    def __str__(self) -> str:
        return f"{self.mark} {self.word}"


BADGES = {
    JobStatus.PENDING: Badge("○", "Pending"),
    JobStatus.PROCESSING: Badge("◐", "Rendering"),
    JobStatus.DONE: Badge("●", "Done"),
    JobStatus.FAILED: Badge("△", "Needs attention"),
}
WITHOUT_ATTENTION = {"cancelled": Badge("◌", "Cancelled"), "dismissed": Badge("◌", "Dismissed")}
"""The badges of failed jobs that need no attention, by `Job.state`."""
BATCH_MARKS = {
    BatchStatus.PENDING: "○",
    BatchStatus.ACTIVE: "◐",
    BatchStatus.COLLECTING: "◐",
    BatchStatus.COMPLETE: "●",
    BatchStatus.CANCELLED: "◌",
    BatchStatus.EXPIRED: "△",
}
SERVER_MARKS = {"up": "●", "down": "△", "stuck": "△", "paused": "○", "draining": "◐", "drained": "○"}


def badge_of(job: Job) -> Badge:
    return WITHOUT_ATTENTION.get(job.state) or BADGES[job.status]
