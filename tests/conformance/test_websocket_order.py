"""The frames a client receives for its own prompt, in their order."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from support.graphs import empty_image, failing, node, picture, slow_graph, text_to_image
from support.pictures import opened
from support.wire import Wire, told_steps


def remaining(status: dict[str, Any]) -> int:
    count: int = status["status"]["exec_info"]["queue_remaining"]
    return count


async def test_the_first_frame_is_the_status_with_the_session_id(wire: Wire) -> None:
    async with wire.socket() as recorder:
        assert recorder.frames == [
            {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}, "sid": wire.client_id}}
        ]


async def test_a_client_without_an_id_is_given_one(wire: Wire) -> None:
    async with wire.socket(client_id="") as recorder:
        sid = recorder.events("status")[0]["sid"]
        assert len(sid) == 32
        assert int(sid, 16)
        prompt_id = await wire.submit(picture(), client_id=sid)
        await recorder.last_frame_of(prompt_id)


async def test_a_success_sends_these_events_in_order(wire: Wire) -> None:
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(picture())
        await recorder.last_frame_of(prompt_id)
        assert recorder.types() == [
            "status",
            "status",
            "status",
            "execution_start",
            "execution_cached",
            "progress_state",
            "executing",
            "progress_state",
            "progress_state",
            "executing",
            "executed",
            "progress_state",
            "execution_success",
            "status",
            "executing",
        ]
        assert [remaining(data) for data in recorder.events("status")] == [0, 1, 1, 0]
        assert recorder.events("status")[1].keys() == {"status"}
        assert recorder.events("executing") == [
            {"node": "1", "display_node": "1", "prompt_id": prompt_id},
            {"node": "2", "display_node": "2", "prompt_id": prompt_id},
            {"node": None, "prompt_id": prompt_id},
        ]
        entry = await wire.finished(prompt_id)
        assert recorder.events("executed") == [
            {"node": "2", "display_node": "2", "output": entry["outputs"]["2"], "prompt_id": prompt_id}
        ]
        told = [frame for frame in recorder.frames if str(frame["type"]).startswith("execution_")]
        assert [[frame["type"], frame["data"]] for frame in told] == entry["status"]["messages"]


async def test_progress_state_shows_every_node_that_started(wire: Wire) -> None:
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(picture())
        await recorder.last_frame_of(prompt_id)
        states = recorder.events("progress_state")
    assert all(state.keys() == {"prompt_id", "nodes"} and state["prompt_id"] == prompt_id for state in states)
    assert [{node_id: node["state"] for node_id, node in state["nodes"].items()} for state in states] == [
        {"1": "running"},
        {"1": "finished"},
        {"1": "finished", "2": "running"},
        {"1": "finished", "2": "finished"},
    ]
    assert states[0]["nodes"]["1"] == {
        "value": 0.0,
        "max": 1.0,
        "state": "running",
        "node_id": "1",
        "prompt_id": prompt_id,
        "display_node_id": "1",
        "parent_node_id": None,
        "real_node_id": "1",
    }
    assert states[1]["nodes"]["1"]["value"] == 1.0


@pytest.mark.not_at_gateway("every prompt saves anew")
async def test_a_cached_run_repeats_the_output_and_executes_nothing(wire: Wire) -> None:
    graph = picture()
    first = await wire.run(graph)
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(graph)
        await recorder.last_frame_of(prompt_id)
        assert recorder.types()[3:] == [
            "execution_start",
            "execution_cached",
            "executed",
            "progress_state",
            "execution_success",
            "status",
            "executing",
        ]
        assert recorder.events("execution_cached")[0]["nodes"] == ["1", "2"]
        assert recorder.events("executed") == [
            {"node": "2", "display_node": "2", "output": first["outputs"]["2"], "prompt_id": prompt_id}
        ]
        (state,) = recorder.events("progress_state")
        assert {node_id: node["state"] for node_id, node in state["nodes"].items()} == {"2": "finished"}


async def test_sampling_reports_every_step(wire: Wire, server_kind: str) -> None:
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(await text_to_image(wire, steps=3))
        await recorder.last_frame_of(prompt_id)
        found = recorder.events("progress")
        steps = told_steps(wire, server_kind, [data["value"] for data in found], 3)
        assert found == [{"value": step, "max": 3, "prompt_id": prompt_id, "node": "5"} for step in steps]
        kinds = recorder.types()
        assert all(kinds[at - 1] == "progress_state" for at, kind in enumerate(kinds) if kind == "progress")
        sampler = [state["nodes"]["5"] for state in recorder.events("progress_state") if "5" in state["nodes"]]
        assert [(node["value"], node["max"], node["state"]) for node in sampler[: len(steps) + 2]] == [
            (0.0, 1.0, "running"),
            *((step, 3, "running") for step in steps),
            (3, 3, "finished"),
        ]
        executed = [data["node"] for data in recorder.events("executing")]
        assert executed[0] == "1"
        assert sorted(executed[1:4]) == ["2", "3", "4"]
        assert executed[4:] == ["5", "6", "7", None]


async def test_a_failure_replaces_the_success(wire: Wire) -> None:
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(failing())
        await recorder.last_frame_of(prompt_id)
        assert recorder.types()[-4:] == ["executing", "execution_error", "status", "executing"]
        assert "execution_success" not in recorder.types()
        messages = (await wire.finished(prompt_id))["status"]["messages"]
        assert messages[-1] == ["execution_error", recorder.events("execution_error")[0]]


async def test_an_interruption_replaces_the_success(slow_wire: Wire) -> None:
    async with slow_wire.socket() as recorder:
        prompt_id = await slow_wire.submit(await slow_graph(slow_wire))
        await recorder.event("progress", prompt_id)
        await slow_wire.interrupt(prompt_id)
        await recorder.last_frame_of(prompt_id)
        assert recorder.types()[-3:] == ["execution_interrupted", "status", "executing"]
        (interrupted,) = recorder.events("execution_interrupted")
        assert interrupted.keys() == {"prompt_id", "node_id", "node_type", "executed", "timestamp"}
        assert (interrupted["node_id"], interrupted["node_type"]) == ("5", "KSampler")


@pytest.mark.parametrize("flags", [{}, {"supports_preview_metadata": True}])
async def test_a_picture_may_be_sent_instead_of_saved(wire: Wire, flags: dict[str, bool]) -> None:
    graph = {"1": empty_image(20, 10, batch_size=2, color=0x336699), "2": node("SaveImageWebsocket", images=["1", 0])}
    async with wire.socket(flags=flags) as recorder:
        prompt_id = await wire.submit(graph)
        await recorder.last_frame_of(prompt_id)
        picture_first = ["progress_state", "binary-4", "progress"]
        step = picture_first if flags else ["progress_state", "progress", "binary-1"]
        kinds = recorder.types()
        assert kinds[kinds.index("execution_success") - 8 :] == [
            "executing",
            *step,
            *step,
            "progress_state",
            "execution_success",
            "status",
            "executing",
        ]
        assert recorder.events("progress") == [
            {"value": step, "max": 2, "prompt_id": prompt_id, "node": "2"} for step in (0, 1)
        ]
        for frame in recorder.binaries():
            kind, size = struct.unpack(">II", frame[:8])
            if flags:
                assert json.loads(frame[8 : 8 + size])["image_type"] == "image/png"
            else:
                assert (kind, size) == (1, 2)
            image = opened(frame[8 + size :] if flags else frame[8:])
            assert (image.format, image.size, image.getpixel((0, 0))) == ("PNG", (20, 10), (0x33, 0x66, 0x99))
    entry = await wire.finished(prompt_id)
    assert (entry["outputs"], entry["meta"], entry["prompt"][4]) == ({}, {}, ["2"])


@pytest.mark.not_at_gateway("after a reconnect more is told")
async def test_a_picture_is_sent_again_by_the_same_prompt(wire: Wire) -> None:
    graph = {"1": empty_image(), "2": node("SaveImageWebsocket", images=["1", 0])}
    await wire.run(graph)
    async with wire.socket() as recorder:
        await recorder.last_frame_of(await wire.submit(graph))
        assert recorder.events("execution_cached")[0]["nodes"] == ["1"]
        assert len(recorder.binaries()) == 1


async def test_a_client_id_in_the_extra_data_is_enough(wire: Wire) -> None:
    async with wire.socket() as recorder:
        prompt_id = await wire.submit(picture(), client_id=None, extra_data={"client_id": wire.client_id})
        await recorder.last_frame_of(prompt_id)
        assert "executed" in recorder.types()


async def test_an_output_within_reach_goes_first(wire: Wire) -> None:
    """Saving is not left to the end: output nodes, then nodes that feed one, are preferred."""
    graph = await text_to_image(wire)
    near = picture()
    graph["8"], graph["9"] = near["1"], near["2"]
    graph["9"]["inputs"]["images"] = ["8", 0]
    async with wire.socket() as recorder:
        await recorder.last_frame_of(await wire.submit(graph))
        assert [data["node"] for data in recorder.events("executing")][:2] == ["8", "9"]
