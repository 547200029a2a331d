"""Collecting results: download, verify, claim the paths, publish under a proved lease, and only then `done`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from errno import EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EPERM, EROFS
from functools import partial
from pathlib import Path
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.comfy.errors import OutputProblem, ServerLost
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.comfy.results import ResultFile, Results
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.engine.early_downloads import EarlyDownloads
from comfyui_agent.engine.intake.put_away_files import FinishedFiles
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.result_names import fence_mark, stem_of, targets
from comfyui_agent.files.connect import existing_files, open_files
from comfyui_agent.files.port import Files
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.pools import OBJECTS, PUBLISHING, Pool
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import FileTaken, LeaseLost
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Digest, Leased

log = logging.getLogger(__name__)

MENDED_BY_WAITING = frozenset({EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EPERM, EROFS})
PAUSE = 1.0
PUBLISHING_SECONDS = 0.5
MOST_FILES = 10_000


Fetch = Callable[[Path], AsyncIterator[StagedFile]]
"""Brings all files of a result into a folder."""
Complete = Callable[[list[str]], Awaitable[list[str]]]
"""Records paths as the result of a job. Returns files that nothing refers to any more."""


class Unkeepable(Exception):
    """A result cannot be kept, however often it is rendered; the message says what is in the way."""


class LostMeanwhile(Exception):
    """The server went away while its result was fetched, and came back without it."""


class ServerAway(Exception):
    """The server has not answered for longer than it is waited for."""


@dataclass(frozen=True)
class Haul:
    """The result of one run on its way to where it is kept."""

    stem: Path
    files: Files
    staged: list[StagedFile]
    claimed: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    """Names that the job had not claimed before: what is there is somebody else's."""
    published: list[str] = field(default_factory=list)

    @property
    def pool(self) -> Pool:
        return OBJECTS if self.files.is_remote else PUBLISHING

    def discard(self) -> None:
        while self.staged:
            self.staged.pop().discard()


