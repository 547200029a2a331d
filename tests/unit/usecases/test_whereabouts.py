"""Why a job waits, where it is or where it was: one sentence for each case."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from comfyui_agent.domain.jobs import Attempt, AttemptId, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.needs import Ahead
from comfyui_agent.usecases.whereabouts import Candidate, explain_place, explain_waiting

ONE, TWO = "http://gpu1:8188", "http://gpu2:8188"
MISSING = ("model big.safetensors for CheckpointLoaderSimple",)
GOES_ON = "gpu1:8188 goes on with a.safetensors for at most 84 s more"


def job(**facts: Any) -> Job:
    nothing = dict.fromkeys(field.name for field in fields(Job))
    return Job(**nothing | {"id": 7, "priority": 50, "status": JobStatus.PENDING} | facts)


def run(is_load: int | None = None, error: str | None = None) -> Attempt:
    return Attempt(AttemptId(1), 1, ONE, "p", "w", None, None, None, None, error, is_load=is_load)


@pytest.mark.parametrize(
    ("servers", "ahead", "sentence"),
    [
        (
            [Candidate(ONE, "up", MISSING), Candidate(TWO, "up", MISSING)],
            Ahead(3, 10, 10),
            f"waits: no server has {MISSING[0]}; looked for at gpu1:8188, gpu2:8188. "
            "It fails when it is its turn, unless one has it by then",
        ),
        (
            [Candidate(ONE, "paused", ()), Candidate(TWO, "down")],
            Ahead(),
            "waits: no server that can run it takes work (gpu1:8188 is paused, gpu2:8188 is down)",
        ),
        (
            [Candidate(ONE, "up", MISSING), Candidate(TWO, "stuck", ())],
            Ahead(),
            "waits: no server that can run it takes work (gpu2:8188 is stuck)",
        ),
        ([], Ahead(), "waits: no server that can run it takes work (none is known)"),
        ([Candidate(ONE, "up", (), GOES_ON)], Ahead(12, 10, 10, 5), "waits behind 12 jobs of priority 10"),
        ([Candidate(ONE, "up", ())], Ahead(2, 10, 40), "waits behind 2 jobs of priority 10 to 40"),
        ([Candidate(ONE, "up", (), GOES_ON)], Ahead(older=5), f"waits: {GOES_ON}, then it is the turn of this job"),
        ([Candidate(ONE, "up", ())], Ahead(older=1), "waits behind 1 older job of priority 50"),
        (
            [Candidate(ONE, "up", ()), Candidate(TWO, "up")],
            Ahead(),
            "is next: waits until gpu1:8188 or gpu2:8188 has room",
        ),
    ],
)
def test_why_a_job_that_may_run_waits(servers: list[Candidate], ahead: Ahead, sentence: str) -> None:
    assert explain_waiting(job(), servers, ahead) == sentence


TIME = "2026-11-17 12:03:11.250"
DONE, FAILED = JobStatus.DONE, JobStatus.FAILED


@pytest.mark.parametrize(
    ("facts", "attempts", "sentence"),
    [
        ({"hold": "paused"}, [], "waits: its batch is paused"),
        (
            {"hold": "backoff", "next_attempt_at": TIME},
            [run()],
            "waits: it was tried and runs again after a pause, not before 2026-11-17 12:03:11 UTC",
        ),
        ({"hold": "mine"}, [], "waits: it is held (mine)"),
        ({"reserved": 1, "batch_id": "b_1"}, [], "waits for the agent of its burst b_1: others leave it alone"),
        (
            {"lost_at": TIME, "server": ONE},
            [run()],
            "waits for gpu1:8188, which has not answered since 2026-11-17 12:03:11 UTC, or for another server",
        ),
        (
            {"status": JobStatus.PROCESSING, "start_time": TIME},
            [run(1)],
            "is at gpu1:8188 since 2026-11-17 12:03:11 UTC; models had to be loaded for it",
        ),
        ({"status": DONE, "duration": 4.2}, [run(0)], "ran at gpu1:8188 in 4.2 s; its models were loaded already"),
        ({"status": DONE}, [run()], "ran at gpu1:8188"),
        ({"status": FAILED}, [run(error='{"message": "no room"}')], "failed at gpu1:8188: no room"),
        ({"status": FAILED, "error_trace": "invalid: key\nmore"}, [], "failed before it ran: invalid: key"),
        ({"status": FAILED, "failure_class": "cancelled"}, [], "was cancelled before it ran"),
    ],
)
def test_where_a_job_is_or_what_holds_it_back(facts: dict[str, Any], attempts: list[Attempt], sentence: str) -> None:
    assert explain_place(job(**facts), attempts) == sentence
