"""Job files and the rows that stand for them: what becomes of a file whose name is known already."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.states import JobStatus


@dataclass(frozen=True)
class ReadFile:
    """A job file as it was read. One with a problem becomes a failed row that says so."""

    job: NewJob
    problem: str = ""
    is_moved: bool = False
    """The file that the row knows is gone: this one is the same, elsewhere."""
    is_retry: bool = False
    """Submit it again even if nothing has changed."""
    insists: bool = False
    """Write it down even if its result would go where another job's goes: as failed, for that reason."""
    finished_as: str = ""
    """Where the file is put when its job is done."""
    file_path_at: str = ""
    """File and line of `outputs.file_path`, for complaints about it."""


@dataclass(frozen=True)
class KnownJob:
    """What a row says about its file."""

    id: JobId
    status: JobStatus
    source: str | None
    digest: str | None
    resubmit: bool
    is_cancelled: bool = False


class FileVerdict(str, Enum):
    """What becomes of a job file."""

    ACCEPTED = "accepted"
    """A new job."""
    UNCHANGED = "unchanged"
    """Nothing happens."""
    UPDATED = "updated"
    """It waited, and now waits with what the file says."""
    LATER = "later"
    """It runs: the file is submitted again when it has ended."""
    RESUBMITTED = "resubmitted"
    """It had ended, and is submitted anew."""
    FINISHED = "finished"
    """It is done, and the file has yet to be put away."""
    ELSEWHERE = "elsewhere"
    """The name belongs to a file in another folder."""
    TAKEN = "taken"
    """Its result would go where that of a job from another file goes; nothing was written down."""
    REJECTED = "rejected"
    """It is done, and the file says something else."""


@dataclass(frozen=True)
class Disposition:
    """A verdict on one file, and why it was not taken as it is."""

    verdict: FileVerdict
    reason: str = ""
    other_source: str | None = None


def is_of_another_folder(known: KnownJob, filed: ReadFile) -> bool:
    """Whether the row stands for a file of another kind's folder. A finished file is in the folder of its kind."""
    return known.source is not None and _folder(known.source) != _folder(filed.job.source or "")


def _folder(source: str) -> str:
    return PurePosixPath(source).parent.name


def judge(known: KnownJob | None, filed: ReadFile) -> FileVerdict:
    """What becomes of a file, given the row of its name."""
    if known is None:
        return FileVerdict.ACCEPTED
    if known.source not in (None, filed.job.source, filed.finished_as) and not filed.is_moved:
        return FileVerdict.ELSEWHERE
    is_same = known.digest == filed.job.digest
    match known.status:
        case JobStatus.PENDING:
            return FileVerdict.UNCHANGED if is_same else FileVerdict.UPDATED
        case JobStatus.PROCESSING:
            return FileVerdict.UNCHANGED if is_same else FileVerdict.LATER
        case JobStatus.FAILED:
            if known.is_cancelled and known.resubmit and not filed.is_retry:
                return FileVerdict.UNCHANGED  # cancelled after it was changed: that was the last word
            return FileVerdict.UNCHANGED if is_same and not filed.is_retry else FileVerdict.RESUBMITTED
        case JobStatus.DONE:
            if is_of_another_folder(known, filed) and not known.resubmit:
                return FileVerdict.REJECTED  # its file is gone because it was put away: this one was dropped elsewhere
            if is_same:
                return FileVerdict.FINISHED
            return FileVerdict.RESUBMITTED if known.resubmit and not filed.problem else FileVerdict.REJECTED
