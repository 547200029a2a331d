"""How fast the client drives a server, against a bare loop that makes the same requests."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import tempfile
import time
import uuid
from pathlib import Path

import aiohttp

from bare import BareClient, trivial
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.domain.prompts import mint_prompt_id
from report import Line, at_least
from sizes import size

PAIRS = size(9, 1)
IN_FLIGHT = 16
FOLDER = 100
WHY = "where client and server share few cores, each check and fsync of the client takes time from the server"


async def bare_run(url: str, prompts: int, folder: Path) -> float:
    """Prompts a second of the bare loop, from the first post to the last file."""
    async with aiohttp.ClientSession() as session:
        client = BareClient(url, session)
        listening = asyncio.create_task(client.listen())
        await asyncio.sleep(0.2)
        prefix = f"bench_{uuid.uuid4().hex[:8]}/bare"
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(number: int) -> None:
            async with gate:
                await client.render(trivial(f"{prefix}{number // FOLDER}/picture"), folder / f"{number}.png")

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(prompts)))
        seconds = time.perf_counter() - started
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        return prompts / seconds


async def client_run(url: str, prompts: int, folder: Path) -> float:
    """The same through the client, with every check, every fsync and every rename."""
    async with ComfyClient(url) as client:
        await asyncio.sleep(0.2)
        prefix = f"bench_{uuid.uuid4().hex[:8]}/client"
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(number: int) -> None:
            async with gate:
                watch = await client.submit(trivial(f"{prefix}{number // FOLDER}/picture"), mint_prompt_id())
                outcome = await watch.outcome()
                assert isinstance(outcome, Succeeded), outcome
                staged = await client.download(outcome.results.kept[0], folder)
                await asyncio.to_thread(staged.publish, folder / f"{number}.png")

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(prompts)))
        return prompts / (time.perf_counter() - started)


async def measure(name: str, url: str, prompts: int) -> list[Line]:
    ratios, bare_rates, client_rates = [], [], []
    for pair in range(PAIRS):
        folder = Path(tempfile.mkdtemp(prefix="e3-bench-"))
        try:
            runs = {"bare": bare_run, "client": client_run}
            rates = {}
            for kind in ("bare", "client") if pair % 2 else ("client", "bare"):
                (folder / kind).mkdir()
                rates[kind] = await runs[kind](url, prompts, folder / kind)
                assert len(list((folder / kind).iterdir())) == prompts
        finally:
            shutil.rmtree(folder)
        ratios.append(rates["client"] / rates["bare"])
        bare_rates.append(rates["bare"])
        client_rates.append(rates["client"])
    ratio = statistics.median(ratios)
    rates_seen = f"{statistics.median(client_rates):.0f}/s of {statistics.median(bare_rates):.0f}/s"
    spread = f"pairs {min(ratios):.2f} to {max(ratios):.2f}"
    line = at_least(f"{name}: client against bare loop, {rates_seen}, {spread}", 0.9, ratio, why=WHY)
    return [line]
