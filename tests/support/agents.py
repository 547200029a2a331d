"""Agents as real processes on a workspace, and what must be true of that workspace in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image

from comfyui_agent.domain.jobs import Attempt, Job, NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store

T = TypeVar("T")

DATABASE_URL = "E3_DATABASE__URL"
both_databases = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
"""The workspaces of a test have a file as their memory, and a PostgreSQL."""
QUICK = {"E3_RETRY_BACKOFF_SECONDS": "0.2", "E3_POLL_INTERVAL_MS": "250"}
SCALINGS = 8


def sized_picture(edge: int = 32) -> dict[str, Any]:
    """EmptyImage "1" saved by SaveImage "2"."""
    return {
        "1": {"class_type": "EmptyImage", "inputs": {"width": edge, "height": edge, "batch_size": 1, "color": 0}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }


@dataclass
class AgentWorkspace:
    """A workspace with agents that can be started, signalled and killed."""

    root: Path
    servers: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.root / "database" / "comfyui_agent.db"

    @property
    def place(self) -> str | Path:
        """Where its memory is: a file, unless its environment says otherwise."""
        return self.environment.get(DATABASE_URL) or self.database

    @property
    def log(self) -> Path:
        return self.root / "agents.log"

    def start(self, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
        """One more agent."""
        servers = [word for url in self.servers for word in ("--server", url)]
        return self._launch("execute", *servers, *flags, **environment)

    def start_gateway(self, port: int) -> subprocess.Popen[bytes]:
        return self._launch("gateway", "--port", str(port), E3_COMFYUI__SERVERS=json.dumps(self.servers))

    def _launch(self, command: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        self.root.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "comfyui_agent", command, "-v", "-C", str(self.root), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUICK, **self.environment, **environment},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def finish(self, *, timeout: float = 60, **environment: str) -> int:
        """An agent that works until nothing is left; its exit status."""
        process = self.start("--until-idle", **environment)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done after {timeout} s: {self.counts()}\n{self.tail()}") from None

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9."""
        process.kill()
        process.wait(60)

    def stop_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                self.kill(process)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def store(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Ask the memory something, from this process."""

        async def ask() -> T:
            store = open_store(self.place)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(ask())

    def submit(self, count: int, graph: dict[str, Any] | None = None, **facts: Any) -> list[str]:
        """So many jobs, each with a picture of its own colour; their names."""
        template = Template.of(graph or sized_picture())
        jobs = [
            NewJob(f"job_{n:05}.yaml", "T2I", "wf", template, {"1.color": n + 1} if not graph else {}, **facts)
            for n in range(count)
        ]
        self.submit_jobs(jobs)
        return [job.config_name for job in jobs]

    def submit_jobs(self, jobs: list[NewJob]) -> None:
        assert None not in self.store(lambda store: store.run(ops.submit_jobs, jobs))

    def jobs(self) -> list[Job]:
        return self.store(lambda store: store.run(ops.list_jobs, limit=1_000_000))

    def job(self, name: str) -> Job:
        found = self.store(lambda store: store.run(ops.find_job, name))
        assert found is not None
        return found

    def attempts(self, name: str) -> list[Attempt]:
        job = self.job(name)
        return self.store(lambda store: store.run(ops.list_attempts, job.id))

    def counts(self) -> Any:
        return self.store(lambda store: store.run(ops.count_jobs))

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout} s for {what}: {self.counts()}\n{self.tail()}")
            time.sleep(0.05)  # each look may open the database

    def wait_done(self, at_least: int, timeout: float = 60) -> None:
        self.wait_for(lambda: self.counts().done >= at_least, f"{at_least} done", timeout)

    def events(self) -> list[dict[str, Any]]:
        """The metrics log."""
        path = self.root / "infra" / "observability" / "comfyui_metrics.ndjson"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def renders(output_dirs: Iterable[Path]) -> int:
    """How many pictures the servers have saved: each execution saves one, under a prefix of its own."""
    return sum(1 for folder in output_dirs for path in folder.rglob("*.png") if path.is_file())


def check_promises(workspace: AgentWorkspace, count: int, *, done: int | None = None) -> list[Job]:
    """Every job ended once; every result is there, whole, its own, and nothing else lies about."""
    jobs = workspace.jobs()
    assert len(jobs) == count
    states = [job.status for job in jobs]
    assert set(states) <= {JobStatus.DONE, JobStatus.FAILED}, states
    assert states.count(JobStatus.DONE) == (count if done is None else done), [job.error_trace for job in jobs][:3]
    listed = [path for job in jobs for path in job.outputs]
    assert len(listed) == len(set(listed))
    for path in listed:
        with Image.open(workspace.root / path) as picture:
            picture.load()
    finished = workspace.root / "jobs"
    found = {path.relative_to(workspace.root).as_posix() for path in finished.rglob("*") if path.is_file()}
    assert found == set(listed), "stray or missing files"
    completions: dict[int, int] = {}
    for event in workspace.events():
        if event["event"] == "job.done":
            completions[event["job_id"]] = completions.get(event["job_id"], 0) + 1
    assert all(number == 1 for number in completions.values())
    assert len(completions) == states.count(JobStatus.DONE)
    assert not workspace.store(lambda store: store.run(ops.open_attempts))
    return jobs


def colour_of(path: Path) -> int:
    """The colour that a job asked for, read from its result."""
    with Image.open(path) as picture:
        red, green, blue = picture.convert("RGB").getpixel((0, 0))  # type: ignore[misc]
    return (red << 16) | (green << 8) | blue


def slow_picture(kind: str) -> dict[str, Any]:
    """A picture that takes seconds: a simulator is told so by `--render-seconds`, a real server has to work for it."""
    graph = sized_picture()
    if kind == "real":
        image = "1"
        for pair in range(10, 10 + 2 * SCALINGS, 2):
            for node_id, edge in ((str(pair), 4096), (str(pair + 1), 32)):
                scaling = {"upscale_method": "lanczos", "width": edge, "height": edge, "crop": "disabled"}
                graph[node_id] = {"class_type": "ImageScale", "inputs": {"image": [image, 0], **scaling}}
                image = node_id
        graph["2"]["inputs"]["images"] = [image, 0]
    return graph


def submit_slow(workspace: AgentWorkspace, kind: str, count: int, **facts: Any) -> list[str]:
    """So many jobs that take seconds each, none of which the cache of a server can answer; their names."""
    template = Template.of(slow_picture(kind))
    jobs = [NewJob(f"slow_{n:02}.yaml", "T2I", "wf", template, {"1.color": 1000 + n}, **facts) for n in range(count)]
    workspace.submit_jobs(jobs)
    return [job.config_name for job in jobs]


@dataclass(frozen=True)
class ServerQueue:
    """The prompt ids at a server."""

    running: tuple[str, ...]
    pending: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return self.running + self.pending


def server_queue(url: str) -> ServerQueue:
    """One look at a server's queue, what waits in the order in which it will run."""
    with urllib.request.urlopen(f"{url}/queue", timeout=10) as answer:
        queue = json.load(answer)
    running, pending = (sorted(queue[key], key=lambda item: item[0]) for key in ("queue_running", "queue_pending"))
    return ServerQueue(tuple(item[1] for item in running), tuple(item[1] for item in pending))


class Watcher:
    """Looks at a server's queue all the time; the most prompts ever seen there."""

    def __init__(self, url: str, pause: float = 0.005) -> None:
        self._url, self._pause = url, pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0
        self.looks = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(20)

    def _look(self) -> None:
        while not self._over.wait(self._pause):
            with contextlib.suppress(OSError, HTTPException, ValueError):  # the server is away
                self.most = max(self.most, len(server_queue(self._url).all))
                self.looks += 1


def start_changed(workspace: AgentWorkspace, change: str, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
    """One more agent, changed as `changed_agent.py` says; `change` is what that script wants to know first."""
    command = [sys.executable, str(Path(__file__).parent / "changed_agent.py"), change]
    command += ["execute", "-v", "-C", str(workspace.root)]
    for url in workspace.servers:
        command += ["--server", url]
    workspace.root.mkdir(parents=True, exist_ok=True)
    with workspace.log.open("ab") as log:
        process = subprocess.Popen(
            [*command, *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUICK, **workspace.environment, **environment},
            start_new_session=True,
        )
    workspace.processes.append(process)
    return process


def leave(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM, timeout: float = 60) -> float:
    """Send a signal and wait for the end; the seconds that it took."""
    began = time.monotonic()
    process.send_signal(signal_number)
    process.wait(timeout)
    return time.monotonic() - began


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether a SIGSTOP has taken effect."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait_until(condition: Callable[[], Any], what: str, timeout: float = 60) -> float:
    """Wait without asking the database, for when it is away; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + timeout, f"waited {timeout} s for {what}"
        time.sleep(0.01)
    return time.monotonic() - began


def leftovers(workspace: AgentWorkspace) -> list[Path]:
    """Downloads that were begun and not named."""
    return list((workspace.root / "jobs").rglob("*.e3part"))


@contextlib.contextmanager
def locked_database(path: Path) -> Iterator[None]:
    """A process of its own that holds the write lock meanwhile."""
    code = (
        "import sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)\n"
        "database.execute('BEGIN IMMEDIATE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "locked\n"
        yield
    finally:
        holder.stdin.close()
        holder.wait(60)
        holder.stdout.close()
