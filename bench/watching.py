"""How soon the end of a prompt is known, and whether a thousand of them are all known, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
import uuid
from collections import Counter
from pathlib import Path

import aiohttp

from bare import BareClient, trivial
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.domain.prompts import mint_prompt_id
from report import Line, at_most, p95
from sizes import size

PROMPTS = size(1000, 20)
LOOK_EVERY = size(100, 5)
WITHOUT_SOCKET = size(12, 1)
IN_FLIGHT = 4
PACE = 0.01


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


async def measure(name: str, url: str) -> list[Line]:
    """Alternate prompts of a bare websocket reader and of the client, in one process and one run."""
    prefix = f"watch_{uuid.uuid4().hex[:8]}"
    bare_delays: list[float] = []
    client_delays: list[float] = []
    known: Counter[str] = Counter()
    memory: list[float] = []
    async with aiohttp.ClientSession() as session, ComfyClient(url) as client:
        bare = BareClient(url, session)
        listening = asyncio.create_task(bare.listen())
        await asyncio.sleep(0.3)
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def by_reader(number: int) -> None:
            async with gate:
                prompt_id = await bare.submit(trivial(f"{prefix}/b{number // 200}/{number}"))
                heard = await bare.ended[prompt_id]
                del bare.ended[prompt_id]
                bare_delays.append(heard - _finished(await bare.history(prompt_id)))

        async def by_client(number: int) -> None:
            async with gate:
                watch = await client.submit(trivial(f"{prefix}/c{number // 200}/{number}"), mint_prompt_id())
                outcome = await watch.outcome()
                at = time.time()
                assert isinstance(outcome, Succeeded), outcome
                assert outcome.ended_at is not None
                known[outcome.prompt_id] += 1
                client_delays.append(at - outcome.ended_at)

        for number in range(PROMPTS):
            await asyncio.gather(by_reader(number), by_client(number))
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                memory.append(resident_mb())
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
    middle = (statistics.median(client_delays) - statistics.median(bare_delays)) * 1000
    tail = (p95(client_delays) - p95(bare_delays)) * 1000
    missed = PROMPTS - len(known) + sum(count - 1 for count in known.values())
    growth = memory[-1] - memory[1]
    seen = (
        f"bare {statistics.median(bare_delays) * 1000:.1f} ms, client {statistics.median(client_delays) * 1000:.1f} ms"
    )
    return [
        at_most(f"{name}: {PROMPTS} prompts on one websocket, missed or twice", 0, missed),
        at_most(f"{name}: finish to knowing beyond a bare reader, median ({seen})", 10, middle, " ms"),
        at_most(f"{name}: finish to knowing beyond a bare reader, p95", 10, tail, " ms"),
        at_most(f"{name}: memory gained from prompt {2 * LOOK_EVERY} to {PROMPTS}", 5, growth, " MB"),
    ]


async def measure_without_socket(name: str, url: str) -> list[Line]:
    delays = []
    limits = Limits(poll_seconds=1.0)
    async with ComfyClient(url, limits=limits, listen=False) as client:
        for number in range(WITHOUT_SOCKET):
            watch = await client.submit(trivial(f"deaf_{uuid.uuid4().hex[:8]}/{number}"), mint_prompt_id())
            outcome = await watch.outcome()
            assert isinstance(outcome, Succeeded)
            assert outcome.ended_at is not None
            delays.append(time.time() - outcome.ended_at)
    slack = 0.05
    return [
        at_most(
            f"{name}: finish to knowing without a websocket, worst of {WITHOUT_SOCKET}", 1.0 + slack, max(delays), " s"
        )
    ]


def _finished(entry: dict[str, object]) -> float:
    messages = entry["status"]["messages"]  # type: ignore[index]
    return float(messages[-1][1]["timestamp"]) / 1000
