"""The scenarios by name, and the graphs that they break things with."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.chaos.bad_pages import OVERSIZED, _sizes
from comfyui_agent.lab.chaos.bad_servers import with_sleep
from comfyui_agent.lab.chaos.findings import ScenarioOutcome, Skipped
from comfyui_agent.lab.chaos.plan import ChaosPlan, Server
from comfyui_agent.lab.chaos.suite import SCENARIOS, SETS, Suite, find_scenarios
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.chaos import ScenarioResult
from support.agents import sized_picture

NAMES = ["prompt-validation", "gpu-oom", "network-blip", "comfyui-crash", "artificial-latency"]
PAGE = Payload.of("page", sized_picture())


def test_there_are_the_five_that_were_asked_for_and_the_quick_set_is_of_them() -> None:
    assert list(SCENARIOS) == NAMES
    assert set(SETS["quick"]) == {"prompt-validation", "network-blip"}


def test_names_and_sets_stand_for_scenarios_each_once_and_in_the_order_given() -> None:
    found = [each.name for each in find_scenarios(["gpu-oom", "all", "gpu-oom", "quick"])]
    assert found == ["gpu-oom", *(name for name in NAMES if name != "gpu-oom")]
    with pytest.raises(KeyError):
        find_scenarios(["all", "gpu"])


def test_a_pause_stands_between_what_is_saved_and_its_saving() -> None:
    graph = sized_picture()
    before = copy.deepcopy(graph)
    slept = with_sleep(graph, 0.5)
    assert slept["2"]["inputs"]["images"] == ["e3_sleep", 0]
    assert slept["e3_sleep"] == {"class_type": "Sleep", "inputs": {"value": ["1", 0], "seconds": 0.5}}
    assert graph == before


def test_a_workflow_that_saves_nothing_cannot_be_held_up() -> None:
    with pytest.raises(Skipped, match="save node"):
        with_sleep({"1": {"class_type": "PreviewImage", "inputs": {}}}, 1)


def test_the_sizes_of_a_workflow_are_found_where_all_of_them_are_numbers() -> None:
    assert _sizes(sized_picture(), OVERSIZED) == {"1.width": 16384, "1.height": 16384, "1.batch_size": 4096}
    linked: dict[str, Any] = sized_picture()
    linked["1"]["inputs"]["width"] = ["9", 0]
    assert _sizes(linked, OVERSIZED) == {}


def test_a_server_that_does_not_speak_plain_http_is_skipped() -> None:
    with pytest.raises(Skipped, match=r"^https://example.org is not plain http"):
        Server(ChaosPlan(PAGE, "https://user:secret@example.org:443"), None, ())  # type: ignore[arg-type]


def suite_of(*words: ScenarioOutcome, recovery: tuple[float | None, ...] = ()) -> dict[str, Any]:
    results = []
    for number, word in enumerate(words):
        seconds = recovery[number] if number < len(recovery) else None
        results.append(ScenarioResult(scenario=NAMES[number], verdict=word, recovery_sec=seconds))
    return Suite(ChaosPlan(PAGE), Sla(), results=results).report().summary.as_json()


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ([ScenarioOutcome.PASSED, ScenarioOutcome.PASSED], "passed"),
        ([ScenarioOutcome.PASSED, ScenarioOutcome.SKIPPED], "passed"),
        ([ScenarioOutcome.PASSED, ScenarioOutcome.FAILED], "failed"),
        ([ScenarioOutcome.SKIPPED, ScenarioOutcome.SKIPPED], "failed"),
        ([], "failed"),
    ],
)
def test_one_failure_fails_the_run_and_so_does_having_seen_nothing(words: list[ScenarioOutcome], verdict: str) -> None:
    summary = suite_of(*words)
    assert summary["verdict"] == verdict
    assert (summary["kind"], summary["total"]) == ("chaos", len(words))
    assert [summary[str(word)] for word in ScenarioOutcome] == [words.count(word) for word in ScenarioOutcome]


def test_the_worst_recovery_is_reported_and_none_where_none_was_measured() -> None:
    assert (
        suite_of(ScenarioOutcome.PASSED, ScenarioOutcome.PASSED, ScenarioOutcome.PASSED, recovery=(1.5, None, 0.5))[
            "recovery_sec"
        ]
        == 1.5
    )
    assert suite_of(ScenarioOutcome.PASSED)["recovery_sec"] is None
