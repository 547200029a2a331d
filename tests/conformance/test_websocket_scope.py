"""Who receives which frames, what a reconnecting client is told, and how feature flags are agreed."""

from __future__ import annotations

import uuid

import pytest

from support.graphs import picture, slow_graph, text_to_image
from support.wire import Wire

LIFECYCLE = {"execution_start", "execution_cached", "executing", "executed", "execution_success", "execution_error"}


async def test_other_clients_receive_only_the_status(wire: Wire) -> None:
    async with wire.socket() as own, wire.socket(client_id=uuid.uuid4().hex) as other:
        prompt_id = await wire.submit(await text_to_image(wire))
        await own.last_frame_of(prompt_id)
        await other.until(lambda _: len(other.frames) >= 4)
        assert other.types() == ["status"] * 4


@pytest.mark.not_at_gateway("progress without a client id is told to nobody")
async def test_an_anonymous_prompt_sends_its_progress_to_everybody_and_its_lifecycle_to_nobody(wire: Wire) -> None:
    async with wire.socket() as one, wire.socket(client_id=uuid.uuid4().hex) as two:
        prompt_id = await wire.submit(await text_to_image(wire), client_id=None)
        for recorder in (one, two):
            await recorder.idle_after("progress")
            assert {data["prompt_id"] for data in recorder.events("progress")} == {prompt_id}
            assert {data["prompt_id"] for data in recorder.events("progress_state")} == {prompt_id}
            assert not LIFECYCLE & set(recorder.types())
    assert (await wire.finished(prompt_id))["outputs"]["7"]["images"]


@pytest.mark.not_at_gateway("progress without a client id is told to nobody")
async def test_the_interruption_of_an_anonymous_prompt_is_reported_to_everybody(slow_wire: Wire) -> None:
    async with slow_wire.socket() as one, slow_wire.socket(client_id=uuid.uuid4().hex) as two:
        prompt_id = await slow_wire.submit(await slow_graph(slow_wire), client_id=None)
        await one.event("progress", prompt_id)
        await slow_wire.interrupt(prompt_id)
        for recorder in (one, two):
            await recorder.event("execution_interrupted", prompt_id)
            assert not LIFECYCLE & set(recorder.types())


@pytest.mark.not_at_gateway("after a reconnect more is told")
async def test_a_client_that_returns_is_told_the_running_node_and_nothing_older(slow_wire: Wire) -> None:
    async with slow_wire.socket() as before:
        prompt_id = await slow_wire.submit(await slow_graph(slow_wire))
        await before.event("progress", prompt_id)
    async with slow_wire.socket() as after:
        await after.event("executing")
        assert after.frames[:2] == [
            {
                "type": "status",
                "data": {"status": {"exec_info": {"queue_remaining": 1}}, "sid": slow_wire.client_id},
            },
            {"type": "executing", "data": {"node": "5"}},
        ]
        await slow_wire.interrupt(prompt_id)
        await after.last_frame_of(prompt_id)
        assert "execution_start" not in after.types()
        assert "execution_interrupted" in after.types()


async def test_a_client_that_returns_after_the_end_is_told_nothing(wire: Wire) -> None:
    async with wire.socket() as before:
        await before.last_frame_of(await wire.submit(picture()))
    async with wire.socket() as after:
        prompt_id = await wire.submit(picture())
        await after.last_frame_of(prompt_id)
        assert after.types()[:4] == ["status", "status", "status", "execution_start"]
        assert after.events("execution_start")[0]["prompt_id"] == prompt_id


@pytest.mark.not_at_gateway("two sockets of a client id hear the same")
async def test_a_second_socket_of_the_same_client_takes_over(wire: Wire) -> None:
    async with wire.socket() as old, wire.socket() as new:
        prompt_id = await wire.submit(picture())
        await new.last_frame_of(prompt_id)
        assert old.types() == ["status"]


@pytest.mark.not_at_gateway("two sockets of a client id hear the same")
async def test_closing_the_replaced_socket_silences_the_new_one(wire: Wire) -> None:
    async with wire.socket(client_id=uuid.uuid4().hex) as witness, wire.socket() as old, wire.socket() as new:
        await old.close()
        await wire.run(picture())
        await witness.until(lambda _: len(witness.frames) >= 4)
        assert new.types() == ["status"]
        assert not new.socket.closed


async def test_flags_sent_first_are_answered_with_the_flags_of_the_server(wire: Wire) -> None:
    async with wire.socket(flags={"supports_preview_metadata": True}) as recorder:
        assert recorder.types() == ["status", "feature_flags"]
        assert recorder.events("feature_flags") == [(await wire.get("/features")).body]


async def test_flags_sent_later_are_ignored(wire: Wire) -> None:
    async with wire.socket() as recorder:
        await recorder.socket.send_json({"type": "hello"})
        await recorder.socket.send_json({"type": "feature_flags", "data": {}})
        await recorder.last_frame_of(await wire.submit(picture()))
        assert "feature_flags" not in recorder.types()


async def test_text_that_is_no_json_does_not_count_as_the_first_message(wire: Wire) -> None:
    async with wire.socket() as recorder:
        await recorder.socket.send_str("not json")
        await recorder.socket.send_json({"type": "feature_flags", "data": {}})
        await recorder.event("feature_flags")


async def test_the_socket_also_answers_under_api(wire: Wire) -> None:
    async with wire.session.ws_connect(f"{wire.url}/api/ws?clientId={wire.client_id}") as socket:
        first = await socket.receive_json(timeout=10)
        assert (first["type"], first["data"]["sid"]) == ("status", wire.client_id)
