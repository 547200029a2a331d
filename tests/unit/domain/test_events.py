"""A line of the log holds what applies and nothing else."""

from __future__ import annotations

import json

from comfyui_agent.domain.events import Event, EventName


def test_a_name_prints_as_scripts_know_it() -> None:
    assert f"{EventName.JOB_DONE}" == str(EventName.JOB_DONE) == "job.done"


def test_what_does_not_apply_is_left_out() -> None:
    event = Event(EventName.SERVER_UP, timestamp="2025-08-09 12:30:01.000", id=7, server="http://gpu:8188")
    assert event.as_json() == {
        "timestamp": "2025-08-09 12:30:01.000",
        "event": "server.up",
        "id": 7,
        "server": "http://gpu:8188",
    }


def test_the_workflow_is_in_events_and_not_in_the_log() -> None:
    assert "workflow_id" not in Event(EventName.JOB_DONE, workflow_id="wf").as_json()


def test_a_zero_is_not_nothing() -> None:
    facts = Event(EventName.JOB_STARTED, wait_sec=0.0, duration_sec=0.0, job_id=0).as_json()
    assert (facts["wait_sec"], facts["duration_sec"], facts["job_id"]) == (0.0, 0.0, 0)


def test_a_full_event_is_one_line_of_json_with_the_documented_keys() -> None:
    event = Event(
        EventName.JOB_FAILED,
        timestamp="2025-08-09 12:30:01.000",
        id=8,
        job_id=3,
        config_name="knight.yaml",
        batch_id="sweep_1",
        prompt_id="abc",
        server="http://gpu:8188",
        failure_class="oom",
        duration_sec=1.5,
        wait_sec=0.25,
        message="out of\nmemory",
    )
    line = json.dumps(event.as_json())
    assert "\n" not in line
    assert json.loads(line) == {
        "timestamp": "2025-08-09 12:30:01.000",
        "event": "job.failed",
        "id": 8,
        "job_id": 3,
        "config_name": "knight.yaml",
        "batch_id": "sweep_1",
        "prompt_id": "abc",
        "server": "http://gpu:8188",
        "failure_class": "oom",
        "duration_sec": 1.5,
        "wait_sec": 0.25,
        "message": "out of\nmemory",
    }
