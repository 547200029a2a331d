"""A real workspace with a real store and monitors that run in this process: what the tests of the intake stand on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.monitor import Monitor
from comfyui_agent.engine.intake.put_away_files import FinishedFiles
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.stores import broken, lease

KNIGHT = "knight.yaml"
OLD = 10.0
"""Seconds since a file was written that is moved into place: it is whole already."""
PATIENCE = 60.0


def portrait(seed: int = 1, **keys: Any) -> str:
    """A job file that is right; `keys` are lines that follow."""
    lines = ["job_type: T2I", "workflow_id: wf_realistic_portrait"]
    lines += ["inputs:", '  prompt: "a knight"', f"  seed: {seed}", "  steps: 4"]
    lines += [f"{key}: {value}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def painted(image: str, seed: int = 1) -> str:
    """A job file that names an input picture."""
    return (
        "job_type: I2I\nworkflow_id: wf_image_to_image\ninputs:\n"
        f"  image: {image!r}\n  prompt: a castle\n  seed: {seed}\n"
    )


async def until(condition: Callable[[], Awaitable[Any]], what: str, timeout: float = PATIENCE) -> float:
    """Ask again and again until it is so; the seconds that it took."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() < began + timeout, f"waited {timeout} s for {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@dataclass
class Running:
    """A monitor and the task that it runs in."""

    monitor: Monitor
    task: asyncio.Task[None]

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@dataclass
class Intake:
    """A workspace to drop files into."""

    workspace: Workspace
    store: Store
    _running: list[Running] = field(default_factory=list)
    _stores: list[Store] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.workspace.root

    @property
    def processing(self) -> Path:
        return self.workspace.processing

    @property
    def finished(self) -> Path:
        return self.root / "jobs" / "finished"

    # Monitors.

    def start(self, store: Store | None = None) -> Running:
        """One more monitor."""
        monitor = Monitor(store or self.store, self.workspace)
        running = Running(monitor, asyncio.create_task(monitor.run()))
        self._running.append(running)
        return running

    async def watching(self) -> Running:
        """A monitor that has looked once and is told of changes."""
        running = self.start()
        await self.settled(running)
        return running

    async def settled(self, running: Running) -> None:
        """Wait until a monitor has taken in all that is there now, and has let go of what is not."""

        async def is_idle() -> bool:
            if running.task.done():
                running.task.result()
            return running.monitor.is_idle and not running.monitor._files.missing

        await until(is_idle, "the monitor to take in what is there")

    async def look_once(self) -> None:
        """What a monitor does that is started, takes in what is there and lets go of what is not, and is stopped."""
        running = self.start()
        await self.settled(running)
        await running.stop()

    def other_store(self) -> Store:
        """Another connection to the same database, as another process would have."""
        self._stores.append(open_store(self.workspace.database))
        return self._stores[-1]

    def admission(self) -> Admission:
        """What reads files, as a command makes it."""
        admission = Admission(self.workspace)
        admission.workflows.refresh()
        return admission

    async def close(self) -> None:
        for running in self._running:
            await running.stop()
        for store in [self.store, *self._stores]:
            await store.close()

    # Files.

    def path(self, name: str = KNIGHT, folder: str = "image") -> Path:
        return self.processing / folder / name

    def drop(self, name: str = KNIGHT, content: str | bytes = "", folder: str = "image") -> Path:
        """Move a whole file into place: it was written a while ago, elsewhere."""
        target = self.path(name, folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.root)
        with os.fdopen(handle, "wb") as file:
            file.write((content or portrait()).encode() if isinstance(content, str) else content)
        moment = time.time() - OLD
        os.utime(temporary, (moment, moment))
        Path(temporary).replace(target)
        return target

    def files(self) -> set[str]:
        """Everything below jobs/, by its path in the workspace."""
        found = (self.root / "jobs").rglob("*")
        return {path.relative_to(self.root).as_posix() for path in found if not path.is_dir()}

    # Jobs.

    async def job(self, name: str = KNIGHT) -> Job:
        found = await self.store.run(ops.find_job_by_name, name)
        assert found is not None, f"there is no job {name}"
        return found

    async def taken(self, name: str = KNIGHT, status: str | None = None, timeout: float = PATIENCE) -> Job:
        """The job of a name, as soon as there is one (and it is in that state)."""

        async def is_there() -> bool:
            found = await self.store.run(ops.find_job_by_name, name)
            return found is not None and status in (None, found.status)

        await until(is_there, f"{name} to be {status or 'taken in'}", timeout)
        return await self.job(name)

    async def changed(self, job: Job, timeout: float = PATIENCE) -> Job:
        """The same job, as soon as it stands for other bytes than it did."""

        async def is_changed() -> bool:
            return (await self.job(job.config_name)).digest != job.digest

        await until(is_changed, f"{job.config_name} to change", timeout)
        return await self.job(job.config_name)

    async def submissions(self, name: str = KNIGHT) -> int:
        return sum(event.name == "job.submitted" and event.config_name == name for event in await self.events())

    async def events(self) -> list[Event]:
        return await self.store.run(ops.events_after, 0, 100_000)

    async def run_job(self, name: str = KNIGHT) -> Leased:
        """Lease the only job that waits, as an agent does."""
        (leased,) = await lease(self.store)
        assert leased.config_name == name
        return leased

    async def finish(self, leased: Leased) -> None:
        """`done`, and the file put away, as an agent does it."""
        await self.store.run(ops.complete_job, leased.lease, [f"jobs/finished/image/{leased.config_name}.png"], 1.0)
        await self.put_away(leased)

    async def put_away(self, leased: Leased) -> None:
        away = FinishedFiles(self.store, self.workspace)
        await away.put_away(leased.lease.job_id, leased.source or "", leased.digest, leased.job_type)

    async def fail(self, leased: Leased) -> None:
        await self.store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))


@contextlib.asynccontextmanager
async def intake(root: Path, **environment: str) -> AsyncIterator[Intake]:
    """A fresh workspace, as `e3 init` makes it; settings are given as environment variables."""
    for _ in start_workspace(root):
        pass
    workspace = load_workspace(root, environment)
    room = Intake(workspace, open_store(workspace.database))
    try:
        yield room
    finally:
        await room.close()


def complaints(caplog: Any) -> list[str]:
    """What was logged as an error."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
