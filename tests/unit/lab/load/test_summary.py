"""The summary: counts that add up, and figures of completed prompts alone."""

from __future__ import annotations

import math
import random

import pytest

from comfyui_agent.lab.load.measurement import figures, short_figures
from comfyui_agent.lab.reports.load import Row, RowStatus


def row(index: int = 0, duration: float | None = 1.0, status: RowStatus = RowStatus.COMPLETED, **facts: object) -> Row:
    images = 1 if status is RowStatus.COMPLETED else 0
    known = {"index": index, "prompt_id": f"id{index}", "status": status, "duration_sec": duration, "images": images}
    return Row.model_validate(known | facts)


def test_total_is_always_the_sum_of_the_three() -> None:
    chance = random.Random(1)
    for _ in range(50):
        rows = [row(n, status=chance.choice(list(RowStatus))) for n in range(chance.randrange(30))]
        found = figures(rows, 1.0)
        assert found["total_jobs"] == len(rows) == found["completed"] + found["failed"] + found["timeouts"]


def test_percentiles_are_those_of_the_known_truth() -> None:
    rows = [row(n, float(n)) for n in range(101)]
    random.Random(2).shuffle(rows)
    found = figures(rows, 60.0)
    assert found["p50_duration_sec"] == 50
    assert found["p90_duration_sec"] == 90
    assert found["p95_duration_sec"] == 95
    assert found["p99_duration_sec"] == 99
    assert found["max_duration_sec"] == 100
    assert found["avg_duration_sec"] == 50
    assert found["images_per_minute"] == 101


def test_failed_prompts_and_timeouts_add_no_duration_and_no_image() -> None:
    rows = [row(0, 2.0), row(1, 900.0, RowStatus.FAILED, images=7), row(2, 900.0, RowStatus.TIMEOUT, images=7)]
    found = figures(rows, 2.0)
    assert found["max_duration_sec"] == 2.0
    assert found["images"] == 1
    assert found["images_per_minute"] == 30
    assert found["success_rate"] == pytest.approx(1 / 3, abs=1e-6)


def test_nothing_measured_is_none_and_not_zero() -> None:
    for rows in ([], [row(0, 5.0, RowStatus.FAILED)]):
        found = figures(rows, 0.0)
        assert found["images_per_minute"] == 0
        assert found["success_rate"] == 0
        for key, value in found.items():
            if key.startswith(("avg_", "p50_", "p90_", "p95_", "p99_", "max_")):
                assert value is None, key


def test_parts_that_were_not_measured_are_left_out_of_their_mean() -> None:
    rows = [row(0, queue_sec=1.0, exec_sec=2.0, transfer_sec=0.1), row(1, queue_sec=3.0), row(2)]
    found = figures(rows, 1.0)
    assert found["avg_queue_sec"] == 2.0
    assert found["avg_exec_sec"] == found["p50_exec_sec"] == found["p95_exec_sec"] == 2.0
    assert found["avg_transfer_sec"] == 0.1


def test_cached_are_counted_among_the_completed() -> None:
    rows = [row(0, cached=True), row(1), row(2, 1.0, RowStatus.FAILED, cached=True)]
    assert figures(rows, 1.0)["cached_jobs"] == 1


def test_one_prompt_may_bring_several_images() -> None:
    found = figures([row(0, images=4), row(1, images=0)], 60.0)
    assert found["images"] == 4
    assert found["images_per_minute"] == 4


def test_every_number_can_be_written_as_json() -> None:
    found = figures([row(0, 1 / 3, queue_sec=0.0)], 1e-9)
    assert all(not isinstance(value, float) or math.isfinite(value) for value in found.values())


def test_a_line_of_a_table_has_what_the_report_promises() -> None:
    assert set(short_figures([row()], 1.0)) == {
        *("total_jobs", "completed", "failed", "timeouts", "images_per_minute", "success_rate"),
        *("p50_duration_sec", "p95_duration_sec", "cached_jobs", "wall_clock_sec"),
    }
