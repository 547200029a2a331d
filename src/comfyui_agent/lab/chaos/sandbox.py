"""The sandbox of a scenario: a throw-away workspace, an agent in it, and a fault proxy in front of its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from yarl import URL

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import DONE, Attempt, Job, NewJob, Template
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.chaos.plan import ChaosPlan, Server
from comfyui_agent.lab.fault_proxy import FaultProxy
from comfyui_agent.lab.payloads import fitted, new_run_prefix
from comfyui_agent.lab.reports.chaos import PageCounts
from comfyui_agent.lab.reports.fields import as_moment
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store

LOOK_SECONDS = 0.05
LEAVING_SECONDS = 5.0
BACK_SECONDS = 10.0
FEWEST_WAITING = 4
MOST_BOOKS = 100
SETTINGS = {"retry_backoff_seconds": [0.5, 1, 2], "poll_interval_ms": 200, "retry_limit": 3}
ENDED = (JobStatus.DONE, JobStatus.FAILED)
OURS = ("E3_", "COMFY_")


class Sandbox:
    """Runs the agent under test and watches it. Made by `open_sandbox`."""

    def __init__(self, plan: ChaosPlan, root: Path, server: Server, proxy: FaultProxy, store: Store) -> None:
        self.plan = plan
        self.server = server
        self.proxy = proxy
        self._root = root
        self._store = store
        self._url = str(URL(server.url).with_host("127.0.0.1").with_port(proxy.port))
        self._agent: subprocess.Popen[bytes] | None = None
        self._books = 0
        self._chance = random.Random()  # seeds that the server has not seen
        self._prefix = new_run_prefix()
        self._events: list[Event] = []

    def client(self) -> ComfyClient:
        """Straight to the server, past the proxy."""
        return ComfyClient(self.server.url, listen=False)

    async def healthy(self, count: int) -> list[Graph]:
        """So many different pages that the server can render."""
        async with self.client() as client:
            payload = await fitted(self.plan.payload, client)
        start = 1000 * self._books
        return [payload.varied(start + number, self._chance, self._prefix) for number in range(count)]

    async def queue(self, pages: Sequence[Graph]) -> list[Job]:
        """Queue a job for each graph; the jobs in the order of pages."""
        self._books += 1
        named = ((f"book_{self._books}_page_{number:03d}", graph) for number, graph in enumerate(pages, start=1))
        jobs = [NewJob(name, "T2I", "page", Template.of(graph)) for name, graph in named]
        ids = await self._store.run(ops.submit_jobs, jobs)
        return [job for job in await self.jobs() if job.id in ids]

    def start_agent(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        environment["E3_COMFYUI__SERVERS"] = self._url  # it may hold a secret: not for a file
        with (self._root / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(  # noqa: S603 - our own command, or a test's
                [*self.plan.agent, "-C", str(self._root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def is_agent_alive(self) -> bool:
        return self._agent is not None and self._agent.poll() is None

    async def stop_agent(self) -> None:
        if self._agent is None:
            return
        self._agent.terminate()
        try:
            await asyncio.to_thread(self._agent.wait, LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            await asyncio.to_thread(self._agent.wait, LEAVING_SECONDS)

    async def jobs(self) -> list[Job]:
        return sorted(await self._store.run(ops.list_jobs, limit=100_000), key=lambda job: job.id)

    async def job(self, job_id: int) -> Job:
        return next(job for job in await self.jobs() if job.id == job_id)

    async def attempts(self, *jobs: Job) -> list[Attempt]:
        return [attempt for job in jobs for attempt in await self._store.run(ops.list_attempts, job.id)]

    async def events(self) -> list[Event]:
        while found := await self._store.run(ops.events_after, self._events[-1].id if self._events else 0):
            self._events += found
        return self._events

    async def first(self, after: float, name: EventName, job_id: int | None = None) -> float | None:
        """When an event, of one page if it is given, happened first after a moment."""
        moments = (
            as_moment(event.timestamp)
            for event in await self.events()
            if event.name == name and job_id in (None, event.job_id)
        )
        return next((moment for moment in moments if moment is not None and moment >= after), None)

    async def finished(self) -> list[tuple[float, Job]]:
        """When each page was done."""
        events = [event for event in await self.events() if event.name == EventName.JOB_DONE]
        ends = {event.job_id: as_moment(event.timestamp) or 0.0 for event in events}
        found = [(ends[job.id], job) for job in await self.jobs() if job.id in ends]
        return sorted(found, key=lambda pair: pair[0])

    async def refilled(self, after: float) -> float | None:
        """When a page that was begun after a moment was first done."""
        for moment, job in await self.finished():
            for attempt in await self.attempts(job):
                if attempt.outcome == DONE and (as_moment(attempt.started_at) or 0.0) >= after:
                    return moment
        return None

    async def keep_busy(self, pages: int, is_enough: Callable[[float], bool]) -> None:
        """Queue more pages whenever few are left, until `is_enough` holds for the seconds so far."""
        began = time.monotonic()
        while not is_enough(time.monotonic() - began):
            waiting = sum(job.status not in ENDED for job in await self.jobs())
            if waiting < FEWEST_WAITING and self._books < MOST_BOOKS:
                await self.queue(await self.healthy(pages))
            await asyncio.sleep(LOOK_SECONDS)

    async def until_one_is_done(self) -> bool:
        """Wait until a page is done; False if no page ends for too long, or the agent is gone."""
        return await self._until(lambda jobs: any(job.status is JobStatus.DONE for job in jobs))

    async def until_at_work(self) -> bool:
        """Wait until the server executes a prompt; False if all pages have ended, or after `patience` seconds."""
        async with self.client() as client:
            deadline = time.monotonic() + self.plan.patience
            while time.monotonic() < deadline and self.is_agent_alive:
                if (await client.queue()).running:
                    return True
                if all(job.status in ENDED for job in await self.jobs()):
                    return False
        return False

    async def until_all_ended(self) -> bool:
        return await self._until(lambda jobs: all(job.status in ENDED for job in jobs))

    async def _until(self, is_so: Callable[[list[Job]], bool]) -> bool:
        """Patience is counted from the last page that ended. Another try of a page is no progress."""
        known, moved_at = -1, time.monotonic()
        while True:
            jobs = await self.jobs()
            if is_so(jobs):
                return True
            ended = sum(job.status in ENDED for job in jobs)
            if ended != known:
                known, moved_at = ended, time.monotonic()
            if time.monotonic() - moved_at > self.plan.patience or not self.is_agent_alive:
                return False
            await asyncio.sleep(LOOK_SECONDS)

    async def take_back(self) -> None:
        """Cancel all prompts at a server that others use: nobody will fetch their results."""
        attempts = await self.attempts(*await self.jobs())
        ids = [attempt.prompt_id for attempt in attempts if attempt.prompt_id]
        with contextlib.suppress(ComfyError):
            async with self.client() as client:
                await client.cancel_all(ids, timeout=BACK_SECONDS)

    async def counts(self) -> PageCounts:
        jobs = await self.jobs()
        return PageCounts(
            total=len(jobs),
            done=sum(job.status is JobStatus.DONE for job in jobs),
            failed=sum(job.status is JobStatus.FAILED for job in jobs),
        )


@asynccontextmanager
async def open_sandbox(plan: ChaosPlan, root: Path, flags: Sequence[str]) -> AsyncIterator[Sandbox]:
    """A workspace, a server and a proxy for one scenario. They end with the block; the folder stays."""
    server = Server(plan, root / "server", flags)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        host, port = server.address.url.host or "127.0.0.1", server.address.url.port or 80
        proxy = await stack.enter_async_context(FaultProxy(host, port))
        place = root / "workspace"
        place.mkdir(parents=True, exist_ok=True)
        deque(start_workspace(place), maxlen=0)
        (place / "config" / "global_config.yaml").write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
        workspace = load_workspace(place, {}, None)
        store = await asyncio.to_thread(open_store, workspace.database, create=True)
        stack.push_async_callback(store.close, timeout=0.5)
        sandbox = Sandbox(plan, workspace.root, server, proxy, store)
        if not plan.is_simulated:
            stack.push_async_callback(sandbox.take_back)
        stack.push_async_callback(sandbox.stop_agent)
        yield sandbox
