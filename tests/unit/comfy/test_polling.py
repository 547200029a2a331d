"""Without a websocket the end of a prompt is found by asking more often; with one, nobody asks more than needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import FaultProxy, Refuse
from comfyui_agent.sim.simulator import Simulator
from support.graphs import node, picture
from support.promises import succeeded

SECONDS = 0.5
SELDOM, OFTEN = 3.0, 0.1


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with Simulator() as server, FaultProxy(server.host, server.port) as proxy:
        yield proxy


async def rendered(client: ComfyClient) -> tuple[Watch, float]:
    """A prompt that sleeps for a while, and the seconds from its post to the moment in which its end was known."""
    graph = picture()
    graph["3"] = node("Sleep", value=["1", 0], seconds=SECONDS)
    graph["2"]["inputs"]["images"] = ["3", 0]
    watch = await client.submit(graph, mint_prompt_id())
    began = time.monotonic()
    succeeded(await watch.outcome(timeout=20))
    return watch, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.timing
async def test_a_refused_websocket_makes_it_ask_often(proxy: FaultProxy) -> None:
    proxy.inject(Refuse(), on="/ws", times=None)
    async with ComfyClient(proxy.url, limits=Limits(poll_seconds=SELDOM, deaf_poll_seconds=OFTEN)) as client:
        watch, seconds = await rendered(client)
    assert not watch.heard.end
    assert SECONDS <= seconds < SECONDS + 0.5
    assert len(proxy.when("GET /queue")) >= 3


@pytest.mark.slow
@pytest.mark.timing
async def test_an_open_websocket_makes_it_ask_seldom(proxy: FaultProxy) -> None:
    async with ComfyClient(proxy.url, limits=Limits(poll_seconds=SELDOM, deaf_poll_seconds=OFTEN)) as client:
        watch, seconds = await rendered(client)
    assert watch.heard.end
    assert seconds < SECONDS + 0.5
    assert len(proxy.when("GET /queue")) <= 1  # before the websocket was open


@pytest.mark.slow
@pytest.mark.timing
async def test_the_shorter_pause_counts_while_it_is_deaf(proxy: FaultProxy) -> None:
    """Who polls often anyway is not slowed down by the loss of the websocket."""
    limits = Limits(poll_seconds=OFTEN, deaf_poll_seconds=SELDOM)
    async with ComfyClient(proxy.url, limits=limits, listen=False) as client:
        _, seconds = await rendered(client)
    assert seconds < SECONDS + 0.5


@pytest.mark.slow
@pytest.mark.timing
async def test_a_websocket_that_is_lost_later_is_made_up_for(proxy: FaultProxy) -> None:
    async with ComfyClient(proxy.url, limits=Limits(poll_seconds=0.4, deaf_poll_seconds=OFTEN)) as client:
        await rendered(client)
        proxy.inject(Refuse(), on="/ws", times=None)
        proxy.cut_all("/ws")
        deadline = time.monotonic() + 5
        while client.websocket_is_open:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        before = len(proxy.when("GET /queue"))
        watch, seconds = await rendered(client)
    assert not watch.heard.end
    assert seconds < SECONDS + 0.5
    assert len(proxy.when("GET /queue")) - before >= 3
