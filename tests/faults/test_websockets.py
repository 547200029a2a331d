"""Row 9: the websocket is dropped, silent, sliced or full of garbage. The history decides: no rerun, no hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import Delay, Fault, FaultProxy, Garbage, Loss, Refuse, Reset, Silence, Slice
from support.graphs import fresh_prefix, picture
from support.promises import posts, renders, succeeded
from support.wire import Wire

PROMPTS = 6


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(), id="refused"),
        pytest.param(Reset(after=300), id="dropped-early"),
        pytest.param(Reset(after=2000), id="dropped-later"),
        pytest.param(Silence(), id="no-handshake"),
        pytest.param(Silence(after=200), id="silent"),
        pytest.param(Silence(after=1500), id="silent-in-a-frame"),
        pytest.param(Slice(size=1), id="sliced"),
        pytest.param(Slice(size=7, pause=0.05), id="sliced-and-slow"),
        pytest.param(Delay(1.0), id="late"),
        pytest.param(Garbage(), id="garbage-handshake"),
        pytest.param(Garbage(after=400), id="garbage-frames"),
        pytest.param(Loss(0.5), id="lossy"),
    ],
)
async def test_a_bad_websocket_costs_time_and_nothing_else(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire, fault: Fault
) -> None:
    proxy.inject(fault, on="/ws", times=None)
    prefixes = await _submit_and_wait(comfy)
    assert posts(proxy) == PROMPTS
    assert [await renders(wire, prefix) for prefix in prefixes] == [1] * PROMPTS


@pytest.mark.parametrize(
    "break_socket",
    [
        pytest.param(lambda proxy: proxy.cut_all("/ws"), id="cut"),
        pytest.param(lambda proxy: proxy.silence_all("/ws"), id="silenced"),
        pytest.param(lambda proxy: proxy.abandon_all("/ws"), id="abandoned"),
    ],
)
async def test_a_websocket_that_breaks_in_mid_run_is_replaced_and_hears_again(
    comfy: ComfyClient, proxy: FaultProxy, break_socket: Callable[[FaultProxy], None]
) -> None:
    assert await _heard(comfy, proxy)
    break_socket(proxy)
    await _submit_and_wait(comfy)
    await _until(lambda: comfy.websocket_connections > 1 and comfy.websocket_is_open)
    assert await _heard(comfy, proxy)


async def test_a_new_socket_silenced_by_the_end_of_the_old_one_is_noticed_and_replaced(
    comfy: ComfyClient, proxy: FaultProxy
) -> None:
    """The server removes a client's newer socket when it notices the end of an older one of the same id."""
    assert await _heard(comfy, proxy)
    proxy.abandon_all("/ws")
    await _until(lambda: comfy.websocket_connections == 2 and comfy.websocket_is_open)
    proxy.bury_abandoned()
    await _until_async(lambda: _is_deaf(comfy))
    await _until(lambda: comfy.websocket_connections == 3 and comfy.websocket_is_open)
    assert await _heard(comfy, proxy)


async def test_progress_comes_back_after_a_reconnect(proxy: FaultProxy, comfy: ComfyClient) -> None:
    first = await comfy.submit(picture(), mint_prompt_id())
    await first.outcome(timeout=20)
    proxy.cut_all("/ws")
    await _until(lambda: comfy.websocket_connections == 2 and comfy.websocket_is_open)
    watch = await comfy.submit(picture(), mint_prompt_id())
    await watch.outcome(timeout=20)
    assert watch.heard.start
    assert watch.heard.end


async def _submit_and_wait(comfy: ComfyClient) -> list[str]:
    prefixes = [fresh_prefix() for _ in range(PROMPTS)]
    watches = [await comfy.submit(picture(prefix), mint_prompt_id()) for prefix in prefixes]
    for watch in watches:
        succeeded(await watch.outcome(timeout=20))
    return prefixes


async def _heard(comfy: ComfyClient, proxy: FaultProxy) -> bool:
    """Whether the end of a prompt is heard on the websocket, with polling out of the way."""
    proxy.inject(Delay(1.5), on="GET /queue")
    watch = await _finished(comfy)
    return watch.heard.end


async def _is_deaf(comfy: ComfyClient) -> bool:
    return not (await _finished(comfy)).heard.end


async def _finished(comfy: ComfyClient) -> Watch:
    watch = await comfy.submit(picture(), mint_prompt_id())
    succeeded(await watch.outcome(timeout=20))
    return watch


async def _until(condition: Callable[[], bool], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)


async def _until_async(condition: Callable[[], object], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not await condition():  # type: ignore[misc]
        assert time.monotonic() < deadline, "it did not come true in time"
