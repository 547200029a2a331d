"""A whole agent in this process: a clock that the test moves, a database in memory, scripted servers."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import apsw

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.answers import Device, Freed, QueuedPrompt, QueueView, SystemStats
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.content import FileKind
from comfyui_agent.comfy.definitions import NodeFacts
from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.comfy.errors import ServerLost, Unreachable
from comfyui_agent.comfy.frames import Event
from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.comfy.results import ResultFile, Results
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.jobs import Attempt, Job, NewJob, Template
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.composition import make_agent
from comfyui_agent.fleet.server import Connection
from comfyui_agent.store import operations as ops
from comfyui_agent.store.port import Result, Session, result_of
from comfyui_agent.store.sqlite import migrator
from comfyui_agent.store.sqlite.session import SqliteSession, add_brief_views
from comfyui_agent.store.store import Store
from support.stores import SqliteClock

T = TypeVar("T")

FIRST, SECOND = "http://first:8188", "http://second:8188"
PICTURE = b"\x89PNG\r\n\x1a\n"
GRAPH = {"9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": ["8", 0]}}}


class FakeClock(Clock):
    """Time stands still until the test moves it. The clock of the database goes with it."""

    def __init__(self, database: SqliteClock) -> None:
        self._database = database
        self._now = 1_000.0
        self._timers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def advance_database(self, seconds: float) -> None:
        """Let time pass for the database alone, as if nobody had worked with it."""
        self._database.advance(seconds)

    async def sleep(self, seconds: float) -> None:
        await self._timer(seconds)

    async def first_of(self, waiting: Collection[asyncio.Future[Any]], seconds: float | None) -> set[Any]:
        timer = self._timer(seconds) if seconds is not None else None
        try:
            await asyncio.wait({*waiting, *([timer] if timer else [])}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        return {each for each in waiting if each.done()}

    def _timer(self, seconds: float) -> asyncio.Future[None]:
        timer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._order), timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass, one timer after another."""
        await self.settle()
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            at, _, timer = heapq.heappop(self._timers)
            if not timer.done():
                self._move_to(at)
                timer.set_result(None)
                await self.settle()
        self._move_to(until)

    async def settle(self) -> None:
        """Let everything run that can run without time passing."""
        loop: Any = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while loop._ready:  # noqa: ASYNC110 - it is the loop itself that is looked at
            await asyncio.sleep(0)

    def _move_to(self, at: float) -> None:
        self._database.advance(at - self._now)
        self._now = at


class MemoryDriver:
    """The real SQL in a database in memory, without threads. `error` is what every access fails with."""

    identity = "memory"
    log_bytes = 0

    def __init__(self, clock: SqliteClock) -> None:
        self.database = apsw.Connection(":memory:", vfs=clock.name)
        migrator.migrate(self.database)
        add_brief_views(self.database)
        self._session = SqliteSession(self.database)
        self.version = 0
        self.error: Exception | None = None

    async def write(self, work: Callable[[Session], Result[T]], *, can_wait: bool = False, wakes: bool = False) -> T:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        with self.database:
            result = result_of(work(self._session))
        self.version += 1
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        if self.error is not None:
            raise self.error
        return work(self._session)

    def on_change(self, call: Callable[[], None]) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ARG002
        self.database.close()


class FakeDefinitions:
    """Node classes and models of a scripted server: it has everything, apart from what a test takes away."""

    version = 0

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.models: set[str] | None = None
        """All it has; None: any."""
        self._known: set[str] = set()

    def knows(self, class_type: str) -> bool:
        return class_type in self._known

    def facts(self, class_type: str) -> NodeFacts | None:
        if class_type in self.missing:
            return None
        choices = {} if self.models is None else {"ckpt_name": frozenset(self.models)}
        return NodeFacts(class_type == "SaveImage", choices)

    def known_classes(self) -> list[str]:
        return sorted(self._known)

    async def learn(self, names: Collection[str], *, anew: bool = False) -> None:
        self._known |= set(names)
        self.version += anew


