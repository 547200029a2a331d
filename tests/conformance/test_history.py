"""What is remembered of a prompt once it ended, and how the memory is read and erased."""

from __future__ import annotations

import re

import pytest

from support.graphs import failing, picture, slow_graph, two_pictures
from support.wire import Wire


async def test_an_entry_tells_prompt_outputs_status_and_meta(wire: Wire) -> None:
    graph = picture("entry")
    answer = await wire.offer(graph, extra_data={"note": "kept"})
    prompt_id = answer.body["prompt_id"]
    entry = await wire.finished(prompt_id)
    assert entry.keys() == {"prompt", "outputs", "status", "meta"}
    number, shown_id, shown_graph, extra_data, outputs = entry["prompt"]
    assert (number, shown_id, shown_graph, outputs) == (answer.body["number"], prompt_id, graph, ["2"])
    assert extra_data.keys() == {"note", "client_id", "create_time"}
    (listed,) = entry["outputs"]["2"]["images"]
    assert listed.keys() == {"filename", "subfolder", "type"}
    assert entry["outputs"].keys() == entry["meta"].keys() == {"2"}
    assert entry["meta"]["2"] == {"node_id": "2", "display_node": "2", "parent_node": None, "real_node_id": "2"}


async def test_a_success_is_three_messages(wire: Wire) -> None:
    prompt_id = await wire.submit(picture())
    status = (await wire.finished(prompt_id))["status"]
    assert (status["status_str"], status["completed"]) == ("success", True)
    assert [event for event, _ in status["messages"]] == ["execution_start", "execution_cached", "execution_success"]
    start, cached, success = (data for _, data in status["messages"])
    assert start == {"prompt_id": prompt_id, "timestamp": start["timestamp"]}
    assert cached == {"nodes": [], "prompt_id": prompt_id, "timestamp": cached["timestamp"]}
    assert success == {"prompt_id": prompt_id, "timestamp": success["timestamp"]}
    assert isinstance(start["timestamp"], int)


async def test_a_failure_names_the_node_and_what_it_raised(wire: Wire) -> None:
    prompt_id = await wire.submit(failing())
    entry = await wire.finished(prompt_id)
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    event, error = entry["status"]["messages"][-1]
    assert event == "execution_error"
    assert error.keys() == {
        "prompt_id",
        "node_id",
        "node_type",
        "executed",
        "exception_message",
        "exception_type",
        "traceback",
        "current_inputs",
        "current_outputs",
        "timestamp",
    }
    assert (error["node_id"], error["node_type"], error["executed"]) == ("2", "SaveImage", ["1"])
    assert error["exception_type"] == "Exception"
    assert error["exception_message"].endswith("\n")
    lines = [re.match(r'  File "/.*/(\w+)\.py", line \d+, in (\w+)\n', line) for line in error["traceback"]]
    calls = [line.groups() for line in lines if line is not None]
    assert len(calls) == len(lines)
    assert [function for file, function in calls if file == "execution"] == [
        "execute",
        "get_output_data",
        "_async_map_node_over_list",
        "process_inputs",
    ]
    assert calls[4][0] == "nodes"
    assert error["current_inputs"]["filename_prefix"][0].startswith("../")
    assert isinstance(error["current_inputs"]["images"][0], str)
    assert sorted(error["current_outputs"]) == ["1", "2"]
    assert (entry["outputs"], entry["meta"]) == ({}, {})


async def test_a_failure_keeps_the_outputs_that_came_before_it(wire: Wire) -> None:
    graph = picture()
    graph["3"] = {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}}
    graph["4"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "../outside"}}
    entry = await wire.finished(await wire.submit(graph))
    event, error = entry["status"]["messages"][-1]
    assert (event, error["node_id"]) == ("execution_error", "4")
    assert sorted(error["executed"]) == ["1", "2", "3"]
    assert entry["outputs"].keys() == entry["meta"].keys() == {"2"}


async def test_running_pending_and_unknown_prompts_read_alike(slow_wire: Wire) -> None:
    running = await slow_wire.submit(await slow_graph(slow_wire))
    await slow_wire.running(running)
    pending = await slow_wire.submit(picture())
    for prompt_id in (running, pending, "no-such-prompt"):
        answer = await slow_wire.get(f"/history/{prompt_id}")
        assert (answer.status, answer.body) == (200, {})


async def test_one_entry_is_keyed_by_its_id(wire: Wire) -> None:
    prompt_id = await wire.submit(picture())
    entry = await wire.finished(prompt_id)
    assert (await wire.get(f"/history/{prompt_id}")).body == {prompt_id: entry}
    assert (await wire.get("/history")).body[prompt_id] == entry


async def test_the_history_is_cut_from_the_newest_or_paged_from_the_oldest(wire: Wire) -> None:
    prompt_ids = [await wire.submit(picture()) for _ in range(3)]
    for prompt_id in prompt_ids:
        await wire.finished(prompt_id)
    total = len((await wire.get("/history")).body)
    for query, expected in [
        ("max_items=2", prompt_ids[1:]),
        (f"offset={total - 3}", prompt_ids),
        (f"offset={total - 3}&max_items=2", prompt_ids[:2]),
        (f"offset={total - 1}&max_items=5", prompt_ids[2:]),
        (f"offset={total}", []),
        ("max_items=0", []),
    ]:
        assert list((await wire.get(f"/history?{query}")).body) == expected, query


@pytest.mark.parametrize("query", ["max_items=many", "offset=late", "max_items=1.5", "max_items="])
async def test_a_count_that_is_no_integer_fails_the_request(wire: Wire, query: str) -> None:
    answer = await wire.get(f"/history?{query}")
    assert (answer.status, answer.headers["Content-Type"]) == (500, "text/plain; charset=utf-8")


async def test_deleted_entries_are_gone_and_unknown_ids_do_not_matter(wire: Wire) -> None:
    kept, deleted = await wire.submit(picture()), await wire.submit(picture())
    await wire.finished(kept)
    await wire.finished(deleted)
    answer = await wire.post("/history", {"delete": [deleted, "no-such-prompt"]})
    assert (answer.status, answer.body) == (200, b"")
    history = (await wire.get("/history")).body
    assert kept in history
    assert deleted not in history


async def test_clearing_forgets_everything(wire: Wire) -> None:
    await wire.run(picture())
    assert (await wire.post("/history", {"clear": True})).status == 200
    assert (await wire.get("/history")).body == {}


async def test_the_entry_exists_when_the_last_frame_comes(wire: Wire) -> None:
    async with wire.socket() as recorder:
        for _ in range(10):
            prompt_id = await wire.submit(two_pictures())
            await recorder.last_frame_of(prompt_id)
            assert prompt_id in (await wire.get(f"/history/{prompt_id}")).body
