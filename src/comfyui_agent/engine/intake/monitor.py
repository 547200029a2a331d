"""The monitor: from job files in a folder to jobs in the queue.

`watchfiles` says where to look at once; a slow look at everything finds what it missed, on network drives for instance.
A file is whole when it was left alone for a moment; a bad one is given a little longer before it is called bad.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from comfyui_agent.clock import SYSTEM_CLOCK, now
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.job_files import Disposition, FileVerdict, ReadFile
from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.finished_files import FinishedFiles
from comfyui_agent.engine.intake.folder_scan import (
    REJECTED,
    SETTLED_SECONDS,
    Sight,
    Signature,
    Unsettled,
    is_gone,
    is_watched,
    look,
    sign,
)
from comfyui_agent.engine.result_names import keep_aside
from comfyui_agent.engine.thread_pools import INTAKE
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
DEBOUNCE_MS, STEP_MS = 100, 20


@dataclass
class _Waiting:
    """A file that may still be written."""

    signature: Signature
    since: float
    due: float
    is_later: bool = False


class Monitor:
    """Takes job files in, as long as it runs. Several may watch one folder."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._folder = workspace.processing
        self._leaving = threading.Event()
        self._admission = Admission(workspace, is_leaving=self._leaving.is_set)
        self._away = FinishedFiles(store, workspace)
        self._known: dict[str, Signature] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._missing: dict[str, float] = {}
        self._touched: set[str] = set()
        self._folders: dict[str, tuple[int, int]] = {}
        self._rewatch = asyncio.Event()
        self._wake = asyncio.Event()
        self._next_look = 0.0
        self._has_looked = False
        self._watch_works = True
        self._identity: tuple[int, int] | None = None
        self._troubles: dict[str, str] = {}
        """What was last reported about each subject that is in trouble now."""
        self._oddities: Collection[str] = ()
        self.taken_in = 0

    @property
    def is_idle(self) -> bool:
        """Whether every file that is there has been taken in."""
        return self._has_looked and not (self._waiting or self._touched)

    async def run(self, *, until_idle: bool = False) -> None:
        """Take files in until cancelled or, if asked, until all that are there have been."""
        watching = asyncio.create_task(self._watch())
        try:
            await self._expect_pending()
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
        is_settled = all(waiting.is_later for waiting in self._waiting.values())
        return self._has_looked and is_settled and not self._touched and not self._missing

    async def _expect_pending(self) -> None:
        """Jobs that wait and whose files were deleted while nobody watched are found out by the first look."""
        while True:
            try:
                sources = await self._store.run(ops.pending_sources)
                break
            except DatabaseUnusable:
                raise
            except StoreError as error:
                self._report("database", str(error))
                await asyncio.sleep(TROUBLE_PAUSE)
        for source in sources:
            path = str(self._workspace.root / source)
            if path.startswith(f"{self._folder}{os.sep}"):
                self._known[path] = (0, 0, 0, 0)

    async def _watch(self) -> None:
        """Note what is touched. Where this does not work, the looks at everything come more often.

        Each folder is watched by itself: watching a tree would follow links out of it.
        """
        from watchfiles import awatch

        while True:
            self._rewatch.clear()
            asyncio.get_running_loop().call_soon(self._look_again)  # for what happened between two watches
            try:
                async for changes in awatch(
                    *(self._folders or [str(self._folder)]),
                    watch_filter=None,
                    debounce=DEBOUNCE_MS,
                    step=STEP_MS,
                    recursive=False,
                    stop_event=self._rewatch,
                    ignore_permission_denied=True,
                ):
                    self._watch_works = True
                    self._clear("watch")
                    self._hear({path for _, path in changes})
            except Exception as error:  # noqa: BLE001 - whatever is wrong with watching, looking still works
                self._watch_works = False
                self._report("watch", f"{self._folder} cannot be watched, so it is looked at every second: {error}")
            if not self._rewatch.is_set():
                await asyncio.sleep(TROUBLE_PAUSE)

    def _look_again(self) -> None:
        self._next_look = 0.0
        self._wake.set()

    def _hear(self, paths: set[str]) -> None:
        job_files = {path for path in paths if is_watched(path, str(self._folder))}
        self._touched |= job_files
        self._wake.set()
        if any(os.path.isdir(path) for path in paths):  # noqa: PTH112 - a text
            self._look_again()  # a new folder may have come with files in it

    async def _pause(self) -> None:
        if self._touched:
            return
        until = min(
            [self._next_look, *(each.due for each in self._waiting.values())]
            + [since + GONE_SECONDS for since in self._missing.values()]
        )
        seconds = max(TICK if self._waiting else 0.0, until - now())
        await SYSTEM_CLOCK.wait_for(self._wake, seconds)
        self._wake.clear()

    async def _round(self) -> None:
        try:
            if now() >= self._next_look:
                self._touched.clear()  # what is touched from here on is looked at again
                self._next_look = now() + LONGEST_LOOK
                self._see_all(await INTAKE.run(look, self._folder))
                await self.put_away_finished(FINISHED_SECONDS)
            elif self._touched:
                touched, self._touched = self._touched, set()
                self._see(await INTAKE.run(_sign_all, sorted(touched)))
            await self._take_ready()
            await self._let_go_of_missing()
            self._clear("database", "files")
        except DatabaseUnusable:
            raise
        except StoreError as error:
            self._report("database", str(error))
            await asyncio.sleep(TROUBLE_PAUSE)
        except OSError as error:
            self._report("files", f"job files cannot be taken in: {error}")
            await asyncio.sleep(TROUBLE_PAUSE)

    # What is there.

    def _see_all(self, sight: Sight) -> None:
        self._has_looked = True
        pause = self._workspace.settings.rescan_seconds
        self._next_look = min(
            self._next_look, now() + (pause if self._watch_works else min(pause, WITHOUT_WATCH_SECONDS))
        )
        if sight.folders != self._folders:
            self._folders = sight.folders
            self._rewatch.set()
        self._clear(*(path for path in self._oddities if path not in sight.oddities))
        self._oddities = sight.oddities
        for path, trouble in sight.oddities.items():
            self._report(path, f"{self._workspace.job_file(Path(path))!r}: {trouble}")
        self._see(sight.files)
        unseen = tuple(f"{path}{os.sep}" for path in sight.oddities)
        for path in self._known.keys() | self._waiting.keys():
            if path not in sight.files and not path.startswith(unseen):
                self._miss(path)

    def _see(self, found: dict[str, Signature | None] | dict[str, Signature]) -> None:
        moment, time_of_day = now(), time.time()
        for path, signature in found.items():
            if signature is None:
                self._miss(path)
                continue
            self._missing.pop(path, None)
            waiting = self._waiting.get(path)
            if self._known.get(path) == signature or (waiting and waiting.signature == signature):
                continue
            # What was written a while ago and is seen now was moved here.
            since = moment - max(0.0, time_of_day - signature[0] / 1e9)
            self._waiting[path] = _Waiting(signature, since, since + SETTLED_SECONDS)

    def _miss(self, path: str) -> None:
        self._waiting.pop(path, None)
        if path in self._known:
            self._missing.setdefault(path, now())

    async def _let_go_of_missing(self) -> None:
        """Files that are gone for good: jobs that still wait are cancelled. A drive that went away is no such thing."""
        due = [path for path, since in self._missing.items() if now() - since >= GONE_SECONDS]
        if not due:
            return
        gone = [path for path in due if is_gone(path)]
        identity = _identity_of(self._folder)
        if identity is None or (self._identity is not None and identity != self._identity):
            words = f"{self._folder} is gone or was replaced: the jobs whose files were there go on waiting"
            self._report("folder", words)
        else:
            self._clear("folder")
            sources = [self._workspace.job_file(Path(path)) for path in gone]
            for name in await self._store.run(ops.cancel_deleted, sources):
                log.info("%s: its file was deleted, it is cancelled", name)
        for path in due:
            self._missing.pop(path, None)
        for path in gone:
            self._known.pop(path, None)
        self._identity = identity or self._identity

    async def put_away_finished(self, seconds: tuple[float, float] = (0.0, 120.0)) -> None:
        """Files whose jobs were done so many seconds ago and which nobody has moved: whoever should have was killed."""
        for source, digest, job_type in await self._store.run(ops.finished_files, seconds):
            if str(self._workspace.root / source) in self._known:
                await self._away.put_away(None, source, digest, job_type)

    # Taking in.

    async def _take_ready(self) -> None:
        if self._identity is None:
            self._identity = _identity_of(self._folder)
        moment = now()
        ready = [path for path, waiting in self._waiting.items() if waiting.due <= moment]
        if not ready:
            return
        ready.sort(key=lambda path: natural_key(os.path.basename(path)))  # noqa: PTH119 - a text, thousands of times
        try:
            await INTAKE.run(self._admission.refresh)
            self._clear("workflows")
        except Complaints as error:
            self._report("workflows", f"{error}. What it said before still counts")
        portions = _portions(ready)
        reading = self._start_reading(next(portions, None))
        while reading is not None:
            read = await reading
            reading = self._start_reading(next(portions, None))  # while what was read is being written down
            try:
                await self._file(read)
            except asyncio.CancelledError:
                self._leaving.set()
                raise
            except BaseException:
                if reading is not None:
                    await asyncio.gather(reading, return_exceptions=True)
                raise

    def _start_reading(self, paths: list[str] | None) -> asyncio.Future[dict[str, ReadFile]] | None:
        return None if paths is None else asyncio.ensure_future(INTAKE.run(self._read_all, paths))

    async def _file(self, read: dict[str, ReadFile]) -> None:
        files = {}
        for path, filed in read.items():
            waiting = self._waiting.get(path)
            if waiting is None:
                continue
            if filed.problem and now() - waiting.since < BAD_SECONDS:
                waiting.due = waiting.since + BAD_SECONDS
            else:
                files[path] = filed
        rulings = await self._store.run(ops.file_jobs, list(files.values())) if files else []
        for (path, filed), ruling in zip(files.items(), rulings, strict=True):
            if await self._follow(path, filed, ruling):
                self._known[path] = self._waiting.pop(path).signature

    def _read_all(self, paths: Sequence[str]) -> dict[str, ReadFile]:
        read = {}
        for path in paths:
            waiting = self._waiting.get(path)
            if waiting is None:
                continue
            if self._leaving.is_set():
                break
            try:
                read[path] = self._admission.read(Path(path), waiting.signature)
                self._clear(path)
            except Unsettled:
                self._touched.add(path)
                waiting.due = now() + SETTLED_SECONDS
            except OSError as error:  # no room for a picture that is to be kept, or the like
                self._report(path, f"{self._workspace.job_file(Path(path))} cannot be taken in yet: {error}")
                waiting.due = now() + TROUBLE_PAUSE
        return read

    async def _follow(self, path: str, filed: ReadFile, ruling: Disposition) -> bool:
        """Do what was ruled; False if the file is to be looked at again."""
        name = filed.job.config_name
        match ruling.verdict:
            case FileVerdict.ACCEPTED | FileVerdict.UPDATED | FileVerdict.RESUBMITTED:
                self.taken_in += 1
                log.info("%s: %s%s", name, ruling.verdict.value, f", {ruling.reason}" if ruling.reason else "")
            case FileVerdict.LATER:
                self._waiting[path].due = now() + LATER_SECONDS
                self._waiting[path].is_later = True
                return False
            case FileVerdict.TAKEN:
                if ruling.other_source is not None and is_gone(str(self._workspace.root / ruling.other_source)):
                    # It was renamed: the job of the old name is about to be cancelled.
                    self._waiting[path].due = now() + LATER_SECONDS
                    return False
                [failed] = await self._store.run(ops.file_jobs, [replace(filed, insists=True)])
                return await self._follow(path, filed, failed)
            case FileVerdict.FINISHED:
                await self._store.run(ops.note_file_repeated, name)
                log.info("%s: it is done already, and its file came again with the same bytes: it is put away", name)
                await self._away.put_away(None, filed.job.source or "", filed.job.digest, filed.job.job_type)
            case FileVerdict.ELSEWHERE:
                if ruling.other_source is not None and not (self._workspace.root / ruling.other_source).exists():
                    moved = await self._store.run(ops.file_jobs, [replace(filed, is_moved=True)])
                    return await self._follow(path, filed, moved[0])
                await self._reject(path, ruling.reason)
            case FileVerdict.REJECTED:
                await self._reject(path, ruling.reason)
            case FileVerdict.UNCHANGED:
                pass
        return True

    async def _reject(self, path: str, reason: str) -> None:
        """Rename a file that cannot be taken. Why is written down first."""
        target = Path(f"{path}{REJECTED}")
        try:
            kept = await INTAKE.run(_make_room, Path(path), target)
            kept_as = None if kept is None else self._workspace.job_file(kept)
            await self._store.run(ops.reject_file, self._workspace.job_file(target), reason, kept_as)
            log.warning("%s is now %s: %s", self._workspace.job_file(Path(path)), target.name, reason)
            await INTAKE.run(_set_aside, Path(path), target)
            self._clear(path)
        except OSError as error:
            self._report(path, f"{path} could not be renamed: {error.strerror}")

    def _report(self, subject: str, words: str) -> None:
        """Log a trouble once, and again when it comes back after it was over."""
        if self._troubles.get(subject) != words:
            self._troubles[subject] = words
            log.error("%s", words)

    def _clear(self, *subjects: str) -> None:
        """These subjects are in no trouble any more."""
        for subject in subjects:
            self._troubles.pop(subject, None)


def _make_room(path: Path, target: Path) -> Path | None:
    """Give a file that was rejected before another name; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return None if target.samefile(path) else keep_aside(target)
    return None


def _set_aside(path: Path, target: Path) -> None:
    """Rename a file and overwrite nothing; another monitor may be doing the same."""
    while path.exists():
        try:
            os.link(path, target)
            break
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if target.samefile(path):
                    break
                keep_aside(target)
        except FileNotFoundError:
            return
        except OSError:  # a drive that knows no second names
            path.rename(target)
            return
    path.unlink(missing_ok=True)


def _sign_all(paths: Sequence[str]) -> dict[str, Signature | None]:
    return {path: sign(path) for path in paths}


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
