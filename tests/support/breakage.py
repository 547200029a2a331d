"""Ways to break things beside a running agent: proxies and hostile servers in threads, strangers, full disks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import pytest

from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.lab.fault_proxy import FaultProxy
from support.agents import AgentWorkspace
from support.servers import ServerProcess

T = TypeVar("T")
R = TypeVar("R")

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

SLEEP_NODE = """
import time
import comfy.model_management

class Sleep:
    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "sleep"
    CATEGORY = "utils"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"value": ("IMAGE",), "seconds": ("FLOAT", {"default": 1.0, "min": 0.0, "max": 86400.0})}}

    def sleep(self, value, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            comfy.model_management.throw_exception_if_processing_interrupted()
            time.sleep(0.02)
        return (value,)

NODE_CLASS_MAPPINGS = {"Sleep": Sleep}
"""


def only_simulator(server_kind: str, reason: str) -> None:
    if server_kind == "real":
        pytest.skip(f"only the simulator can do that: {reason}")


# Servers, and who else uses them.


def with_sleep_node(server: ServerProcess, server_kind: str) -> ServerProcess:
    """The same server with the Sleep node that the simulator has anyway."""
    if server_kind == "real":
        (server.folder / "custom_nodes" / "e3_sleep.py").write_text(SLEEP_NODE)
        server.kill()
        server.start()
    return server


def without_flag(server: ServerProcess, flag: str) -> None:
    """The next start of a simulator goes without a flag and its value."""
    at = server.command.index(flag)
    del server.command[at : at + 2]


@contextlib.contextmanager
def frozen(server: ServerProcess) -> Iterator[None]:
    """Connections are accepted, by the system, and nothing is ever answered."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Stranger:
    """Someone else at a server, with a browser or a script of their own."""

    url: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> None:
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def running(self) -> list[Queued]:
        return self.queue()[0]

    def queue(self) -> tuple[list[Queued], list[Queued]]:
        """What runs and what waits."""
        document = self.get("/queue")
        return tuple([_queued(item) for item in document[key]] for key in ("queue_running", "queue_pending"))  # type: ignore[return-value]


@dataclass(frozen=True)
class Queued:
    """One prompt in a queue."""

    prompt_id: str
    graph: dict[str, Any]

    @property
    def colour(self) -> int:
        colour: int = self.graph.get("1", {}).get("inputs", {}).get("color", -1)
        return colour


def _queued(item: list[Any]) -> Queued:
    return Queued(item[1], item[2])


# Things that go on beside the test.


@dataclass
class Lodger(Generic[T]):
    """An object that lives in the loop of another thread; `do` works with it there."""

    it: T
    loop: asyncio.AbstractEventLoop

    def do(self, work: Callable[[T], R]) -> R:
        async def call() -> R:
            return work(self.it)

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)


