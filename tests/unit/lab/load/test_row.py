"""Rows and the clock of a run."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest

from comfyui_agent.lab.measurement.machine import RunClock
from comfyui_agent.lab.reports.load import Row, RowStatus


def test_a_row_is_json_with_microseconds() -> None:
    row = Row(index=3, prompt_id="id", status=RowStatus.TIMEOUT, duration_sec=1.23456789, error="no result after 1 s")
    document = row.as_json()
    assert document == {
        "index": 3,
        "prompt_id": "id",
        "status": "timeout",
        "duration_sec": 1.234568,
        "error": "no result after 1 s",
    }
    assert json.loads(json.dumps(document)) == document


def test_only_a_completed_row_is_completed() -> None:
    assert [Row(status=status).is_completed for status in RowStatus] == [True, False, False]
    assert [str(status) for status in RowStatus] == ["completed", "failed", "timeout"]


def test_a_row_without_duration_ends_where_it_began() -> None:
    assert Row(seconds=5.0).ended_seconds == 5.0
    assert Row(duration_sec=1.5, seconds=5.0).ended_seconds == 6.5


@pytest.mark.slow
@pytest.mark.timing
def test_moments_of_both_clocks_are_seconds_of_the_run() -> None:
    clock = RunClock()
    assert clock.seconds_of(time.monotonic()) == pytest.approx(clock.seconds, abs=0.05)
    assert clock.seconds_of_time(time.time()) == pytest.approx(clock.seconds, abs=0.05)
    told = clock.at(90.0)
    assert told.endswith("Z")
    moment = datetime.fromisoformat(told.replace("Z", "+00:00"))
    assert (moment - datetime.now(timezone.utc)).total_seconds() == pytest.approx(90, abs=1)
