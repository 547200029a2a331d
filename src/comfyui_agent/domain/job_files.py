"""Job files and their rows: what happens to a file whose name is already known."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import assert_never

from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import TextEnum


@dataclass(frozen=True)
class ReadFile:
    """A job file as it was read. With a `problem` it becomes a failed row."""

    job: NewJob
    problem: str = ""
    is_moved: bool = False
    """The file recorded in the row is gone, and this is the same file elsewhere."""
    is_retry: bool = False
    """Submit it again even if nothing changed."""
    insists: bool = False
    """If another job has its output path, record it as failed for that reason."""
    finished_as: str = ""
    file_path_at: str = ""
    """File and line of `outputs.file_path`, for error messages."""


@dataclass(frozen=True)
class KnownJob:
    """What the row of a job says about its file."""

    id: JobId
    status: JobStatus
    source: str | None
    digest: str | None
    resubmit: bool
    is_cancelled: bool = False


class FileVerdict(TextEnum):
    """What happens to a job file."""

    ACCEPTED = "accepted"
    UNCHANGED = "unchanged"
    UPDATED = "updated"
    """The job waited, and now has the values of the file."""
    LATER = "later"
    """The job runs. The file is submitted again when it has ended."""
    RESUBMITTED = "resubmitted"
    """The job has ended, and makes another result with the values of the file."""
    FINISHED = "finished"
    """The job is done, and the file has to be moved to the finished ones."""
    ELSEWHERE = "elsewhere"
    """The name belongs to a file in another folder."""
    TAKEN = "taken"
    """A job of another file has the same output path. Nothing was recorded."""
    REJECTED = "rejected"
    """The job is done, and the file is wrong, or one of another kind."""


@dataclass(frozen=True)
class Disposition:
    """The verdict on one file, and the reason if it was not accepted."""

    verdict: FileVerdict
    reason: str = ""
    other_source: str | None = None


def is_elsewhere(known: KnownJob, filed: ReadFile) -> bool:
    """Whether the row's file is neither this one nor where this one goes when its job is done."""
    return known.source not in (None, filed.job.source, filed.finished_as)


def judge(known: KnownJob | None, filed: ReadFile) -> FileVerdict:
    """What happens to a file, given the row with its name."""
    if known is None:
        return FileVerdict.ACCEPTED
    if is_elsewhere(known, filed) and not filed.is_moved:
        return FileVerdict.ELSEWHERE
    is_same = known.digest == filed.job.digest
    match known.status:
        case JobStatus.PENDING:
            return FileVerdict.UNCHANGED if is_same else FileVerdict.UPDATED
        case JobStatus.PROCESSING:
            return FileVerdict.UNCHANGED if is_same else FileVerdict.LATER
        case JobStatus.FAILED:
            if known.is_cancelled and known.resubmit and not filed.is_retry:
                return FileVerdict.UNCHANGED  # it was cancelled after the change
            return FileVerdict.UNCHANGED if is_same and not filed.is_retry else FileVerdict.RESUBMITTED
        case JobStatus.DONE:
            if is_elsewhere(known, filed) and not known.resubmit:
                return FileVerdict.REJECTED  # the known file was moved when done, so this is one of another kind
            if is_same:
                return FileVerdict.FINISHED
            return FileVerdict.REJECTED if filed.problem else FileVerdict.RESUBMITTED
        case _:
            assert_never(known.status)
