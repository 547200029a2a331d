"""Rows and the clock of a run."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest

from comfyui_agent.lab.load.rows import Row, RowStatus, RunClock


def test_a_row_tells_all_that_was_promised_and_is_json() -> None:
    told = Row(3, "id", RowStatus.TIMEOUT, 1.23456789, error="no result after 1 s").as_json()
    assert set(told) >= {"index", "prompt_id", "status", "duration_sec", "queue_sec", "exec_sec", "cached", "error"}
    assert told["status"] == "timeout"
    assert told["duration_sec"] == 1.234568
    assert json.loads(json.dumps(told)) == told


def test_only_a_completed_row_is_completed() -> None:
    assert [Row(0, "", status).is_completed for status in RowStatus] == [True, False, False]
    assert [str(status) for status in RowStatus] == ["completed", "failed", "timeout"]


def test_a_row_without_duration_ends_where_it_began() -> None:
    assert Row(0, "", RowStatus.FAILED, seconds=5.0).ended_seconds == 5.0
    assert Row(0, "", RowStatus.FAILED, 1.5, seconds=5.0).ended_seconds == 6.5


@pytest.mark.timing
def test_moments_of_both_clocks_are_seconds_of_the_run() -> None:
    clock = RunClock()
    assert clock.seconds_of(time.monotonic()) == pytest.approx(clock.seconds, abs=0.05)
    assert clock.seconds_of_time(time.time()) == pytest.approx(clock.seconds, abs=0.05)
    told = clock.at(90.0)
    assert told.endswith("Z")
    moment = datetime.fromisoformat(told.replace("Z", "+00:00"))
    assert (moment - datetime.now(timezone.utc)).total_seconds() == pytest.approx(90, abs=1)
