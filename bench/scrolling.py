"""A gallery of 100,000 results, scrolled to its end in Chromium: memory of the browser, seconds of each part."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from browsing import served
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.store.connect import migrate_store
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.session import QUERIES
from report import Line, at_most, p95
from sizes import size
from support.browser import DESK, FLAGS, NAMES, chromium, until

RESULTS, SOURCES = size(100_000, 600), size(48, 4)
SHAPES = ((1024, 1024), (832, 1216), (1216, 832), (768, 1344))
GOAL_MB, GOAL_MS = 300, 100
BEFORE_SECONDS = size(5.0, 1.0)
MEASURED_EVERY = 50
FILL = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :results)
INSERT INTO jobs (config_name, job_type, workflow_id, status, run_count, fence, end_time, duration, outputs, inputs)
SELECT 'night_' || n, 'T2I', 'wf', 'done', 1, 1, strftime('%Y-%m-%d %H:%M:%f', 1750000000 + n, 'unixepoch'), 1.0,
    '["jobs/finished/image/' || n % :sources || '.png"]', '{"6.text": "a knight in the rain, number ' || n || '"}'
FROM numbers
"""
TIMED = """
window.parts = [];
new PerformanceObserver((list) => {
  for (const {name, requestStart, responseEnd} of list.getEntries())
    if (name.includes("cursor=")) parts.push(responseEnd - requestStart);
}).observe({type: "resource", buffered: true});
"""
SCROLLED = """
new Promise((done) => {
  scrollTo(0, document.documentElement.scrollHeight);
  setTimeout(() => done([document.querySelectorAll(".gallery-part").length,
    document.querySelectorAll(".gallery-cell").length, !!document.querySelector(".gallery-next")]), 100);
})
"""


def fill(folder: Path) -> None:
    """A workspace of many results. They share some pictures, but each has an address of its own."""
    list(start_workspace(folder, "http://127.0.0.1:9"))
    pictures = folder / "jobs" / "finished" / "image"
    pictures.mkdir(parents=True, exist_ok=True)
    for number in range(SOURCES):
        width, height = SHAPES[number % len(SHAPES)]
        noise = Image.effect_noise((width // 8, height // 8), 90).resize((width, height), Image.Resampling.BICUBIC)
        Image.merge("RGB", [noise, noise.rotate(90), noise.rotate(180)]).save(pictures / f"{number}.png")
    path = folder / "database" / "comfyui_agent.db"
    migrate_store(path)
    database = connect(path, wait=lambda seconds: seconds < 10)
    database.execute(FILL, {"results": RESULTS, "sources": SOURCES})
    database.execute(QUERIES["recount"])
    database.close()


def measure() -> list[Line]:
    if not any(map(shutil.which, NAMES)):
        return []
    with tempfile.TemporaryDirectory() as base:
        fill(Path(base) / "night")
        with served(Path(base) / "night") as (url, _), _browser(Path(base) / "browser") as (port, pid):
            return asyncio.run(_scroll(f"{url}/gallery", port, pid))


async def _scroll(address: str, port: str, pid: int) -> list[Line]:
    async with _page(address, port) as evaluate:
        await asyncio.sleep(BEFORE_SECONDS)
        await evaluate(TIMED)
        first, most, parts, cells, is_more = _megabytes(pid), (0.0, 0.0), 0, 0, True
        while is_more:
            parts, held, is_more = await evaluate(SCROLLED)
            cells = max(cells, held)
            if parts % MEASURED_EVERY == 0 or not is_more:
                most = max(most, _megabytes(pid))
        await asyncio.sleep(BEFORE_SECONDS)
        last, seconds = _megabytes(pid), await evaluate("parts")
    about = f"scrolling through {parts * 60:,} results, at most {cells} held at a time"
    figures = (
        f"begins at {first[0]:.0f} MB, ends at {last[0]:.0f} MB; all processes {first[1]:.0f} and {last[1]:.0f} MB"
    )
    return [
        at_most(f"most memory of the page's process, {about} ({figures})", GOAL_MB, max(last[0], most[0]), " MB"),
        at_most(f"a part of 60 while pictures are loaded, p95 of {len(seconds)}", GOAL_MS, p95(seconds), " ms"),
    ]


@contextmanager
def _browser(folder: Path) -> Iterator[tuple[str, int]]:
    """A Chromium; the port at which it is driven, and its process."""
    size_of = f"--window-size={DESK['width']},{DESK['height']}"
    flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", size_of, *FLAGS]
    process = subprocess.Popen([chromium(), *flags, "about:blank"], stderr=subprocess.DEVNULL)
    try:
        until((folder / "DevToolsActivePort").exists, "the browser to listen")
        yield (folder / "DevToolsActivePort").read_text().split()[0], process.pid
    finally:
        process.terminate()
        process.wait(20)


@asynccontextmanager
async def _page(address: str, port: str) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Evaluates expressions at an address. Only that: who also asks for what is loaded, as test drivers do, makes the
    page's process keep every answer."""
    async with aiohttp.ClientSession() as session:
        await _until_served(session, address)
        async with session.put(f"http://127.0.0.1:{port}/json/new?{address}") as answer:
            page = json.loads(await answer.text())
        async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:

            async def evaluate(expression: str) -> Any:
                said = {"expression": expression, "awaitPromise": True, "returnByValue": True}
                await socket.send_json({"id": 1, "method": "Runtime.evaluate", "params": said})
                return (await socket.receive_json())["result"]["result"].get("value")

            yield evaluate


async def _until_served(session: aiohttp.ClientSession, address: str) -> None:
    while True:
        try:
            async with session.get(address) as answer:
                assert answer.status == 200, await answer.text()
                return
        except aiohttp.ClientError:
            await asyncio.sleep(0.2)


def _megabytes(pid: int) -> tuple[float, float]:
    """Of the largest renderer, and of all processes of a browser together. What is shared counts once."""
    found = list(_processes(pid))
    return max(size for kind, size in found if kind == "renderer"), sum(size for _, size in found)


def _processes(root: int) -> Iterator[tuple[str, float]]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended
            continue
    for pid in parents:
        above = pid
        while above not in (root, 0):
            above = parents.get(above, 0)
        if above != root:
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
            told = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        kind = re.search(r"--type=([a-z-]+)", command)
        yield kind[1] if kind else "browser", int(told[1]) / 1024 if told else 0.0


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
