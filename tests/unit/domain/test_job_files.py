"""What becomes of a job file whose name is known already: every combination, against the rules as they are written."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest

from comfyui_agent.domain.job_files import FileVerdict, KnownJob, ReadFile, judge
from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.states import JobStatus

HERE, THERE = "jobs/processing/image/knight.yaml", "jobs/processing/video/knight.yaml"

PENDING, PROCESSING, DONE, FAILED = JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.DONE, JobStatus.FAILED
RULES: dict[tuple[JobStatus, str], FileVerdict] = {
    (PENDING, "same"): FileVerdict.UNCHANGED,
    (PENDING, "changed"): FileVerdict.UPDATED,
    (PROCESSING, "same"): FileVerdict.UNCHANGED,
    (PROCESSING, "changed"): FileVerdict.LATER,
    (FAILED, "same"): FileVerdict.UNCHANGED,
    (FAILED, "changed"): FileVerdict.RESUBMITTED,
    (DONE, "same"): FileVerdict.FINISHED,
    (DONE, "changed"): FileVerdict.RESUBMITTED,
}
"""The documented table. A retry, a wrong file after the end, and another folder are the exceptions below."""


def filed(digest: str = "new", *, problem: bool = False, is_moved: bool = False, is_retry: bool = False) -> ReadFile:
    job = NewJob("knight.yaml", "T2I", "wf", source=HERE, digest=digest)
    return ReadFile(job, "line 3: it is wrong" if problem else "", is_moved, is_retry)


def known(status: JobStatus, digest: str | None, source: str | None = HERE, *, resubmit: bool = False) -> KnownJob:
    return KnownJob(JobId(1), status, source, digest, resubmit)


@pytest.mark.parametrize("problem", [False, True], ids=["good", "bad"])
@pytest.mark.parametrize("is_retry", [False, True], ids=["", "retry"])
@pytest.mark.parametrize("is_moved", [False, True], ids=["", "moved"])
def test_a_name_that_is_not_known_is_a_new_job(problem: bool, is_retry: bool, is_moved: bool) -> None:
    assert judge(None, filed(problem=problem, is_moved=is_moved, is_retry=is_retry)) is FileVerdict.ACCEPTED


class Case(NamedTuple):
    status: JobStatus
    bytes_are: str
    source: str | None
    resubmit: bool
    problem: bool
    is_moved: bool
    is_retry: bool


EVERYTHING = [
    Case(*each) for each in product(JobStatus, ("same", "changed"), (HERE, THERE, None), *[(False, True)] * 4)
]


def test_the_table_is_whole() -> None:
    assert len(EVERYTHING) == len(JobStatus) * 2 * 3 * 2**4 == 384
    assert set(RULES) == set(product(JobStatus, ("same", "changed")))


def expected(case: Case) -> FileVerdict:
    what = (case.status, case.bytes_are)
    if case.source == THERE and not case.is_moved:
        return FileVerdict.ELSEWHERE
    if case.status is DONE and case.source == THERE and not case.resubmit:
        return FileVerdict.REJECTED
    if what == (FAILED, "same") and case.is_retry:
        return FileVerdict.RESUBMITTED
    if what == (DONE, "changed") and case.problem:
        return FileVerdict.REJECTED
    return RULES[what]


def test_every_combination_is_judged_by_the_rules() -> None:
    for case in EVERYTHING:
        digest = "new" if case.bytes_are == "same" else "old"
        row = known(case.status, digest, case.source, resubmit=case.resubmit)
        file = filed(problem=case.problem, is_moved=case.is_moved, is_retry=case.is_retry)
        assert judge(row, file) is expected(case), case


def test_the_same_bytes_again_change_nothing_in_the_queue() -> None:
    for status in JobStatus:
        assert judge(known(status, "new"), filed()) in (FileVerdict.UNCHANGED, FileVerdict.FINISHED), status


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (PENDING, FileVerdict.UPDATED),
        (PROCESSING, FileVerdict.LATER),
        (FAILED, FileVerdict.RESUBMITTED),
        (DONE, FileVerdict.RESUBMITTED),
    ],
)
def test_a_row_without_a_file_counts_as_changed_by_one(status: JobStatus, verdict: FileVerdict) -> None:
    """Rows that were made by hand, or by another door, know no file."""
    assert judge(known(status, None, None), filed()) is verdict


def test_the_same_name_in_another_folder_never_touches_the_job() -> None:
    for case in product(JobStatus, ("new", "old", None), (False, True), (False, True)):
        status, digest, resubmit, is_retry = case
        row = known(status, digest, THERE, resubmit=resubmit)
        assert judge(row, filed(is_retry=is_retry)) is FileVerdict.ELSEWHERE, case


def test_a_verdict_is_written_as_its_word() -> None:
    assert [verdict.value for verdict in FileVerdict] == [verdict.name.lower() for verdict in FileVerdict]
