"""The monitor: from job files in a folder to jobs in the queue. `watchfiles` says where to look at once; a slow look at
everything finds what it missed, on network drives for instance."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from typing_extensions import assert_never

from comfyui_agent.clock import SYSTEM_CLOCK, now
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.job_files import Disposition, FileVerdict, ReadFile
from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.folder_scan import (
    SETTLED_SECONDS,
    Sight,
    Unsettled,
    is_gone,
    is_watched,
    look,
    sign,
)
from comfyui_agent.engine.intake.folder_watch import NEVER_SEEN, FolderWatch, SeenFiles, Troubles
from comfyui_agent.engine.intake.put_away_files import FinishedFiles, reject_file
from comfyui_agent.pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseUnusable, StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

BAD_SECONDS = 1.0
GONE_SECONDS = 1.0
LATER_SECONDS = 0.5
FINISHED_SECONDS = (2.0, 120.0)
LONGEST_LOOK = 3600.0
TICK = 0.05
TROUBLE_PAUSE = 1.0
WITHOUT_WATCH_SECONDS = 1.0
AT_ONCE = 250


class Monitor:
    """Takes job files in, as long as it runs. Several may watch one folder."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._folder = workspace.processing
        self._leaving = threading.Event()
        self._admission = Admission(workspace, is_leaving=self._leaving.is_set)
        self._away = FinishedFiles(store, workspace)
        self._troubles = Troubles()
        self._watch = FolderWatch(self._folder, self._troubles, began=self._look_again, changed=self._see_changes)
        self._files = SeenFiles()
        self._touched: set[str] = set()
        self._folders: dict[str, tuple[int, int]] = {}
        self._wake = asyncio.Event()
        self._next_look = 0.0
        self._is_expecting = False
        self._has_looked = False
        self._identity: tuple[int, int] | None = None
        self._oddities: Collection[str] = ()
        self.taken_in = 0

    @property
    def is_idle(self) -> bool:
        """Whether every file that is there has been taken in."""
        return self._has_looked and not (self._files.waiting or self._touched)

    async def run(self, *, until_idle: bool = False) -> None:
        """Take files in until cancelled or, if asked, until all that are there have been."""
        watching = asyncio.create_task(self._watch.run())
        try:
            while True:
                await self._round()
                if until_idle and self._is_through:
                    return
                await self._pause()
        finally:
            self._leaving.set()
            await end_tasks([watching])

    @property
    def _is_through(self) -> bool:
        """Whether nothing is left but files that wait for the end of a run, which is not this loop's to bring about."""
        is_settled = all(waiting.is_later for waiting in self._files.waiting.values())
        return self._has_looked and is_settled and not self._touched and not self._files.missing

    async def _expect_pending(self) -> None:
        """Jobs that wait and whose files were deleted while nobody watched are found out by the first look."""
        if self._is_expecting:
            return
        for source in await self._store.run(ops.pending_sources):
            path = str(self._workspace.root / source)
            if path.startswith(f"{self._folder}{os.sep}"):
                self._files.known[path] = NEVER_SEEN
        self._is_expecting = True

    def _look_again(self) -> None:
        self._next_look = 0.0
        self._wake.set()

    def _see_changes(self, paths: set[str]) -> None:
        self._touched |= {path for path in paths if is_watched(path, str(self._folder))}
        self._wake.set()
        if any(os.path.isdir(path) for path in paths):  # noqa: PTH112 - a text
            self._look_again()  # a new folder may have come with files in it

    async def _pause(self) -> None:
        if self._touched:
            return
        until = min(
            [self._next_look, *(each.due for each in self._files.waiting.values())]
            + [since + GONE_SECONDS for since in self._files.missing.values()]
        )
        seconds = max(TICK if self._files.waiting else 0.0, until - now())
        await SYSTEM_CLOCK.wait_for(self._wake, seconds)
        self._wake.clear()

    async def _round(self) -> None:
        try:
            await self._expect_pending()
            if now() >= self._next_look:
                self._touched.clear()  # what is touched from here on is looked at again
                self._next_look = now() + LONGEST_LOOK
                self._see_all(await INTAKE.run(look, self._folder))
                await self.put_away_finished(FINISHED_SECONDS)
            elif self._touched:
                touched, self._touched = self._touched, set()
                self._files.see(await INTAKE.run(lambda: {path: sign(path) for path in sorted(touched)}))
            await self._take_ready()
            await self._let_go_of_missing()
            self._troubles.clear("database", "files")
        except DatabaseUnusable:
            raise
        except StoreError as error:
            self._troubles.report("database", str(error))
            await asyncio.sleep(TROUBLE_PAUSE)
        except OSError as error:
            self._troubles.report("files", f"job files cannot be taken in: {error}")
            await asyncio.sleep(TROUBLE_PAUSE)

    def _see_all(self, sight: Sight) -> None:
        self._has_looked = True
        self._identity = self._identity or sight.folders.get(str(self._folder))
        longest = LONGEST_LOOK if self._watch.works else WITHOUT_WATCH_SECONDS
        self._next_look = min(self._next_look, now() + min(self._workspace.settings.rescan_seconds, longest))
        if sight.folders != self._folders:
            self._folders = sight.folders
            self._watch.watch(list(self._folders))
        self._troubles.clear(*(path for path in self._oddities if path not in sight.oddities))
        self._oddities = sight.oddities
        for path, trouble in sight.oddities.items():
            self._troubles.report(path, f"{self._workspace.job_file(Path(path))!r}: {trouble}")
        unseen = tuple(f"{path}{os.sep}" for path in sight.oddities)
        self._files.see_all(sight.files, lambda path: path.startswith(unseen))

    async def _let_go_of_missing(self) -> None:
        """Files that are gone for good: jobs that still wait are cancelled. A drive that went away is no such thing."""
        due = [path for path, since in self._files.missing.items() if now() - since >= GONE_SECONDS]
        if not due:
            return
        gone = [path for path in due if is_gone(path)]
        identity = _identity_of(self._folder)
        if identity is None or (self._identity is not None and identity != self._identity):
            message = f"{self._folder} is gone or was replaced: the jobs whose files were there go on waiting"
            self._troubles.report("folder", message)
        else:
            self._troubles.clear("folder")
            sources = [self._workspace.job_file(Path(path)) for path in gone]
            for name in await self._store.run(ops.cancel_deleted, sources):
                log.info("%s: its file was deleted, it is cancelled", name)
        for path in due:
            self._files.missing.pop(path, None)
        for path in gone:
            self._files.known.pop(path, None)
        self._identity = identity or self._identity

    async def put_away_finished(self, seconds: tuple[float, float] = (0.0, 120.0)) -> None:
        """Move the files of jobs that were done so many seconds ago: the agent that should have was killed."""
        for source, digest, job_type in await self._store.run(ops.finished_files, seconds):
            if str(self._workspace.root / source) in self._files.known:
                await self._away.put_away(None, source, digest, job_type)

    async def _take_ready(self) -> None:
        ready = self._files.ready()
        if not ready:
            return
        ready.sort(key=lambda path: natural_key(os.path.basename(path)))  # noqa: PTH119 - a text, thousands of times
        try:
            await INTAKE.run(self._admission.workflows.refresh)
            self._troubles.clear("workflows")
        except Complaints as error:
            self._troubles.report("workflows", f"{error}. What it said before still counts")
        read: dict[str, ReadFile] = {}
        for paths in (*_portions(ready), []):
            reading = asyncio.ensure_future(INTAKE.run(self._read_all, paths))  # while the last ones are written down
            try:
                await self._file(read)
            except asyncio.CancelledError:
                self._leaving.set()
                raise
            finally:
                read = await reading

    async def _file(self, read: dict[str, ReadFile]) -> None:
        files = {}
        for path, filed in read.items():
            waiting = self._files.waiting.get(path)
            if waiting is None:
                continue
            if filed.problem and now() - waiting.since < BAD_SECONDS:
                waiting.due = waiting.since + BAD_SECONDS
            else:
                files[path] = filed
        dispositions = await self._store.run(ops.file_jobs, list(files.values())) if files else []
        for (path, filed), disposition in zip(files.items(), dispositions, strict=True):
            if await self._follow(path, filed, disposition):
                self._files.known[path] = self._files.waiting.pop(path).signature

    def _read_all(self, paths: Sequence[str]) -> dict[str, ReadFile]:
        read = {}
        for path in paths:
            waiting = self._files.waiting.get(path)
            if waiting is None:
                continue
            if self._leaving.is_set():
                break
            try:
                read[path] = self._admission.read(Path(path), waiting.signature)
                self._troubles.clear(path)
            except Unsettled:
                self._touched.add(path)
                waiting.put_off(SETTLED_SECONDS)
            except OSError as error:  # no room for a picture that is to be kept, or the like
                self._troubles.report(path, f"{self._workspace.job_file(Path(path))} cannot be taken in yet: {error}")
                waiting.put_off(TROUBLE_PAUSE)
        return read

    async def _follow(self, path: str, filed: ReadFile, disposition: Disposition) -> bool:
        """Do what was decided. False if the file is to be looked at again."""
        name, other = filed.job.config_name, disposition.other_source
        match disposition.verdict:
            case FileVerdict.ACCEPTED | FileVerdict.UPDATED | FileVerdict.RESUBMITTED:
                self.taken_in += 1
                reason = f", {disposition.reason}" if disposition.reason else ""
                log.info("%s: %s%s", name, disposition.verdict.value, reason)
            case FileVerdict.LATER:
                self._files.waiting[path].put_off(LATER_SECONDS)
                self._files.waiting[path].is_later = True
                return False
            case FileVerdict.TAKEN:
                if other is not None and is_gone(str(self._workspace.root / other)):
                    # It was renamed: the job of the old name is about to be cancelled.
                    self._files.waiting[path].put_off(LATER_SECONDS)
                    return False
                [failed] = await self._store.run(ops.file_jobs, [replace(filed, insists=True)])
                return await self._follow(path, filed, failed)
            case FileVerdict.FINISHED:
                await self._store.run(ops.note_file_repeated, name)
                log.info("%s: it is done already, and its file came again with the same bytes: it is put away", name)
                await self._away.put_away(None, filed.job.source or "", filed.job.digest, filed.job.job_type)
            case FileVerdict.ELSEWHERE:
                if other is not None and not (self._workspace.root / other).exists():
                    [moved] = await self._store.run(ops.file_jobs, [replace(filed, is_moved=True)])
                    return await self._follow(path, filed, moved)
                await self._reject(path, disposition.reason)
            case FileVerdict.REJECTED:
                await self._reject(path, disposition.reason)
            case FileVerdict.UNCHANGED:
                pass
            case _:
                assert_never(disposition.verdict)
        return True

    async def _reject(self, path: str, reason: str) -> None:
        try:
            await reject_file(self._store, self._workspace, Path(path), reason)
            self._troubles.clear(path)
        except OSError as error:
            self._troubles.report(path, f"{path} could not be renamed: {error.strerror}")


def _identity_of(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _portions(paths: Sequence[str]) -> Iterator[list[str]]:
    """Some at a time, no name twice in one portion."""
    portion: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)  # noqa: PTH119 - a text, thousands of times
        if name in portion or len(portion) >= AT_ONCE:
            yield list(portion.values())
            portion = {}
        portion[name] = path
    if portion:
        yield list(portion.values())