@contextlib.contextmanager
def in_thread(make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[Lodger[T]]:
    """An asynchronous context manager, held open in a thread with a loop of its own."""
    ready: list[Lodger[T]] = []
    is_ready = threading.Event()
    leave: asyncio.Event

    async def live() -> None:
        nonlocal leave
        leave = asyncio.Event()
        async with make() as it:
            ready.append(Lodger(it, asyncio.get_running_loop()))
            is_ready.set()
            await leave.wait()

    thread = threading.Thread(target=asyncio.run, args=(live(),), daemon=True)
    thread.start()
    assert is_ready.wait(60)
    try:
        yield ready[0]
    finally:
        ready[0].loop.call_soon_threadsafe(leave.set)
        thread.join(20)
        assert not thread.is_alive()


@contextlib.contextmanager
def proxied(server: ServerProcess) -> Iterator[Lodger[FaultProxy]]:
    """A proxy that misbehaves on request, in front of a server."""
    parts = urlsplit(server.url)
    with in_thread(lambda: FaultProxy(parts.hostname or "", parts.port or 0)) as proxy:
        yield proxy


def prompts_posted(proxy: Lodger[FaultProxy]) -> int:
    return proxy.do(lambda it: sum(request == "POST /prompt" for request in it.requests))


@contextlib.contextmanager
def again_and_again(work: Callable[[], object], pause: float = 0.02) -> Iterator[None]:
    """Do something in a thread until the block ends. A server that does not answer is no error; all else is."""
    over = threading.Event()
    errors: list[Exception] = []

    def repeat() -> None:
        while not over.wait(pause):
            try:
                work()
            except (urllib.error.URLError, OSError):
                continue
            except Exception as error:  # noqa: BLE001 - told to the test
                errors.append(error)
                return

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    if errors:
        raise errors[0]


@dataclass
class Executioner:
    """Kills a server whenever a prompt of a certain colour runs there, at once or after some seconds, and starts it."""

    server: ServerProcess
    colour: int
    patience: float = 0.0
    besides: Callable[[], None] = lambda: None
    kills: int = 0
    seen: dict[str, float] = field(default_factory=dict)
    company: dict[int, int] = field(default_factory=dict)
    """How many others were ever at the server together with it, by the number of kills so far."""
    awaits_company: bool = False
    """The first kill waits until another prompt is at the server."""

    def look(self) -> None:
        running, pending = Stranger(self.server.url).queue()
        if any(prompt.colour == self.colour for prompt in running + pending):
            others = len(running) + len(pending) - 1
            self.company[self.kills] = max(others, self.company.get(self.kills, 0))
        if self.awaits_company and not self.company.get(0):
            return
        guilty = next((prompt.prompt_id for prompt in running if prompt.colour == self.colour), None)
        if guilty and time.monotonic() - self.seen.setdefault(guilty, time.monotonic()) >= self.patience:
            self.server.kill()
            self.kills += 1
            self.besides()
            self.server.start()


# Jobs.


def coloured(colour: int, *, seconds: float = 0.0, edge: int = 32) -> dict[str, Any]:
    """EmptyImage "1", which sleeps for a while, saved by SaveImage "2"."""
    graph: dict[str, Any] = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": edge, "height": edge, "batch_size": 1, "color": colour}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    if seconds:
        graph["3"] = {"class_type": "Sleep", "inputs": {"value": ["1", 0], "seconds": seconds}}
        graph["2"]["inputs"]["images"] = ["3", 0]
    return graph


def job(name: str, graph: dict[str, Any], **facts: Any) -> NewJob:
    return NewJob(name, "T2I", "wf", Template.of(graph), **facts)


def submit(workspace: AgentWorkspace, *jobs: NewJob) -> None:
    workspace.submit_jobs(list(jobs))


def wait_for_end(workspace: AgentWorkspace, agent: subprocess.Popen[bytes], timeout: float = 60) -> int:
    """The exit status of an agent that works until nothing is left."""
    try:
        return agent.wait(timeout)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"not done after {timeout} s: {workspace.counts()}\n{workspace.tail()}") from None


def until(condition: Callable[[], object], what: str, timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.02)


def running_at(server: ServerProcess, colour: int | None = None) -> bool:
    """Whether a prompt, of this colour, is being executed."""
    try:
        return any(colour in (None, prompt.colour) for prompt in Stranger(server.url).running())
    except (urllib.error.URLError, OSError):
        return False


def told(workspace: AgentWorkspace, name: str, **facts: Any) -> list[dict[str, Any]]:
    """The events of a name in the metrics log that carry these facts."""
    return [
        event
        for event in workspace.events()
        if event["event"] == name and all(event.get(key) == value for key, value in facts.items())
    ]


def wait_told(workspace: AgentWorkspace, name: str, times: int = 1, timeout: float = 30, **facts: Any) -> None:
    """Until the metrics log has so many events of a name: a moment after the database has them."""
    workspace.wait_for(lambda: len(told(workspace, name, **facts)) >= times, f"{times} {name} {facts}", timeout)


def errors_of(workspace: AgentWorkspace, name: str) -> list[dict[str, Any]]:
    """What the runs of a job died of, oldest first."""
    return [json.loads(attempt.error) for attempt in workspace.attempts(name) if attempt.error]


def outcomes_of(workspace: AgentWorkspace, name: str) -> list[str | None]:
    return [attempt.outcome for attempt in workspace.attempts(name)]


def by_hand(workspace: AgentWorkspace, statement: str, *values: Any) -> list[Any]:
    """What a person does at the shell of SQLite."""
    database = sqlite3.connect(workspace.database, timeout=5, isolation_level=None)
    try:
        return database.execute(statement, values).fetchall()
    finally:
        database.close()


def peak_megabytes(process: subprocess.Popen[bytes]) -> float:
    """The most memory that a process has had so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


# Disks.


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A disk of its own at a folder; whoever may not mount skips the test."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    disk = SmallDisk(folder)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class SmallDisk:
    """A disk that can be filled to the last byte."""

    folder: Path

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def make_room(self) -> None:
        self._ballast.unlink()

    def lock(self) -> None:
        """From now on it can only be read."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def unlock(self) -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(self.folder)], check=True)


def limit_files(process: subprocess.Popen[bytes], size: int | None) -> None:
    """From now on no file of a process may grow beyond this; None takes it back."""
    import resource

    most = resource.RLIM_INFINITY if size is None else size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def is_root() -> bool:
    return os.geteuid() == 0
