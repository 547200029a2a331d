"""Which states a job can be in, and what leads from one to the next."""

from __future__ import annotations

import itertools

import pytest

from comfyui_agent.domain.states import TRANSITIONS, JobEvent, JobStatus, NotAllowed, next_status


def test_only_what_is_drawn_can_happen() -> None:
    for status, event in itertools.product(JobStatus, JobEvent):
        if (status, event) in TRANSITIONS:
            assert next_status(status, event) is TRANSITIONS[status, event], (status, event)
        else:
            with pytest.raises(NotAllowed, match=f"{status} cannot {event.value}"):
                pytest.fail(f"{event.value} leads from {status} to {next_status(status, event)}")


def test_done_is_the_end() -> None:
    assert not [event for status, event in TRANSITIONS if status is JobStatus.DONE]


def test_a_job_is_done_only_from_processing() -> None:
    assert [pair for pair, status in TRANSITIONS.items() if status is JobStatus.DONE] == [
        (JobStatus.PROCESSING, JobEvent.COMPLETE)
    ]
