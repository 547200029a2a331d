"""A night on a bad network: faults of all kinds at random, and in the morning each picture is there, rendered once."""

from __future__ import annotations

import asyncio
import random

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, ComfyError, NotAccepted
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import Delay, Fault, FaultProxy, Garbage, Late, Refuse, Reset, Silence, Slice
from support.graphs import fresh_prefix, picture
from support.promises import renders
from support.wire import Wire

IN_FLIGHT = 6
ROUTES = ("POST /prompt", "GET /queue", "GET /history", "/ws", "GET /prompt")


@pytest.mark.parametrize(
    ("pictures", "seed"),
    [
        pytest.param(60, 1, id="short"),
        pytest.param(600, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
async def test_every_picture_is_rendered_once_whatever_the_network_does(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire, pictures: int, seed: int
) -> None:
    dice = random.Random(seed)
    weather = asyncio.create_task(_bad_weather(proxy, dice))
    prefixes = [fresh_prefix("night") for _ in range(pictures)]
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(prefix: str) -> None:
        async with gate:
            await _until_rendered(comfy, prefix)

    await asyncio.gather(*(one(prefix) for prefix in prefixes))
    weather.cancel()
    assert [await renders(wire, prefix) for prefix in prefixes] == [1] * pictures


async def _until_rendered(comfy: ComfyClient, prefix: str) -> None:
    """What an agent does: the id is known first; a new one is minted only when the old one is surely not there."""
    prompt_id = mint_prompt_id()
    while True:
        try:
            watch = await comfy.submit(picture(prefix), prompt_id)
        except AcceptanceUnknown:
            watch = comfy.take_over(prompt_id, picture(prefix))
        except NotAccepted:
            prompt_id = mint_prompt_id()
            continue
        except ComfyError:
            continue
        outcome = await watch.outcome(timeout=120)
        if isinstance(outcome, Succeeded):
            return
        prompt_id = mint_prompt_id()


async def _bad_weather(proxy: FaultProxy, dice: random.Random) -> None:
    while True:
        faults: list[Fault] = [Reset(), Reset(after=190), Refuse(), Late(0.2), Delay(0.3), Slice(7), Garbage(after=190)]
        if dice.random() < 0.1:
            faults.append(Silence(after=100))
        proxy.inject(dice.choice(faults), on=dice.choice(ROUTES))
        if dice.random() < 0.05:
            proxy.cut_all(dice.choice(("/ws", "")))
        await asyncio.sleep(dice.uniform(0.02, 0.1))
