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
SHARE = 0.2


@pytest.mark.parametrize(
    ("pictures", "seed"),
    [
        pytest.param(60, 1, id="short"),
        pytest.param(3000, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
async def test_every_picture_is_rendered_once_whatever_the_network_does(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire, pictures: int, seed: int
) -> None:
    hit = _bad_weather(proxy, random.Random(seed))
    prefixes = [fresh_prefix("night") for _ in range(pictures)]
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def one(prefix: str) -> None:
        async with gate:
            await _until_rendered(comfy, prefix)

    await asyncio.gather(*(one(prefix) for prefix in prefixes))
    assert [await renders(wire, prefix) for prefix in prefixes] == [1] * pictures
    assert len(hit) > pictures / 4


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


def _bad_weather(proxy: FaultProxy, dice: random.Random) -> list[str]:
    """From now on one request in five meets a fault; returns the list of those that did, as it grows."""
    faults: list[Fault] = [Reset(), Reset(after=190), Refuse(), Late(0.2), Delay(0.3), Slice(7), Garbage(after=190)]
    hit: list[str] = []

    def fault_for(request: str) -> Fault | None:
        proxy.requests.append(request)
        if dice.random() > SHARE:
            return None
        hit.append(request)
        return Silence(after=100) if dice.random() < 0.02 else dice.choice(faults)

    proxy.rule_for = fault_for  # type: ignore[method-assign]
    return hit
