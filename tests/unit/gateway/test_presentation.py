"""Clients see their own ids and names, whatever a run was called at its server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.gateway.presentation import RunNames, history_entry, item_at, kept_results
from comfyui_agent.store.posted_prompts import PostedPrompt

RUN, MINE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
GRAPH: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "animals/cat", "images": ["1", 0]}},
    "5": {"class_type": "SaveImage", "inputs": {"filename_prefix": "../../etc/cat", "images": ["1", 0]}},
    "98:6": {"class_type": "SaveImage", "inputs": {"filename_prefix": "%year%-%month%-%day%/dog", "images": ["1", 0]}},
}
NAMES = RunNames(MINE, RUN, GRAPH)
NOW = datetime(2026, 3, 4, tzinfo=timezone.utc)
STARTED = ["execution_start", {"prompt_id": RUN, "timestamp": 1}]


def saved(name: str, kind: str = "output", subfolder: str = "e3_x/0") -> dict[str, Any]:
    return {"filename": name, "subfolder": subfolder, "type": kind}


def prompt(**facts: Any) -> PostedPrompt:
    plain = PostedPrompt(
        job_id=JobId(7),
        prompt_id=MINE,
        client_id="me",
        number=7.0,
        extra_data={"client_id": "me"},
        targets=("9",),
        entry={},
        run_id=RUN,
        created_by=None,
        ended_at="2026-01-01 00:00:02.000",
        told_at=None,
        status="done",
        failure_class=None,
        error_trace=None,
        server="http://127.0.0.1:8188",
        outputs=("jobs/finished/image/a.png",),
        start_time="2026-01-01 00:00:01.000",
        end_time="2026-01-01 00:00:02.500",
        created_at="2026-01-01 00:00:00.000",
        template=GRAPH,
        inputs={},
        has_run=True,
    )
    return replace(plain, **facts)


def entry(*items: dict[str, Any], ending: str = "execution_success", node: str = "9") -> dict[str, Any]:
    is_success = ending == "execution_success"
    messages = [STARTED, [ending, {"prompt_id": RUN, "timestamp": 2}]]
    status = {"status_str": "success" if is_success else "error", "completed": is_success, "messages": messages}
    return {"outputs": {node: {"images": list(items)}}, "status": status, "meta": {node: {"node_id": node}}}


def named(*items: Any, node: str = "9") -> list[tuple[str, str, str | None]]:
    """What new files of a node are to be called: prefix, ending, and the whole name if it is to stay."""
    files = NAMES.new_files({node: {"images": list(items)}}, NOW)
    return [(file.prefix, file.ending, file.path) for file in files]


@pytest.mark.parametrize(
    ("node", "filename", "prefix"),
    [
        ("9", f"{RUN}_00001_.png", "output/animals/cat"),
        ("9", f"{RUN}_9_00012_.png", "output/animals/cat"),
        ("98:6", f"{RUN}_98-6_00001_.png", "output/2026-03-04/dog"),
        ("1", f"{RUN}_00001_.png", "output/ComfyUI"),
        ("5", f"{RUN}_00001_.png", "output/etc/cat"),
    ],
    ids=["alone", "among several", "with the date", "without a prefix", "that would lead out"],
)
def test_a_saved_file_is_counted_under_the_prefix_of_its_workflow(node: str, filename: str, prefix: str) -> None:
    assert named(saved(filename), node=node) == [(prefix, ".png", None)]


def test_what_is_only_shown_keeps_its_name_if_that_is_free() -> None:
    shown = saved("ComfyUI_temp_abc_00001_.png", "temp", "")
    stem = "temp/ComfyUI_temp_abc_00001_"
    assert named(shown, shown) == [(stem, ".png", f"{stem}.png")]


@pytest.mark.parametrize(
    "item", ["a text", 5, None, {"type": "input", "filename": "cat.png"}, {"filename": 5, "type": "output"}]
)
def test_what_is_no_file_of_the_run_stays_as_it_is(item: Any) -> None:
    assert named(item) == []
    assert NAMES.outputs({"images": [item]}) == {"images": [item]}


def test_the_history_speaks_of_the_clients_prompt() -> None:
    paths = {f"output/e3_x/0/{RUN}_00001_.png": "output/animals/cat_00007_.png"}
    shown = history_entry(prompt(entry=entry(saved(f"{RUN}_00001_.png"))), paths)
    assert shown is not None
    assert shown["prompt"] == [7.0, MINE, GRAPH, {"client_id": "me"}, ["9"]]
    assert shown["outputs"] == {"9": {"images": [saved("cat_00007_.png", subfolder="animals")]}}
    assert [message[1]["prompt_id"] for message in shown["status"]["messages"]] == [MINE, MINE]
    assert RUN not in str(shown)


def test_kept_results_are_found_by_what_they_were_called_at_the_server() -> None:
    found = kept_results(prompt(entry=entry(saved(f"{RUN}_00001_.png"), saved("t.png", "temp", ""))))
    origin = f"output/e3_x/0/{RUN}_00001_.png"
    assert found == {origin: "jobs/finished/image/a.png"}
    assert item_at(origin) == saved(f"{RUN}_00001_.png")


def test_what_was_taken_back_before_it_ran_leaves_no_trace() -> None:
    assert history_entry(prompt(status="failed", failure_class="cancelled", has_run=False), {}) is None


@pytest.mark.parametrize(
    ("facts", "ending", "status"),
    [
        ({"status": "failed", "failure_class": "cancelled"}, "execution_interrupted", "error"),
        (
            {"status": "failed", "failure_class": "poison", "error_trace": "poison: it\nline"},
            "execution_error",
            "error",
        ),
        ({"status": "done"}, "execution_success", "success"),
        ({"status": "failed", "failure_class": "output", "entry": entry()}, "execution_error", "error"),
        ({"status": "done", "entry": entry(ending="execution_error")}, "execution_success", "success"),
    ],
    ids=["cancelled", "gave up", "found without a history", "a result that was none", "ended well after all"],
)
def test_the_end_is_that_of_the_job_whatever_a_server_said(facts: Any, ending: str, status: str) -> None:
    shown = history_entry(prompt(**facts), {})
    assert shown is not None
    assert (shown["status"]["status_str"], shown["status"]["completed"]) == (status, status == "success")
    *_, (event, data) = shown["status"]["messages"]
    assert (event, data["prompt_id"], data["timestamp"]) == (ending, MINE, 1767225602500)


def test_an_error_that_its_server_calls_a_success_is_an_error_with_its_node() -> None:
    """ComfyUI does so if it finds a cycle while it expands nodes."""
    said = entry(ending="execution_error")
    said["status"] |= {"status_str": "success", "completed": True}
    found = history_entry(prompt(status="failed", failure_class="execution", entry=said), {})
    assert found is not None
    assert (found["status"]["status_str"], found["status"]["completed"]) == ("error", False)
    assert [event for event, _ in found["status"]["messages"]] == ["execution_start", "execution_error"]
    assert found["status"]["messages"][-1][1]["timestamp"] == 2, "what the server said, not what E3 makes up"
