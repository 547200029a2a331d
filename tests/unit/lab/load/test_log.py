"""What a load test adds to the metrics log: a line for each prompt, at once; a log that fails stops nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from comfyui_agent.lab.load.files import LoadLog
from comfyui_agent.lab.reports.load import Row, RowStatus


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_each_prompt_is_a_line_as_soon_as_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "infra" / "observability" / "metrics.ndjson"
    log = LoadLog(path)
    assert len(lines(path)) == 1
    log.ended(
        Row(
            index=0,
            prompt_id="one",
            status=RowStatus.COMPLETED,
            duration_sec=3.0,
            queue_sec=1.0,
            exec_sec=1.9,
            server="http://x",
        )
    )
    assert len(lines(path)) == 2
    log.ended(
        Row(
            index=1,
            prompt_id="two",
            status=RowStatus.FAILED,
            duration_sec=2.0,
            error="Füchse\nbroke it",
            failure_class="execution",
            server="y",
        )
    )
    log.ended(
        Row(index=2, prompt_id="three", status=RowStatus.TIMEOUT, duration_sec=2.0, failure_class="timeout", server="y")
    )
    log.finish()
    began, done, failed, late, ended = lines(path)
    assert {each["load_test"] for each in lines(path)} == {log.run_id}
    assert not any("id" in each for each in lines(path))
    assert done["event"] == "job.done"
    assert (done["prompt_id"], done["duration_sec"], done["wait_sec"]) == ("one", 1.9, 1.0)
    assert "failure_class" not in done
    assert failed["event"] == late["event"] == "job.failed"
    assert failed["message"] == "Füchse\nbroke it"
    assert late["failure_class"] == "timeout"
    assert began["event"] != ended["event"]
    assert began["timestamp"] <= done["timestamp"] <= ended["timestamp"]


def test_two_runs_can_be_told_apart(tmp_path: Path) -> None:
    assert LoadLog(tmp_path / "a").run_id != LoadLog(tmp_path / "a").run_id


def test_a_log_that_cannot_be_written_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = LoadLog(tmp_path / "file" / "metrics.ndjson")
    log.ended(Row(index=0, prompt_id="one", status=RowStatus.COMPLETED, duration_sec=1.0))
    log.finish()
    assert log.trouble is not None
    assert "cannot be written" in log.trouble
    assert "\n" not in log.trouble


def test_a_folder_in_its_place_is_reported(tmp_path: Path) -> None:
    assert "cannot be written" in (LoadLog(tmp_path).trouble or "")


def test_words_that_are_no_unicode_are_written(tmp_path: Path) -> None:
    log = LoadLog(tmp_path / "a")
    log.ended(Row(index=0, prompt_id="one", status=RowStatus.FAILED, duration_sec=1.0, error="\ud800"))
    assert log.trouble is None
    assert len(lines(tmp_path / "a")) == 2
