"""How long a server stands idle between the prompts of an agent, against the same prompts queued in one go."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from itertools import pairwise
from typing import Any

import aiohttp

from bare import BareClient, trivial
from pairs import measure_pairs
from report import Line, at_most
from sizes import size
from working import fresh_work

PROMPTS = size(5, 2)


def span(entries: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds from the first start to the last end by the server's clock, and how many of them nothing ran."""
    runs = sorted((at(entry, "execution_start"), at(entry, "execution_success")) for entry in entries)
    idle = sum(later[0] - earlier[1] for earlier, later in pairwise(runs))
    return runs[-1][1] - runs[0][0], idle


def at(entry: dict[str, Any], message: str) -> float:
    """When a server noted something about a prompt, in seconds since 1970."""
    return next(facts["timestamp"] for name, facts in entry["status"]["messages"] if name == message) / 1000


async def entries_of(url: str, prompt_ids: list[str]) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession() as session:
        client = BareClient(url, session)
        return [await client.history(prompt_id) for prompt_id in prompt_ids]


def by_agent(url: str) -> tuple[float, float]:
    with fresh_work() as work:
        work.submit(PROMPTS)
        jobs = work.finish(url)
        return span(asyncio.run(entries_of(url, [str(job.prompt_id) for job in jobs])))


def in_one_go(url: str) -> tuple[float, float]:
    async def run() -> tuple[float, float]:
        async with aiohttp.ClientSession() as session:
            client = BareClient(url, session)
            listening = asyncio.create_task(client.listen())
            await asyncio.sleep(0.2)
            prefix = f"bench_{uuid.uuid4().hex[:8]}/picture"
            ids = [await client.submit(trivial(prefix)) for _ in range(PROMPTS)]
            for prompt_id in ids:
                await client.ended[prompt_id]
            entries = [await client.history(prompt_id) for prompt_id in ids]
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            return span(entries)

    return asyncio.run(run())


def measure(name: str, url: str) -> list[Line]:
    idle: dict[str, list[float]] = {"agent": [], "queued": []}

    def ours(_: int) -> float:
        seconds, nothing_ran = by_agent(url)
        idle["agent"].append(nothing_ran)
        return seconds

    def theirs(_: int) -> float:
        seconds, nothing_ran = in_one_go(url)
        idle["queued"].append(nothing_ran)
        return seconds

    found = measure_pairs(ours, theirs)
    gaps = PROMPTS - 1
    agent, queued = (sum(values) / len(values) / gaps * 1000 for values in idle.values())
    what = f"{name}: {PROMPTS} prompts, first start to last end, agent against queued in one go, {found.seen(' s', 2)}"
    why = "the next prompt arrived after the one before had ended"
    return [at_most(f"{what}, idle between two {agent:.0f} ms against {queued:.0f} ms", 1.1, found.ratio, why=why)]
