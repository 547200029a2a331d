"""The page under a million jobs, and under a hundred open browsers: `e3 serve` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp

from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from looking import ROWS, fill
from report import Line, at_most, p95
from sizes import size

ASKED = size(60, 2)
BROWSERS = size(100, 3)
WARM_UP_SECONDS, WATCHED_SECONDS = size(3.0, 0.5), size(20.0, 1.0)
CHANGES_A_SECOND = 20
PAGES = {
    "overview": "/",
    "queue page": "/queue",
    "queue page, failed": "/queue?status=failed",
    "search by name": "/queue?q=knight",
    "search by a rare name": "/queue?q=0999",
    "search that finds nothing": "/queue?q=unheard-of",
    "API, a page of jobs": "/api/v1/jobs",
}


def measure() -> list[Line]:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "night"
        list(start_workspace(folder, "http://127.0.0.1:9"))
        fill(folder / "database" / "comfyui_agent.db")
        with served(folder) as (url, process):
            lines = asyncio.run(_answers(url))
            return [*lines, asyncio.run(_browsers(url, process, folder))]


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "comfyui_agent", "serve", "-C", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(10)


async def _answers(url: str) -> list[Line]:
    lines = []
    async with aiohttp.ClientSession() as session:
        await _until_it_answers(session, url)
        for name, path in PAGES.items():
            seconds = []
            for _ in range(ASKED):
                began = time.perf_counter()
                async with session.get(url + path) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
                seconds.append(time.perf_counter() - began)
            lines.append(at_most(f"{name}, {ROWS:,} rows, p95 of {ASKED}", 100, p95(seconds) * 1000, " ms"))
    return lines


async def _until_it_answers(session: aiohttp.ClientSession, url: str) -> None:
    """And until every name is in the index: a first start with a million jobs has to read them once."""
    deadline = time.monotonic() + 120
    while True:
        try:
            async with session.get(f"{url}/queue?q=knight") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def _browsers(url: str, process: subprocess.Popen[bytes], folder: Path) -> Line:
    """Processor time of the server while many look at the overview and jobs keep coming in."""
    heard = [0] * BROWSERS
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        watching = [asyncio.create_task(_watch(session, f"{url}/stream?page=/", heard, n)) for n in range(BROWSERS)]
        async with _changes(folder):
            await asyncio.sleep(WARM_UP_SECONDS)
            before, began, told = _processor_seconds(process.pid), time.monotonic(), sum(heard)
            await asyncio.sleep(WATCHED_SECONDS)
            spent, passed = _processor_seconds(process.pid) - before, time.monotonic() - began
        told = sum(heard) - told
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    rate = told / BROWSERS / passed
    what = (
        f"{BROWSERS} browsers on the overview, {ROWS:,} rows, {CHANGES_A_SECOND} changes/s, {rate:.1f} updates/s each"
    )
    assert rate > 0.5, "the browsers heard nothing"
    return at_most(what, 50, spent / passed * 100, " % of a core")


async def _watch(session: aiohttp.ClientSession, url: str, heard: list[int], number: int) -> None:
    async with session.get(url, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status == 200
        async for line in answer.content:
            heard[number] += line.startswith(b"event: fragments")


@asynccontextmanager
async def _changes(folder: Path) -> AsyncIterator[None]:
    """Jobs that come in, from another process than the page's."""
    store = open_store(folder / "database" / "comfyui_agent.db")

    async def submit() -> None:
        for number in range(100_000):
            await store.run(
                ops.submit_jobs, [NewJob(f"browsing_{os.getpid()}_{number}.yaml", "T2I", "wf_realistic_portrait")]
            )
            await asyncio.sleep(1 / CHANGES_A_SECOND)

    submitting = asyncio.create_task(submit())
    try:
        yield
    finally:
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        await store.close()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
