"""From a job to its verified file and `done`: an agent against a bare loop that posts everything at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import aiohttp

from bare import BareClient, trivial
from comfyui_agent.domain.jobs import Job, NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from pairs import measure_pairs
from report import Line, at_least

FOLDER = 100
PATIENCE = 120.0
WHY = "verifying, fsync and the durable states take processor time that the server on the same few cores would use"


class Work:
    """A workspace with jobs, and an agent that works them off as a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def database(self) -> Path:
        return self.root / "database" / "comfyui_agent.db"

    def submit(self, count: int) -> None:
        """So many jobs, each with a picture that no cache knows."""
        template = Template.of(trivial("picture"))
        first = uuid.uuid4().int % 0x1000000
        jobs = [
            NewJob(f"job_{n:06}.yaml", "T2I", "wf", template, {"1.color": (first + n) % 0x1000000})
            for n in range(count)
        ]

        async def run() -> None:
            store = open_store(self.database)
            for start in range(0, count, 5_000):
                await store.run(ops.submit_jobs, jobs[start : start + 5_000])
            await store.close()

        asyncio.run(run())

    @contextmanager
    def agent(self, url: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """`e3 execute`, with the settings that it has by itself."""
        command = [sys.executable, "-m", "comfyui_agent", "execute", "-C", str(self.root), "--server", url, *flags]
        with (self.root / "agent.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    def finish(self, url: str) -> list[Job]:
        """Work everything off; the jobs as they ended."""
        with self.agent(url, "--until-idle") as process:
            status = process.wait(PATIENCE)
        assert status == 0, (self.root / "agent.log").read_text()[-3000:]
        return self.jobs()

    def jobs(self) -> list[Job]:
        async def run() -> list[Job]:
            store = open_store(self.database)
            try:
                return await store.run(ops.list_jobs, limit=1_000_000)
            finally:
                await store.close()

        return asyncio.run(run())


@contextmanager
def fresh_work() -> Iterator[Work]:
    root = Path(tempfile.mkdtemp(prefix="e3-bench-"))
    try:
        yield Work(root)
    finally:
        shutil.rmtree(root)


def unix(text: str | None) -> float:
    """A time of the database in seconds since 1970."""
    assert text is not None
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def agent_run(url: str, count: int) -> float:
    """Jobs a second, from the lease before the first post to the last `done`, by the database's clock."""
    with fresh_work() as work:
        work.submit(count)
        jobs = work.finish(url)
        assert len(jobs) == count
        assert all(job.status == "done" and (work.root / job.outputs[0]).is_file() for job in jobs)
        seconds = max(unix(job.end_time) for job in jobs) - min(unix(job.start_time) for job in jobs)
        return count / seconds


def bare_run(url: str, count: int) -> float:
    """The same pictures, all posted at once and fetched as they end; a second, from the first post to the last file."""

    async def run(folder: Path) -> float:
        async with aiohttp.ClientSession() as session:
            client = BareClient(url, session)
            listening = asyncio.create_task(client.listen())
            await asyncio.sleep(0.2)
            prefix = f"bench_{uuid.uuid4().hex[:8]}"
            started = time.perf_counter()
            await asyncio.gather(
                *(
                    client.render(trivial(f"{prefix}/{number // FOLDER}/picture"), folder / f"{number}.png")
                    for number in range(count)
                )
            )
            seconds = time.perf_counter() - started
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            return count / seconds

    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        return asyncio.run(run(Path(folder)))


def measure(name: str, url: str, jobs: int) -> list[Line]:
    found = measure_pairs(lambda _: agent_run(url, jobs), lambda _: bare_run(url, jobs))
    what = f"{name}: {jobs} jobs to verified file and done, agent against everything posted at once"
    return [at_least(f"{what}, {found.seen('/s')}", 0.9, found.ratio, why=WHY)]
