"""Many prompts are taken back at once: soon, with few questions, and nobody else's with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from comfyui_agent.comfy import cancellation
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.lookup import Ended
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import FaultProxy
from comfyui_agent.sim.settings import SimSettings
from comfyui_agent.sim.simulator import Simulator
from support.graphs import node, picture
from support.promises import failed
from support.threaded_proxy import Hold

WAITING = 500
LONG = 60.0


def sleeper(seconds: float = LONG) -> dict[str, Any]:
    graph = picture()
    graph["3"] = node("Sleep", value=["1", 0], seconds=seconds)
    graph["2"]["inputs"]["images"] = ["3", 0]
    return graph


class Place:
    """A server with a proxy before it; `client` talks through the proxy, which counts what it asks."""

    def __init__(self, server: Simulator, proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session
        self.proxy = proxy
        self.client = ComfyClient(proxy.url, limits=Limits(poll_seconds=0.2), listen=False)

    async def post(self, graph: dict[str, Any], prompt_id: str = "") -> str:
        """A prompt that the client knows nothing of."""
        prompt_id = prompt_id or mint_prompt_id()
        body = {"prompt": graph, "prompt_id": prompt_id}
        async with self._session.post(f"{self._server.url}/prompt", json=body) as answer:
            assert answer.status == 200, await answer.text()
        return prompt_id

    async def post_all(self, count: int) -> list[str]:
        return [await self.post(picture(color=number)) for number in range(count)]

    async def queue(self) -> tuple[list[str], list[str]]:
        async with self._session.get(f"{self._server.url}/queue") as answer:
            found = await answer.json()
        running, waiting = ([each[1] for each in found[f"queue_{part}"]] for part in ("running", "pending"))
        return running, waiting

    async def until_runs(self, prompt_id: str) -> None:
        deadline = time.monotonic() + 10
        while await self.queue() != ([prompt_id], []):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


@asynccontextmanager
async def place(**settings: Any) -> AsyncIterator[Place]:
    async with (
        Simulator(SimSettings(**settings)) as server,
        FaultProxy(server.host, server.port) as proxy,
        aiohttp.ClientSession() as session,
    ):
        found = Place(server, proxy, session)
        async with found.client:
            yield found


@pytest.mark.timing
async def test_hundreds_that_wait_and_the_one_that_runs_are_gone_soon_and_with_few_requests() -> None:
    async with place() as here:
        running = await here.post(sleeper())
        await here.until_runs(running)
        first = await here.post(sleeper())
        ours = await here.post_all(WAITING)
        last = await here.post(picture())
        unknown = [mint_prompt_id() for _ in range(50)]
        began = time.monotonic()
        assert await here.client.cancel_all([running, *ours, *unknown], timeout=10) == frozenset()
        assert time.monotonic() - began < 5
        assert await here.queue() == ([first], [last])
        assert len(here.proxy.requests) <= 20
        sighting = await here.client.look_up(running)
    assert isinstance(sighting, Ended)
    assert any(message.event == "execution_interrupted" for message in sighting.entry.messages)


async def test_somebody_elses_prompt_that_runs_is_not_interrupted() -> None:
    async with place() as here:
        theirs = await here.post(sleeper())
        await here.until_runs(theirs)
        ours = await here.post_all(3)
        assert await here.client.cancel_all(ours, timeout=10) == frozenset()
        assert await here.queue() == ([theirs], [])
        assert not here.proxy.when("/interrupt")


async def test_an_interrupt_that_comes_too_late_meets_nobody_else() -> None:
    """Ours ends while the interrupt is under way, and theirs begins."""
    held = Hold()
    async with place() as here:
        ours = await here.post(sleeper(0.3))
        await here.until_runs(ours)
        theirs = await here.post(sleeper())
        here.proxy.inject(held, on="/interrupt")
        taking_back = asyncio.create_task(here.client.cancel_all([ours], timeout=10))
        await here.until_runs(theirs)
        assert held.waiting == 1
        held.decide(dropped=False)
        assert await taking_back == frozenset()
        assert await here.queue() == ([theirs], [])


async def test_what_has_ended_stays_as_it_is() -> None:
    async with place() as here:
        watch = await here.client.submit(picture(), mint_prompt_id())
        await watch.outcome(timeout=20)
        done = watch.prompt_id
        assert await here.client.cancel_all([done, mint_prompt_id()]) == frozenset()
        sighting = await here.client.look_up(done)
    assert isinstance(sighting, Ended)
    assert any(message.event == "execution_success" for message in sighting.entry.messages)


async def test_nothing_to_take_back_touches_nothing() -> None:
    async with place() as here:
        theirs = await here.post(sleeper())
        await here.until_runs(theirs)
        assert await here.client.cancel_all([]) == frozenset()
        assert await here.queue() == ([theirs], [])


async def test_those_who_wait_for_them_hear_that_they_were_cancelled() -> None:
    async with place() as here:
        watches = [await here.client.submit(sleeper(), mint_prompt_id()) for _ in range(3)]
        await here.client.cancel_all(watch.prompt_id for watch in watches)
        for watch in watches:
            failed(await watch.outcome(timeout=20), FailureClass.CANCELLED)


async def test_a_prompt_that_arrives_while_it_looks_is_taken_back_too() -> None:
    async with place() as here:
        theirs = await here.post(sleeper())
        await here.until_runs(theirs)
        late = mint_prompt_id()
        taking_back = asyncio.create_task(here.client.cancel_all([late], timeout=10))
        await looked(here.proxy)
        await here.post(picture(), late)
        assert await taking_back == frozenset()
        assert await here.queue() == ([theirs], [])


async def looked(proxy: FaultProxy) -> None:
    """Until the queue was asked for and the answer is there, which the pause after it leaves time for."""
    deadline = time.monotonic() + 5
    while not proxy.when("GET /queue"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize(
    ("settings", "interrupts"),
    [
        pytest.param({"imitate": "0.3.50"}, 0, id="an old server cannot interrupt one prompt"),
        pytest.param({"hang_after": 0}, 1, id="a node does not look up from its work"),
    ],
)
async def test_what_cannot_be_stopped_is_reported_and_what_waits_behind_it_is_gone(
    settings: dict[str, Any], interrupts: int
) -> None:
    graph = sleeper(2.0) if "imitate" in settings else picture()
    async with place(**settings) as here:
        running = await here.post(graph)
        await here.until_runs(running)
        ours = await here.post_all(5)
        began = time.monotonic()
        assert await here.client.cancel_all([running, *ours], timeout=0.5) == {running}
        assert 0.5 <= time.monotonic() - began < cancellation.INTERRUPT_EVERY
        assert await here.queue() == ([running], [])
        assert len(here.proxy.when("/interrupt")) == interrupts
