"""Turns: an address that asks for very much waits for its own answers only."""

from __future__ import annotations

import asyncio

from comfyui_agent.web.fair_turns import AT_ONCE, Turns


async def test_an_address_has_so_many_turns_at_once_and_keeps_no_other_waiting() -> None:
    turns, may, begun = Turns(), asyncio.Event(), []

    async def ask(address: str) -> None:
        async with turns.turn(address):
            begun.append(address)
            await may.wait()

    asking = [asyncio.ensure_future(ask("a")) for _ in range(AT_ONCE + 5)]
    asking.append(asyncio.ensure_future(ask("b")))
    await asyncio.sleep(0)
    assert (begun.count("a"), begun.count("b")) == (AT_ONCE, 1)
    may.set()
    await asyncio.gather(*asking)
    assert begun.count("a") == AT_ONCE + 5
    assert not turns._semaphores


async def test_a_turn_can_be_ended_early_and_only_once() -> None:
    turns = Turns(at_once=1)
    async with turns.turn("a") as end:
        end()
        end()
        async with turns.turn("a"):
            assert turns._semaphores["a"].locked()
    assert not turns._semaphores