class FakeComfy:
    """One scripted server: client, probe and the server itself. It runs one prompt at a time, when it is told to."""

    websocket_is_open = True
    queue_seen = None

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.definitions: Any = FakeDefinitions()
        self.memory = 24 * 1024**3
        self.load_seconds = 5.0
        """How much longer the first prompt with another checkpoint takes."""
        self._loaded = ""
        self._clock = clock
        self.is_up = True
        self.obeys = True
        """Whether it stops a prompt that it is told to interrupt."""
        self.posts: list[str] = []
        self.extra_data: list[Any] = []
        """What each post carried besides the graph."""
        self.posting: Callable[[str], None] = lambda _: None
        """Called with each post that arrived; what it raises is the answer."""
        self.waiting: list[str] = []
        self.running = ""
        self.outcomes: dict[str, Outcome] = {}
        self.interrupted: list[str] = []
        self.frees = 0
        self.downloads: list[str] = []
        self._watches: dict[str, Watch] = {}

    # What the engine asks.

    async def __aenter__(self) -> FakeComfy:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

    async def queue(self) -> QueueView:
        self._ask()
        running = [self.running] if self.running else []
        seen = [tuple(QueuedPrompt(0, each, "e3-memory-x") for each in ids) for ids in (running, self.waiting)]
        return QueueView(seen[0], seen[1])

    async def submit(self, graph: Any, prompt_id: Any, *, extra_data: Any = None, **_: Any) -> Watch:
        if not self.is_up:
            raise Unreachable(f"{self.name}: connection refused")
        self.posts.append(prompt_id)
        self.extra_data.append(extra_data)
        self.waiting.append(prompt_id)
        self.posting(prompt_id)
        watch = self._watch(prompt_id, graph)
        watch.is_ours = True
        watch.see_waiting(len(self.waiting) - 1 + bool(self.running))
        return watch

    def take_over(self, prompt_id: Any, graph: Any = None, expected: Any = None) -> Watch:  # noqa: ARG002
        watch = self._watch(prompt_id, graph)
        if prompt_id in self.outcomes:
            watch.settle(self.outcomes[prompt_id])
        elif prompt_id == self.running:
            watch.see_running()
        elif prompt_id in self.waiting:
            watch.see_waiting(self.waiting.index(prompt_id) + bool(self.running))
        elif self.is_up:
            watch.settle(self._lost(prompt_id))
        return watch

    def forget(self, watch: Watch) -> None:
        self._watches.pop(watch.prompt_id, None)

    async def cancel(self, prompt_id: str, timeout: float = 30.0, *, interrupt: bool = True) -> Cancellation:
        self._ask()
        if prompt_id in self.outcomes:
            return Cancellation.ENDED_BEFORE
        if prompt_id in self.waiting:
            self.waiting.remove(prompt_id)
        elif prompt_id == self.running:
            if not interrupt:
                return Cancellation.LEFT_RUNNING
            self.interrupted.append(prompt_id)
            if not self.obeys:
                await self._clock.sleep(timeout)
                return Cancellation.STILL_RUNNING
            self.running = ""
            return Cancellation.INTERRUPTED
        return Cancellation.REMOVED

    async def system_stats(self) -> SystemStats:
        self._ask()
        device = Device("fake", "cuda", self.memory, self.memory)
        return SystemStats("0.7.0", "3", "2", "posix", 1, 1, (device,))

    async def free(self, *, wanted: int | None = None, timeout: float = 30.0) -> Freed:  # noqa: ARG002
        self._ask()
        self.frees += 1
        return Freed(0, 1, True)

    async def download(self, result: ResultFile, folder: Path, *, owner: str = "") -> StagedFile:
        self._ask()
        self.downloads.append(result.filename)
        path = folder / f".{owner}.{result.filename}"
        path.write_bytes(PICTURE)
        return StagedFile(result, path, FileKind("png", "image"), len(PICTURE), hashlib.sha256(PICTURE).hexdigest())

    async def upload(self, source: Any, name: str, *, subfolder: str = "", overwrite: bool = False) -> Any:
        raise NotImplementedError

    # What the test tells it.

    def begin(self) -> str:
        """Run the first prompt that waits."""
        self.running = self.waiting.pop(0)
        if self.running in self._watches:
            self._watches[self.running].see_running()
        for ahead, prompt_id in enumerate(self.waiting, 1):
            if prompt_id in self._watches:
                self._watches[prompt_id].see_waiting(ahead)
        return self.running

    def tell_success(self) -> None:
        """What the websocket says before the history has it: there is a picture."""
        picture = {"filename": f"{self.running}.png", "subfolder": "", "type": "output"}
        watch = self._watches[self.running]
        watch.hear(Event("executed", self.running, {"node": "9", "output": {"images": [picture]}}))
        watch.hear(Event("execution_success", self.running, {}))

    def finish(self) -> None:
        """The running prompt ends with a picture."""
        files = (ResultFile("9", f"{self.running}.png", "", "output"),)
        graph = watch.graph if (watch := self._watches.get(self.running)) else None
        model = str(((graph or {}).get("4") or {}).get("inputs", {}).get("ckpt_name", ""))
        seconds = 1.0 + (self.load_seconds if model != self._loaded else 0.0)
        self._loaded = model
        self._end(Succeeded(self.running, Results(files), started_at=0.0, ended_at=seconds))

    def fail(self, kind: FailureClass, message: str = "boom") -> None:
        self._end(Failed(self.running, Failure(kind, message, server=self.name, prompt_id=self.running)))

    def render(self) -> None:
        self.begin()
        self.finish()

    def die(self) -> None:
        """The process is gone, and with it all that it knew."""
        self.is_up = False
        self.waiting, self.running, self.outcomes = [], "", {}

    def start(self) -> None:
        """A new process, which knows nothing of what it is asked about."""
        self.is_up = True
        for prompt_id, watch in list(self._watches.items()):
            watch.settle(self._lost(prompt_id))

    def _end(self, outcome: Outcome) -> None:
        prompt_id, self.running = self.running, ""
        self.outcomes[prompt_id] = outcome
        if prompt_id in self._watches:
            self._watches.pop(prompt_id).settle(outcome)

    def _lost(self, prompt_id: str) -> Failed:
        failure = Failure(FailureClass.SERVER_LOST, "the server no longer knows the prompt", server=self.name)
        return Failed(prompt_id, failure)

    def _watch(self, prompt_id: Any, graph: Any) -> Watch:
        self._watches[prompt_id] = Watch(prompt_id, graph, None, self._clock)
        return self._watches[prompt_id]

    def _ask(self) -> None:
        if not self.is_up:
            raise ServerLost(f"{self.name} does not answer")


