"""Removing what is old, rows in parts and the files that belong to them: `e3 db prune`, and agents once an hour."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.config import settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, megabytes
from comfyui_agent.pools import UPKEEP
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)

DAY, HOUR = 86_400.0, 3_600.0
PAUSE = 0.02
"""Seconds between two parts, for the writers of other processes that wait."""
AGENTS_PAUSE = 0.2
BATCHES_AT_ONCE = 200
NEW_SECONDS = HOUR
"""An input file that is newer is kept: its job may be on its way."""
REMOVED = ".removed"

Note = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True)
class Ages:
    """The age in seconds from which on each kind of thing is removed. None: it is kept."""

    jobs: float | None = None
    events: float | None = None
    attempts: float | None = None
    takes: float | None = None
    inputs: float | None = None
    thumbnails: float | None = None
    keep_files: bool = False


@dataclass
class Pruned:
    """How much was removed."""

    jobs: int = 0
    batches: int = 0
    attempts: int = 0
    events: int = 0
    templates: int = 0
    files: int = 0
    file_bytes: int = 0
    inputs: int = 0
    input_bytes: int = 0
    takes: int = 0
    thumbnails: int = 0
    thumbnail_bytes: int = 0

    def __str__(self) -> str:
        rows = [(self.jobs, "job"), (self.attempts, "attempt"), (self.events, "event"), (self.templates, "template")]
        rows += [(self.takes, "take")] if self.takes else []
        files = (
            (self.files, "result file", self.file_bytes),
            (self.inputs, "input picture", self.input_bytes),
            (self.thumbnails, "thumbnail", self.thumbnail_bytes),
        )
        words = [counted(self.batches, "batch", "batches"), *(counted(*each) for each in rows)]
        return ", ".join(words + [f"{counted(count, what)} ({megabytes(size)})" for count, what, size in files])


def ages_of(section: settings.Retention) -> Ages | None:
    """What the settings say. None if everything is kept."""
    names = ("jobs", "events", "attempts", "takes", "inputs", "thumbnails")
    ages = {name: days * DAY for name in names if (days := getattr(section, f"{name}_days"))}
    return Ages(**ages, keep_files=section.keep_files) if ages else None


async def prune(
    store: OperationRunner, workspace: Workspace, ages: Ages, sleep: Callable[[float], Awaitable[None]], pause: float
) -> Pruned:
    """Remove what is old, beside working agents. Killed at any moment, the next run finishes it."""
    pruning = _Pruning(store, workspace, ages, lambda: sleep(pause))
    if ages.jobs is not None:
        await pruning.remove_jobs(await store.run(ops.moment_before, ages.jobs))
    for table in ("events", "attempts"):
        age = getattr(ages, table)
        if age is not None:
            await pruning.remove_rows(table, await store.run(ops.moment_before, age))
    if ages.takes is not None:
        before = await store.run(ops.moment_before, ages.takes)
        while removed := await store.run(ops.remove_old_takes, before):
            pruning.done.takes += removed
            await sleep(pause)
    await store.run(ops.forget_expired_assets)
    if ages.jobs is not None:
        await store.run(ops.forget_requests, ops.KEPT_DAYS)
        if await store.run(ops.bytes_of_unused_templates):  # looking for them keeps no writer waiting
            pruning.done.templates = await store.run(ops.remove_unused_templates)
    await prune_files(store, workspace, ages, pruning.done)
    return pruning.done


async def preview(store: OperationRunner, workspace: Workspace, ages: Ages) -> Pruned:
    """What would go: jobs, batches and files. Nothing is changed."""
    before = await store.run(ops.moment_before, ages.jobs or 0)
    jobs = await store.run(ops.prunable_jobs, before)
    batches = await store.run(ops.old_batches, before, "", len(jobs) + 10**9)
    done = Pruned(len(jobs), len(batches))
    if not ages.keep_files:
        sizes = [_size_of(workspace, path) for path in await store.run(ops.files_of, jobs, batches)]
        done.files, done.file_bytes = sum(size is not None for size in sizes), sum(size or 0 for size in sizes)
    await prune_files(store, workspace, ages, done, dry=True)
    return done


async def prune_files(
    store: OperationRunner, workspace: Workspace, ages: Ages, done: Pruned, *, dry: bool = False
) -> None:
    """Remove input files that no job uses, and thumbnails that nobody has looked at."""
    if ages.inputs is not None:
        used = await store.run(ops.kept_pictures)
        files = sorted(workspace.kept_inputs.glob("*"))
        seconds = max(NEW_SECONDS, ages.inputs)
        done.inputs, done.input_bytes = await UPKEEP.run(_remove_old, files, "st_mtime", seconds, used, dry=dry)
    if ages.thumbnails is not None:
        files = sorted(workspace.thumbnails.glob("*/*"))
        found = await UPKEEP.run(_remove_old, files, "st_atime", ages.thumbnails, dry=dry)
        done.thumbnails, done.thumbnail_bytes = found


@dataclass
class _Pruning:
    store: OperationRunner
    workspace: Workspace
    ages: Ages
    pause: Callable[[], Awaitable[None]]
    done: Pruned = field(default_factory=Pruned)
    _sizes: dict[str, int] = field(default_factory=dict)
    """Removed results: a part of which the transaction is run again finds none the second time."""

    async def remove_jobs(self, before: datetime) -> None:
        """First batches, each whole, then the jobs that are in none any more."""
        batch_id = ""
        while found := await self.store.run(ops.old_batches, before, batch_id, BATCHES_AT_ONCE):
            for batch_id in found:
                self.done.batches += await self.store.run(ops.remove_old_batch, batch_id, before, self._discard)
                await self.pause()
        for status in (JobStatus.DONE, JobStatus.FAILED):
            since: Any = ops.EARLIEST
            while since is not None:
                part = await self.store.run(ops.remove_old_jobs, status, before, since, self._discard)
                self.done.jobs += part.rows
                self.done.attempts += part.attempts
                self.done.events += part.events
                since = part.next
                await self.pause()
        self.done.files, self.done.file_bytes = len(self._sizes), sum(self._sizes.values())

    async def remove_rows(self, table: str, before: datetime) -> None:
        after: int | None = 0
        while after is not None:
            part = await self.store.run(ops.remove_old_rows, table, before, after)
            setattr(self.done, table, getattr(self.done, table) + part.rows)
            after = part.next
            await self.pause()

    def _discard(self, paths: Sequence[str], sources: Sequence[str]) -> None:
        for source in sources:
            put_aside(self.workspace, source)
        if not self.ages.keep_files:
            self._sizes |= remove_results(self.workspace, paths)


def remove_results(workspace: Workspace, names: Sequence[str]) -> dict[str, int]:
    """Remove result files, and folders of batches that are empty then. Returns the bytes of those that were there."""
    removed = {}
    shallowest = len(PurePosixPath(workspace.settings.paths.jobs_finished).parts) + 2
    for name in names:
        try:
            path = workspace.entry(name)
            size = path.lstat().st_size
            path.unlink()
            removed[name] = size
            if len(PurePosixPath(name).parts) > shallowest:
                with contextlib.suppress(OSError):  # others lie there
                    path.parent.rmdir()
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            log.warning("%s could not be removed: %s", name, error)
    return removed


def put_aside(workspace: Workspace, source: str) -> None:
    """Rename a job file whose job is removed, if it is in the folder of job files: it would be taken in again."""
    path = workspace.root / source
    if path.is_relative_to(workspace.processing):
        with contextlib.suppress(FileNotFoundError):
            path.replace(path.with_name(f"{path.name}{REMOVED}"))


def _size_of(workspace: Workspace, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return workspace.entry(name).lstat().st_size
    return None


def _remove_old(
    files: Sequence[Path], used_at: str, seconds: float, keep: Collection[str] = (), *, dry: bool = False
) -> tuple[int, int]:
    """Remove files that were not used for so long. Returns how many, and their bytes. Names to `keep` stay."""
    count = size = 0
    for file in files:
        with contextlib.suppress(OSError):  # another process removed it, or may
            found = file.stat()
            if file.name not in keep and file.is_file() and time.time() - getattr(found, used_at) > seconds:
                if not dry:
                    file.unlink()
                count, size = count + 1, size + found.st_size
    return count, size


@dataclass(frozen=True)
class Retention:
    """Applies the settings once an hour, by one of all agents of a database."""

    store: OperationRunner
    workspace: Workspace
    clock: Clock
    note: Note
    ages: Ages

    async def look(self) -> None:
        if not await self.store.run(ops.claim_retention, HOUR):
            return
        done = await prune(self.store, self.workspace, self.ages, self.clock.sleep, AGENTS_PAUSE)
        if done != Pruned():
            log.info("removed what was old: %s", done)
            await self.note(Event(EventName.DATABASE_PRUNED, message=str(done)))
