"""Row 3: the answer to a post is lost. The prompt is looked up and never posted again blindly."""

from __future__ import annotations

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, NotAccepted, Unreachable
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import Fault, FaultProxy, Garbage, Late, Refuse, Reset, Silence
from support.graphs import fresh_prefix, picture
from support.promises import posts, renders, succeeded
from support.wire import Wire

POST = "POST /prompt"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reset(), id="reset-before-the-answer"),
        pytest.param(Reset(after=40), id="reset-in-the-head"),
        pytest.param(Reset(after=190), id="reset-in-the-body"),
        pytest.param(Silence(), id="never-answered"),
        pytest.param(Silence(after=190), id="half-answered"),
        pytest.param(Garbage(), id="garbage"),
        pytest.param(Garbage(after=190), id="garbage-in-the-body"),
        pytest.param(Late(0.3), id="arrives-after-its-sender-gave-up"),
    ],
)
async def test_a_prompt_whose_answer_is_lost_is_found_and_runs_once(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire, fault: Fault
) -> None:
    prefix = fresh_prefix()
    proxy.inject(fault, on=POST)
    watch = await comfy.submit(picture(prefix), mint_prompt_id())
    outcome = succeeded(await watch.outcome(timeout=20))
    assert [file.filename for file in outcome.results.files] == [f"{prefix}_00001_.png"]
    assert posts(proxy) == 1
    assert await renders(wire, prefix) == 1


async def test_a_post_that_never_arrives_is_said_to_be_not_accepted(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire
) -> None:
    prefix = fresh_prefix()
    proxy.inject(Refuse(), on=POST)
    with pytest.raises(NotAccepted) as raised:
        await comfy.submit(picture(prefix), mint_prompt_id())
    assert raised.value.kind is FailureClass.SERVER_LOST
    assert posts(proxy) == 1
    assert await renders(wire, prefix) == 0
    again = await comfy.submit(picture(prefix), mint_prompt_id())
    succeeded(await again.outcome(timeout=20))
    assert await renders(wire, prefix) == 1


async def test_while_the_server_cannot_be_asked_nobody_guesses_and_the_prompt_is_taken_over_later(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire
) -> None:
    prefix, prompt_id = fresh_prefix(), mint_prompt_id()
    proxy.inject(Reset(), on=POST)
    proxy.inject(Refuse(), on="GET /queue", times=None)
    with pytest.raises(AcceptanceUnknown):
        await comfy.submit(picture(prefix), prompt_id)
    proxy.heal()
    succeeded(await comfy.take_over(prompt_id).outcome(timeout=20))
    assert posts(proxy) == 1
    assert await renders(wire, prefix) == 1


async def test_a_server_that_is_down_is_told_apart_from_a_lost_answer(comfy: ComfyClient, proxy: FaultProxy) -> None:
    async with FaultProxy("127.0.0.1", proxy.port) as gone:
        url = gone.url
    async with ComfyClient(url) as client:
        with pytest.raises(Unreachable):
            await client.submit(picture(), mint_prompt_id())
