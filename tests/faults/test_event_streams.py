"""A stream of events whose server is killed: whoever comes back with the last id that they have misses none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.sim.process import free_port
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from support import postgres
from support.stores import wish
from support.workspaces import new_workspace

KILLS = 4
BETWEEN = 40
"""Events that are heard between two kills."""


@contextlib.contextmanager
def serving(root: Path, port: int, place: str) -> Iterator[subprocess.Popen[bytes]]:
    words = (sys.executable, "-m", "comfyui_agent", "serve", "--port", str(port), "-C", str(root))
    quiet = subprocess.DEVNULL
    environment = {**os.environ, "E3_DATABASE__URL": place}
    process = subprocess.Popen(words, stdout=quiet, stderr=quiet, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


async def hear(url: str, heard: list[int], is_enough: Callable[[], bool]) -> None:
    """Add the ids that come behind the last one that was heard, until it is enough."""
    headers = {"Last-Event-ID": str(heard[-1])}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/events", headers=headers) as answer:
        async for line in answer.content:
            if line.startswith(b"id: "):
                heard.append(int(line[4:]))
                if is_enough():
                    return


async def heard_through_kills(root: Path, place: str) -> tuple[list[int], list[int]]:
    """Ids that a listener heard while jobs were queued and its server was killed; and those that there are."""
    store = open_store(place or root / "database" / "comfyui_agent.db")
    port, heard = free_port(), [0]
    url = f"http://127.0.0.1:{port}"

    async def queue() -> None:
        for number in range(1_000_000):
            await store.run(ops.submit_jobs, [wish(f"job-{number}")])
            await SYSTEM_CLOCK.sleep(0.01)

    try:
        await store.run(ops.submit_jobs, [wish("first")])
        queueing = asyncio.create_task(queue())
        for kill in range(1, KILLS + 1):
            with serving(root, port, place) as process:
                while len(heard) < kill * BETWEEN:
                    with contextlib.suppress(aiohttp.ClientError):
                        await hear(url, heard, lambda kill=kill: len(heard) >= kill * BETWEEN)
                    assert process.poll() is None, "it has ended by itself"
                    await SYSTEM_CLOCK.sleep(0.05)
                listening = asyncio.create_task(hear(url, heard, lambda: False))
                await SYSTEM_CLOCK.wait_while(lambda kill=kill: len(heard) < kill * BETWEEN + 5, 60)
                process.kill()
                await asyncio.wait({listening}, timeout=20)
                with contextlib.suppress(aiohttp.ClientError):
                    await listening
        queueing.cancel()
        await asyncio.wait({queueing})
        newest = await store.run(ops.newest_event)
        with serving(root, port, place):
            while heard[-1] < newest:
                with contextlib.suppress(aiohttp.ClientError):
                    await hear(url, heard, lambda: heard[-1] >= newest)
                await SYSTEM_CLOCK.sleep(0.05)
        there = [0]
        while events := await store.run(ops.events_after, there[-1]):
            there += [event.id for event in events]
        return heard, [each for each in there if each <= newest]
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.timeout(300)
async def test_a_listener_of_a_server_that_is_killed_again_and_again_hears_every_event_once(
    tmp_path: Path, kind: str
) -> None:
    new_workspace(tmp_path)
    place = "" if kind == "sqlite" else postgres.new_database()
    heard, there = await heard_through_kills(tmp_path, place)
    assert len(there) > KILLS * BETWEEN
    assert heard == there
