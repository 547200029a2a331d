"""The table of `e3 tune`."""

from __future__ import annotations

from comfyui_agent.cli.tune import table_lines
from comfyui_agent.fleet.launch.tuning import Findings, Tuning
from comfyui_agent.lab.tuning import _report

GIB = 1024**3


def test_a_line_for_each_number_with_its_gain_and_its_bar() -> None:
    memory = {1: 3 * GIB, 2: 3 * GIB, 3: 0}
    found = Findings("", kept=2, per_minute={2: 87.5, 1: 57.0, 3: 100.0}, memory=memory)
    report = _report(Tuning("gpu0", 8, found))
    assert (report["card"], report["per_gpu"]) == ("gpu0", 2)
    assert [row["gain"] for row in report["measured"]] == [None, 0.5351, 0.1429]
    lines = table_lines(report["measured"])
    assert [line.split() for line, _ in lines] == [
        ["1", "57.0", "-", "3.0", "GB"],
        ["2", "87.5", "+54", "%", "3.0", "GB"],
        ["3", "100.0", "+14", "%", "-"],
    ]
    assert len({len(line) for line, _ in lines}) == 1
    assert [len(drawn) for _, drawn in lines] == [17, 26, 30]


def test_without_a_measurement_there_is_no_line() -> None:
    assert table_lines(_report(Tuning("gpu0", 8))["measured"]) == []