async def run_here(_: object, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """In place of `Pool.run`: no threads."""
    return work(*arguments, **options)


class Room:
    """A workspace, a store, servers, and as many agents as a test starts."""

    def __init__(self, folder: Path, servers: Iterable[str] = (FIRST,), **settings: Any) -> None:
        self._database_clock = SqliteClock()
        self.clock = FakeClock(self._database_clock)
        self.driver = MemoryDriver(self._database_clock)
        self.store = Store(self.driver)
        self.servers = {name: FakeComfy(name, self.clock) for name in servers}
        comfyui = {"servers": list(self.servers), **settings.pop("comfyui", {})}
        self.workspace = Workspace(
            folder, Settings.model_validate({"comfyui": comfyui, "retry_backoff_seconds": [5], **settings})
        )
        self.workspace.locks.mkdir(parents=True, exist_ok=True)
        self._working: list[asyncio.Task[int]] = []

    @property
    def comfy(self) -> FakeComfy:
        return next(iter(self.servers.values()))

    async def submit(self, *names: str, model: str = "", **facts: Any) -> None:
        loader = {"4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": model}}} if model else {}
        template = Template.of(GRAPH | loader)
        await self.store.run(ops.submit_jobs, [NewJob(name, "T2I", "w", template=template, **facts) for name in names])

    async def start(self, **options: Any) -> Agent:
        """An agent at work, after its first moments."""
        agent = make_agent(
            self.store, self.workspace, clock=self.clock, chance=lambda: 0.5, connect=self._connect, **options
        )
        self._working.append(asyncio.create_task(agent.run()))
        await self.clock.advance(0.1)
        return agent

    async def stop(self) -> None:
        """SIGTERM to every agent."""
        stopping = asyncio.ensure_future(end_tasks(self._working))
        while not stopping.done():
            await self.clock.advance(0.1)
        self._working.clear()

    async def close(self) -> None:
        await self.stop()
        await self.store.close()
        self._database_clock.unregister()

    async def job(self, name: str = "a") -> Job:
        job = await self.store.run(ops.find_job, name)
        assert job is not None
        return job

    async def attempts(self, name: str = "a") -> list[Attempt]:
        return await self.store.run(ops.list_attempts, (await self.job(name)).id)

    async def events(self, name: str = "alert.server") -> list[str]:
        return [each.message or "" for each in await self.store.run(ops.events_after, 0) if each.name == name]

    def _connect(self, url: str) -> Connection:
        server = self.servers[url]
        return Connection(server.name, server, server)
