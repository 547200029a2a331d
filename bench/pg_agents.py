"""Many agents on one PostgreSQL, in a few processes. Each has a store, connections and servers of its own.

Servers are modelled in the process of their agent: they take prompts and have rendered them some seconds later, without
HTTP. Run as a program, it is one of these processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

import psycopg

from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.fleet.server import Connection
from comfyui_agent.store.connect import open_store
from support.engine import FakeComfy

PROCESSES = 4


class TimedComfy(FakeComfy):
    """Renders one prompt after another, each for some seconds. Notes when prompts came and how long it was busy."""

    def __init__(self, name: str, seconds: float, posts: list[tuple[str, float]]) -> None:
        super().__init__(name, SYSTEM_CLOCK)
        self._seconds, self._noted = seconds, posts
        self.began_at: float | None = None
        self.busy_seconds = 0.0

    async def submit(self, graph: Any, prompt_id: Any, **options: Any) -> Watch:
        self._noted.append((prompt_id, time.time()))
        watch = await super().submit(graph, prompt_id, **options)
        self._next()
        return watch

    def _next(self) -> None:
        if not self.running and self.waiting:
            self.begin()
            self.began_at = time.monotonic()
            asyncio.get_running_loop().call_later(self._seconds, self._over)

    def _over(self) -> None:
        if self.began_at is not None:
            self.busy_seconds, self.began_at = self.busy(), None
        self.finish()
        self.posts.clear()
        self.extra_data.clear()
        self.outcomes.clear()
        self._next()

    def busy(self) -> float:
        return self.busy_seconds + (0.0 if self.began_at is None else time.monotonic() - self.began_at)


@dataclass
class Agents:
    """The agents of one process."""

    url: str
    folder: Path
    seconds: float
    posts: list[tuple[str, float]] = field(default_factory=list)
    servers: list[TimedComfy] = field(default_factory=list)
    statements: int = 0
    leases: int = 0

    async def run(self, numbers: range, servers: int) -> None:
        """Until SIGTERM. A line on stdin is answered with what has happened so far."""
        self._count_statements()
        running = [asyncio.create_task(self._agent(number, servers)) for number in numbers]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [each.cancel() for each in running])
        asyncio.get_running_loop().add_reader(sys.stdin, self._answer)
        await asyncio.gather(*running, return_exceptions=True)

    async def _agent(self, number: int, servers: int) -> None:
        names = [f"http://server-{number}-{each}:8188" for each in range(servers)]
        known = {name: TimedComfy(name, self.seconds, self.posts) for name in names}
        self.servers += known.values()
        folder = self.folder / f"agent{number}"
        settings = Settings.model_validate({"comfyui": {"servers": names}, "database": {"url": self.url}})
        workspace = Workspace(folder, settings)
        workspace.locks.mkdir(parents=True, exist_ok=True)
        store = open_store(self.url)
        agent = make_agent(store, workspace, connect=lambda name: Connection(name, known[name], known[name]))
        try:
            await agent.run()
        except Exception as error:  # noqa: BLE001 - told to whoever measures
            print(json.dumps({"error": repr(error)}), flush=True)
        finally:
            await store.close(timeout=2)

    def _count_statements(self) -> None:
        plain = psycopg.Cursor.execute

        def execute(cursor: Any, *values: Any, **options: Any) -> Any:
            self.statements += 1
            return plain(cursor, *values, **options)

        psycopg.Cursor.execute = execute  # type: ignore[method-assign]

    def _answer(self) -> None:
        if not sys.stdin.readline():
            os.kill(os.getpid(), signal.SIGTERM)
        posts, self.posts[:] = list(self.posts), []
        said = {
            "posts": posts,
            "statements": self.statements,
            "busy": sum(each.busy() for each in self.servers),
            "servers": sum(each.running != "" or each.is_up for each in self.servers),
            "processor": time.process_time(),
            "at": time.monotonic(),
        }
        print(json.dumps(said), flush=True)


@dataclass
class Fleet:
    """The processes, asked from outside."""

    processes: list[subprocess.Popen[str]]

    def ask(self) -> dict[str, Any]:
        """What has happened so far, summed up."""
        total: dict[str, Any] = {"posts": [], "statements": 0, "busy": 0.0, "servers": 0, "processor": 0.0}
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in self.processes:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert "error" not in said, said
            total = {key: total[key] + said[key] for key in total}
        return total


@contextmanager
def fleet(url: str, agents: int, servers: int, seconds: float) -> Iterator[Fleet]:
    """So many agents with so many servers each."""
    memory = Path("/dev/shm")  # results are written for real, but not to the disk of the database
    with tempfile.TemporaryDirectory(
        prefix="e3-bench-", ignore_cleanup_errors=True, dir=memory if memory.is_dir() else None
    ) as folder:
        each = -(-agents // min(PROCESSES, agents))
        processes = []
        try:
            for first in range(0, agents, each):
                words = [url, folder, str(seconds), str(first), str(min(agents, first + each)), str(servers)]
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "ignore", __file__, *words],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
            yield Fleet(processes)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def processor_seconds(pid: int) -> float:
    """Of a process and all its children, those that have ended included."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid or entry.parent.name == str(pid):
            ticks += int(fields[11]) + int(fields[12])
        if entry.parent.name == str(pid):
            ticks += int(fields[13]) + int(fields[14])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    place, where, render, first, last, each_has = sys.argv[1:]
    working = Agents(place, Path(where), float(render))
    asyncio.run(working.run(range(int(first), int(last)), int(each_has)))