@dataclass
class Collector:
    """Fetches results to where they are kept."""

    store: OperationRunner
    workspace: Workspace
    leases: Leases
    recorder: Recorder
    clock: Clock
    worker: str
    _no_room: dict[Path, set[int]] = field(default_factory=dict, init=False)
    """The jobs that wait until results can be kept in a folder."""
    _folders: set[Path] = field(default_factory=set, init=False)
    """Folders that are there, as far as is known."""

    _late: list[tuple[asyncio.Future[None], list[str]]] = field(default_factory=list, init=False)
    """Uploads that go on although their run was dropped, and the names of their objects."""

    def __post_init__(self) -> None:
        self._finished = FinishedFiles(self.store, self.workspace)

    def begin_early(self, leased: Leased, server: FleetServer, heard: Results, early: EarlyDownloads) -> None:
        """Begin to fetch what a prompt that has succeeded is heard to have made."""
        with contextlib.suppress(ValueError, OSError):  # said when it is collected
            stem = stem_of(leased, self.workspace)
            folder = open_files(self.workspace.results, self.workspace.shown(stem)).staging(stem.parent)
            self._make(folder)
            early.begin(_wanted(leased, heard), lambda file: server.client.download(file, folder, owner=self.worker))

    async def collect(
        self,
        leased: Leased,
        server: FleetServer,
        outcome: Succeeded,
        early: EarlyDownloads,
        check_server: Callable[[], None],
    ) -> None:
        """Collect the result and record it. OutputProblem, FileTaken, LeaseLost, Unkeepable or LostMeanwhile.

        `check_server` is called when the server does not answer, and raises what ends the waiting.
        """
        try:
            stem = stem_of(leased, self.workspace)
        except ValueError as error:
            raise Unkeepable(str(error)) from None
        results = _wanted(leased, outcome.results)
        if len(results) > MOST_FILES:
            message = f"{len(results)} results, and at most {MOST_FILES} are kept: name one node as output_node"
            raise Unkeepable(message)
        fetch = partial(self._fetch, server, results, early=early, check_server=check_server)
        await self._keep(
            leased,
            self._haul(stem, []),
            len(results),
            fetch,
            lambda outputs: self.recorder.write(
                ops.complete_job, leased.lease, outputs, outcome.seconds, is_cached=outcome.is_cached
            ),
        )

    async def take_over(self, leased: Leased, copies: list[StagedFile], origin: JobId) -> None:
        """Keep copies of the recorded result of another job. FileTaken, LeaseLost, Unkeepable or LostMeanwhile."""
        await self._keep(
            leased,
            self._haul(stem_of(leased, self.workspace), copies),
            len(copies),
            _no_more,
            lambda outputs: self.recorder.write(ops.complete_reused, leased.lease, outputs, origin),
        )

    def _haul(self, stem: Path, staged: list[StagedFile]) -> Haul:
        return Haul(stem, open_files(self.workspace.results, self.workspace.shown(stem)), staged)

    async def _keep(self, leased: Leased, haul: Haul, count: int, fetch: Fetch, complete: Complete) -> None:
        """Fetch and publish so many files, and record them as the result."""
        outputs = None if count else list[str]()
        try:
            while outputs is None:
                outputs = await self._try_to_keep(leased, count, haul, fetch)
            strays = await complete(outputs)
        except LeaseLost:
            if haul.files.is_remote:  # they may have arrived after whoever took the job over had cleaned up
                await self.remove(haul.published)
            raise
        finally:
            haul.discard()
            self._no_room.get(haul.stem.parent, set()).discard(leased.lease.job_id)
        self.leases.drop(leased.lease)  # nobody takes away what is done
        if strays or leased.job_file is not None:
            await _finish(self._tidy(leased, strays))

    async def _try_to_keep(self, leased: Leased, count: int, haul: Haul, fetch: Fetch) -> list[str] | None:
        """Fetch and name all files; their paths. None if they cannot be kept now."""
        stem, folder = haul.stem, haul.files.staging(haul.stem.parent)
        try:
            if len(haul.staged) < count:
                haul.discard()
                self._make(folder)
                async for file in fetch(folder):
                    haul.staged.append(file)
            return await self._publish(leased, haul)
        except OSError as error:
            problem = error
        if isinstance(problem, FileNotFoundError):  # the folder was removed, or whoever took the job over cleaned up
            haul.discard()
            self._folders.discard(folder)
            await self.leases.check()
            return None
        if not haul.files.is_remote:  # it takes room on the disk that is full
            haul.discard()
        if problem.errno not in MENDED_BY_WAITING:
            shown = self.workspace.whereabouts(self.workspace.shown(stem))
            raise Unkeepable(f"the result cannot be kept at {shown}: {problem.strerror or problem}")
        await self._report_no_room(leased, stem.parent, problem)
        await self.clock.sleep(PAUSE)
        return None

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)

    async def _report_no_room(self, leased: Leased, folder: Path, error: OSError) -> None:
        """Alert once for all jobs that wait for the same folder, and again when it happens again."""
        waiting = self._no_room.setdefault(folder, set())
        is_news = not waiting
        waiting.add(leased.lease.job_id)
        if is_news:
            place = self.workspace.whereabouts(self.workspace.shown(folder))
            message = f"results cannot be kept in {place}: {error.strerror}. Trying again"
            log.error("%s", message)
            await self.recorder.note(Event(EventName.ALERT_DISK, job_id=leased.lease.job_id, message=message))

    async def _fetch(
        self,
        server: FleetServer,
        results: Sequence[ResultFile],
        folder: Path,
        *,
        early: EarlyDownloads,
        check_server: Callable[[], None],
    ) -> AsyncIterator[StagedFile]:
        """All files, one after another; through a server that goes away for a while."""
        was_away = False
        patience = self.workspace.settings.comfyui.failover_seconds
        for result in results:
            if (file := await early.take(result)) is not None:
                yield file
                continue
            failing_since: float | None = None
            while True:
                try:
                    yield await server.client.download(result, folder, owner=self.worker)
                    break
                except ServerLost as error:
                    was_away = True
                    log.warning("fetching %s: %s", result.filename, error)
                    check_server()
                    failing_since = (failing_since or self.clock.now()) if server.health is Health.UP else None
                    if failing_since is not None and server.answered_at - failing_since > patience:
                        raise OutputProblem(f"{result.filename} cannot be fetched: {error.message}") from None
                    await self.clock.sleep(PAUSE)
                except OutputProblem:
                    if was_away:
                        raise LostMeanwhile from None
                    raise

    async def _publish(self, leased: Leased, haul: Haul) -> list[str] | None:
        """Name the files; their paths, as they are recorded. None to try again.

        Names that E3 chooses are the plain ones, unless one of them is taken.
        """
        try:
            return await self._publish_as(leased, haul, is_plain=not leased.take)
        except FileTaken:
            if leased.take or leased.file_path is not None:
                raise
        return await self._publish_as(leased, haul, is_plain=False)

    async def _publish_as(self, leased: Leased, haul: Haul, *, is_plain: bool) -> list[str] | None:
        extensions = [file.kind.extension for file in haul.staged]
        if haul.files.is_remote:
            are_fenced = await haul.pool.run(lambda: [haul.files.is_fenced(file.size) for file in haul.staged])
            mark = fence_mark(leased.lease.fence)
            extensions = [mark * is_fenced + each for each, is_fenced in zip(extensions, are_fenced, strict=True)]
        paths = targets(haul.stem, extensions) if is_plain else await self._free_names(leased, haul.stem, extensions)
        shown = [self.workspace.shown(path) for path in paths]
        for path in paths:
            try:
                self.workspace.check_result(path)
            except ValueError as error:
                raise Unkeepable(str(error)) from None
        if haul.files.is_remote:
            existing = await haul.pool.run(existing_files, haul.files, shown)
        else:
            existing = [name for name, path in zip(shown, paths, strict=True) if path.exists()]
        if existing:
            await self._make_room(leased, haul, existing, await self.store.run(ops.owned_files, existing))
        asked_at, until = self.clock.now(), self.leases.proved_until(leased.lease)
        renews = until - asked_at < self.leases.seconds / 2
        digests = {name: Digest(file.sha256, file.size) for name, file in zip(shown, haul.staged, strict=True)}
        claims = (leased.lease, shown, self.leases.seconds, digests)
        had = await self.recorder.write(ops.claim_files, *claims, renews=renews)
        if renews:
            until = self.leases.prove(leased.lease, asked_at)
        haul.new.update(set(shown) - set(had) - haul.claimed)
        haul.claimed.update(shown)
        sources = {name: file.path for name, file in zip(shown, haul.staged, strict=True)}
        publishing = asyncio.ensure_future(haul.pool.run(self._publish_all, leased, haul, sources, until))
        try:
            await _finish(publishing)
        except asyncio.CancelledError:
            if haul.files.is_remote:
                self._late.append((publishing, haul.published))
                publishing.add_done_callback(_ignore)
            raise
        except FileExistsError as error:  # since a moment ago
            await self._keep_aside(haul, str(error.filename))
            return None
        return shown

    async def _free_names(self, leased: Leased, stem: Path, extensions: Sequence[str]) -> list[Path]:
        """Names that E3 chooses: neither those of the job's other takes, nor those that another job or a grid has."""
        takes = await self.recorder.write(ops.list_takes, leased.lease.job_id) if leased.take else []
        taken = [path for take in takes for path in take.outputs]
        while True:
            paths = targets(stem, extensions, taken)
            shown = [self.workspace.shown(path) for path in paths]
            others = await self.recorder.write(ops.names_of_others, leased.lease.job_id, shown)
            if not others:
                return paths
            taken += others

    def _publish_all(self, leased: Leased, haul: Haul, sources: Mapping[str, Path], until: float) -> None:
        for name, source in sources.items():
            if haul.files.is_remote:  # the files before may have taken long, and the lease was renewed meanwhile
                until = max(until, self.leases.proved_until(leased.lease))
            if self.clock.now() >= until:
                raise LeaseLost("the lease could have run out before the file was named")
            haul.files.publish(source, name, replaces=name not in haul.new)
            haul.published.append(name)

    async def _make_room(self, leased: Leased, haul: Haul, names: Sequence[str], owned: frozenset[str]) -> None:
        """Files in the way that are no job's are kept under another name, or not touched if the job names them.

        This comes before the names are claimed: what a job has claimed is removed if it fails."""
        for name in names:
            if (self.workspace.results.folder / name).is_dir():
                raise Unkeepable(f"{name} is a folder: give the job another file_path")
            if name not in owned:
                await expect_result(self.store, leased, name)
                await self._keep_aside(haul, name)

    async def _keep_aside(self, haul: Haul, name: str) -> None:
        kept = await haul.pool.run(haul.files.keep_aside, name)
        log.warning("%s was there already and is no job's: it is now %s", name, kept)

    async def _tidy(self, leased: Leased, strays: Sequence[str]) -> None:
        await self.remove(strays)
        if leased.job_file is not None:
            source, _ = await self.store.run(ops.file_of_job, leased.lease.job_id)  # it may have been moved meanwhile
            await self._finished.put_away(
                leased.lease.job_id, source or leased.job_file, leased.digest, leased.job_type
            )

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files of ours that nothing refers to any more, and what was uploaded too late.

        What cannot be removed now, or was left by an agent that died, is on record: a later round removes it.
        """
        late = [each for each in self._late if each[0].done()]
        strays = [*paths, *(name for _, names in late for name in names), *await self.store.run(ops.list_strays)]
        if strays and await self._answers(strays[0]):
            self._late = [each for each in self._late if each not in late]
            await self.store.run(ops.with_unowned, list(dict.fromkeys(strays)), self._unlink)

    async def _answers(self, path: str) -> bool:
        """Whether files can be removed now. A store that is away is not waited for in a transaction."""
        files = open_files(self.workspace.results, path)
        try:
            if files.is_remote:
                await OBJECTS.run(files.exists, path)
        except OSError as error:
            log.info("%s could not be removed yet: %s", path, error.strerror)
            return False
        return True

    def _unlink(self, path: str) -> bool:
        try:
            files = open_files(self.workspace.results, path)
            files.remove(path if files.is_remote else str(self.workspace.entry(path)))
        except ValueError as error:
            log.warning("%s cannot be removed: %s", path, error)
        except OSError as error:
            log.warning("%s could not be removed yet: %s", path, error)
            return False
        return True


def _wanted(leased: Leased, results: Results) -> tuple[ResultFile, ...]:
    """The files that are the result of a job."""
    if leased.output_node is not None:
        results = Results(tuple(file for file in results.files if file.node_id == leased.output_node))
    return results.kept


async def expect_result(store: OperationRunner, leased: Leased, shown: str) -> None:
    """Unkeepable if a job names a file that is there and never was a result: it may be somebody's picture.

    Members of a batch that come from no file of their own have paths that E3 chose.
    """
    is_chosen = leased.file_path is not None and (leased.batch_id is None or leased.job_file is not None)
    if is_chosen and shown not in await store.run(ops.recorded_files, [shown]):
        raise Unkeepable(f"{shown} is there already and is no result of E3: move it, or give the job another file_path")


def _no_more(_: Path) -> AsyncIterator[StagedFile]:
    """Copies that were lost are not made again here."""
    raise LostMeanwhile


def _ignore(late: asyncio.Future[None]) -> None:
    """Look at an error that nobody waits for: the job is another's."""
    if not late.cancelled():
        late.exception()


async def _finish(work: Coroutine[Any, Any, None] | asyncio.Future[None]) -> None:
    """Await work that is not stopped by what stops us: whoever cleans up shall find all that it leaves."""
    finishing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(finishing)
    except asyncio.CancelledError:
        await asyncio.wait({finishing}, timeout=PUBLISHING_SECONDS)
        raise
