"""The numbers prompts are given, and the ids they may carry."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from support.graphs import picture
from support.wire import Wire


async def next_number(wire: Wire) -> float:
    answer = await wire.offer(picture())
    number: float = answer.body["number"]
    return number


async def test_each_prompt_gets_the_next_number(wire: Wire) -> None:
    first = await next_number(wire)
    assert await next_number(wire) == first + 1


@pytest.mark.not_at_gateway("numbers are those of jobs")
async def test_a_rejected_prompt_uses_up_a_number(wire: Wire) -> None:
    first = await next_number(wire)
    assert (await wire.post("/prompt", {"prompt": {}})).status == 400
    assert (await wire.post("/prompt", {})).status == 400
    assert await next_number(wire) == first + 3


@pytest.mark.not_at_gateway("numbers are those of jobs")
async def test_a_given_number_leaves_the_counter_alone(wire: Wire) -> None:
    first = await next_number(wire)
    assert (await wire.offer(picture(), number=1000)).body["number"] == 1000
    assert await next_number(wire) == first + 1


async def test_a_front_prompt_gets_the_negated_counter(wire: Wire) -> None:
    first = await next_number(wire)
    assert (await wire.offer(picture(), front=True)).body["number"] == -(first + 1)
    assert (await wire.offer(picture(), front=False)).body["number"] == first + 2


async def test_a_number_beats_front(wire: Wire) -> None:
    assert (await wire.offer(picture(), front=True, number=12)).body["number"] == 12


async def test_a_number_given_as_text_is_read_as_a_float(wire: Wire) -> None:
    answer = await wire.offer(picture(), number="0.5")
    assert answer.body["number"] == 0.5
    entry = await wire.finished(answer.body["prompt_id"])
    assert entry["prompt"][0] == 0.5


@pytest.mark.parametrize("number", ["soon", None, []])
async def test_a_number_that_is_none_fails_the_request(wire: Wire, number: Any) -> None:
    assert (await wire.offer(picture(), number=number)).status == 500


async def test_the_answer_names_id_number_and_node_errors(wire: Wire) -> None:
    prompt_id = str(uuid.uuid4())
    answer = await wire.offer(picture(), prompt_id=prompt_id, number=3)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.body == {"prompt_id": prompt_id, "number": 3.0, "node_errors": {}}


async def test_a_prompt_without_an_id_gets_a_uuid(wire: Wire) -> None:
    prompt_id = await wire.submit(picture())
    assert str(uuid.UUID(prompt_id)) == prompt_id


@pytest.mark.until("0.25")
@pytest.mark.parametrize(("given", "kept"), [(None, "None"), (17, "17"), ("any text", "any text")])
@pytest.mark.of_the_wire
async def test_any_id_is_taken_as_text(wire: Wire, given: Any, kept: str) -> None:
    assert await wire.submit(picture(), prompt_id=given) == kept
    assert (await wire.finished(kept))["prompt"][1] == kept


@pytest.mark.since("0.25")
@pytest.mark.parametrize(
    "given", ["any text", "", 17, [], "C20EF73A-9758-4E56-B4E1-A7DB7E181399", "4da6f01771a74b70b025b550b1bc41f0"]
)
@pytest.mark.not_at_gateway("numbers are those of jobs")
async def test_an_id_must_be_a_canonical_uuid(wire: Wire, given: Any) -> None:
    first = await next_number(wire)
    answer = await wire.offer(picture(), prompt_id=given)
    details = "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to let the server "
    assert (answer.status, answer.body["node_errors"]) == (400, {})
    assert answer.body["error"] == {
        "type": "invalid_prompt_id",
        "message": "prompt_id must be a valid UUID",
        "details": details + "generate one",
        "extra_info": {},
    }
    assert await next_number(wire) == first + 2


@pytest.mark.since("0.25")
async def test_an_id_that_is_null_is_none(wire: Wire) -> None:
    minted = await wire.submit(picture(), prompt_id=None)
    assert str(uuid.UUID(minted)) == minted


@pytest.mark.not_at_gateway("the same id is the same job")
async def test_an_id_may_be_used_twice_and_the_history_keeps_the_later_run(wire: Wire) -> None:
    prompt_id, between = str(uuid.uuid4()), str(uuid.uuid4())
    async with wire.socket() as recorder:
        first, second = picture(), picture()
        await wire.submit(first, prompt_id=prompt_id)
        await recorder.last_frame_of(prompt_id)
        await wire.run(picture(), prompt_id=between)
        await wire.submit(second, prompt_id=prompt_id)
        ends = 0

        def is_second_end(frame: Any) -> bool:
            nonlocal ends
            ends += frame == {"type": "executing", "data": {"node": None, "prompt_id": prompt_id}}
            return ends == 2

        await recorder.until(is_second_end)
    history = (await wire.get("/history")).body
    assert history[prompt_id]["prompt"][2] == second
    assert [key for key in history if key in (prompt_id, between)] == [prompt_id, between]
