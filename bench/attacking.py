"""An agent with its page under attack: how fast it renders, how soon it answers a probe, how much memory it takes.

By itself: `bench/run.py attacking`. The attackers come from another address than those who work with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from report import Line, at_least, at_most, p95
from sizes import size
from support.agents import AgentWorkspace
from support.attacks import (
    Prober,
    blank_axes,
    healthz,
    is_cut,
    memory_mb,
    post,
    send_and_leave,
    slow_reader,
    slow_readers,
)
from support.servers import free_port, simulator
from support.workspaces import new_workspace

ATTACKER = "127.0.0.2"
LONG_LIST = b"GET /api/v1/jobs?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
NOTE = "x" * 3_500
"""A note that lists still show."""
RENDER_SECONDS = "0.1"
WHY = "attackers, browsers, agent and simulator share the cores of this machine"


@dataclass(frozen=True)
class Attack:
    """How much of everything, and for how long."""

    seconds: float = size(30.0, 3.0)
    streams: int = size(200, 5)
    posts: int = size(300, 5)
    readers: int = size(1_000, 10)
    megabytes: float = 3.9


@dataclass(frozen=True)
class Page:
    """`e3 run` in a process of its own."""

    url: str
    pid: int
    workspace: AgentWorkspace

    def done(self) -> int:
        with contextlib.closing(sqlite3.connect(self.workspace.database)) as database:
            return int(database.execute("SELECT count(*) FROM jobs WHERE status = 'done'").fetchone()[0])

    def rate(self, seconds: float) -> float:
        """Jobs a second, from now on for some time."""
        before, began = self.done(), time.monotonic()
        time.sleep(seconds)
        return (self.done() - before) / (time.monotonic() - began)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Page]:
    (folder / "sim").mkdir()
    server = simulator(folder / "sim", "--render-seconds", RENDER_SECONDS).start()
    workspace = new_workspace(folder / "workspace", server.url)
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "E3_UI__ENABLED": "true", "E3_UI__PORT": str(port)}
    command = [sys.executable, "-m", "comfyui_agent", "run", "-C", str(workspace.root)]
    with workspace.log.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait_for(lambda: healthz(page) > 0)
        yield Page(page, process.pid, workspace)
    finally:
        process.kill()
        process.wait()
        server.kill()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.1)
    raise TimeoutError


class Attackers:
    """Plans and lists for nobody, and megabytes, again and again until the end of the block."""

    def __init__(self, url: str, attack: Attack, readers: list[socket.socket]) -> None:
        text = "x" * round(attack.megabytes * 1_000_000)
        job = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}, "metadata": {"note": text}}
        largest = {"workflow": "picture", "set": {"color": "1..100000"}, "dry_run": True}
        self._url = url
        self._ends = threading.Event()
        requests = [
            post("/api/v1/batches", blank_axes("picture", "color")),
            post("/api/v1/batches", largest),
            post("/api/v1/batches", {"workflow": "picture", "set": {"color": "1..1000"}, "inputs": {"width": text}}),
            post("/api/v1/jobs", job),
            LONG_LIST,
        ]
        self._threads = [threading.Thread(target=self._send, args=(each,), daemon=True) for each in requests]
        self._threads.append(threading.Thread(target=self._come_back, args=(readers,), daemon=True))

    def __enter__(self) -> Attackers:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()

    def _send(self, request: bytes) -> None:
        while not self._ends.wait(0.5):
            send_and_leave(self._url, request, 6, ATTACKER)

    def _come_back(self, readers: list[socket.socket]) -> None:
        """Slow readers that were cut ask anew, at most as often as there are of them."""
        left = len(readers)
        while left > 0 and not self._ends.wait(0.5):
            for place in [place for place, reader in enumerate(readers) if is_cut(reader)][:left]:
                readers[place].close()
                with contextlib.suppress(OSError):
                    readers[place] = slow_reader(self._url, ATTACKER)
                left -= 1


class Friends:
    """Open pages and people who queue jobs, on a loop of their own."""

    def __init__(self, url: str, attack: Attack) -> None:
        self.answers: Counter[int] = Counter()
        self.told = 0
        self._url = url
        self._attack = attack
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def __enter__(self) -> Friends:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    async def _live(self) -> None:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            watching = [asyncio.create_task(self._watch(session)) for _ in range(self._attack.streams)]
            posting = asyncio.create_task(self._post(session))
            await asyncio.sleep(self._attack.seconds)
            await posting
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        async with session.get(f"{self._url}/stream?page=/") as answer:
            async for line in answer.content:
                self.told += line.startswith(b"event: fragments")

    async def _post(self, session: aiohttp.ClientSession) -> None:
        """One after the other over the whole time, with long notes."""

        async def one(number: int) -> None:
            await asyncio.sleep(number * self._attack.seconds / self._attack.posts)
            note = {"note": NOTE}
            body = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": number}, "metadata": note}
            async with session.post(f"{self._url}/api/v1/jobs", json=body) as answer:
                self.answers[answer.status] += 1

        await asyncio.gather(*(one(number) for number in range(self._attack.posts)))


def measure(attack: Attack | None = None) -> list[Line]:
    attack = attack or Attack()
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as base, running(Path(base)) as page:
        time.sleep(1.0)
        idle = memory_mb(page.pid)
        page.workspace.submit(round(attack.seconds * 25) + 200)
        _wait_for(lambda: page.done() > 10)
        before = page.rate(attack.seconds / 2)
        memory = [idle]
        with (
            Friends(page.url, attack) as friends,
            slow_readers(page.url, attack.readers, ATTACKER) as readers,
            Attackers(page.url, attack, readers),
            Prober(page.url) as prober,
        ):
            began, first = time.monotonic(), page.done()
            while time.monotonic() < began + attack.seconds:
                time.sleep(0.25)
                memory.append(memory_mb(page.pid))
            during = (page.done() - first) / (time.monotonic() - began)
    what = f"{attack.streams} streams, {attack.posts} posts, {attack.readers:,} slow readers, plans, lists, megabytes"
    answered = ", ".join(f"{count} times {status}" for status, count in friends.answers.items())
    print(
        f"        posts answered {answered}; pages told {friends.told:,} times; probes failed: {len(prober.failures)}"
    )
    healthz_p95 = p95([*prober.seconds, prober.seconds[-1]]) * 1000
    return [
        at_least(f"{what}: jobs a second against {before:.1f}/s in peace", 0.8, during / before, why=WHY),
        at_most(f"{what}: /healthz, p95 of {len(prober.seconds)}", 250, healthz_p95, " ms", why=WHY),
        at_most(f"{what}: memory above {idle:.0f} MB when idle", 200, max(memory) - idle, " MB"),
    ]
