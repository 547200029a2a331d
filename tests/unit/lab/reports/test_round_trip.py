"""Reports that earlier versions wrote are read, and written again without a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.profile import ProfileReport
from comfyui_agent.lab.reports.reading import read_report

BEFORE = Path(__file__).with_name("written_before")


@pytest.mark.parametrize("name", ["load_ramp.json", "load_scenario.json", "chaos.json"])
def test_a_report_is_written_as_it_was_read(name: str) -> None:
    text = (BEFORE / name).read_text(encoding="utf-8")
    assert json.dumps(read_report(BEFORE / name).as_json(), indent=2, ensure_ascii=False) + "\n" == text


def test_a_profile_is_written_as_it_was_read() -> None:
    text = (BEFORE / "profile.json").read_text(encoding="utf-8")
    report = ProfileReport.model_validate_json(text)
    assert json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n" == text


def test_keys_that_this_version_does_not_know_are_kept() -> None:
    document = json.loads((BEFORE / "load_ramp.json").read_text(encoding="utf-8"))
    document["summary"]["energy_kwh"] = 1.5
    document["results"][0]["note"] = "by hand"
    assert LoadReport.model_validate(document).as_json() == document
