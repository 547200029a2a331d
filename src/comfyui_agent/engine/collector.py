"""Collecting results: download, verify, claim the paths, publish under a proved lease, and only then `done`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from errno import EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EPERM, EROFS
from pathlib import Path
from typing import Any

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.comfy.errors import OutputProblem, ServerLost
from comfyui_agent.comfy.outcomes import Succeeded
from comfyui_agent.comfy.results import ResultFile, Results
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.intake.put_away_files import FinishedFiles
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.result_names import keep_aside, stem_of, targets
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.pools import PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.operation import OperationRunner
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)

MENDED_BY_WAITING = frozenset({EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EPERM, EROFS})
PAUSE = 1.0
PUBLISHING_SECONDS = 0.5
MOST_FILES = 10_000


class Unkeepable(Exception):
    """A result cannot be kept, however often it is rendered; the message says what is in the way."""


class LostMeanwhile(Exception):
    """The server went away while its result was fetched, and came back without it."""


class ServerAway(Exception):
    """The server has not answered for longer than it is waited for."""


@dataclass
class Collector:
    """Fetches results into the workspace."""

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

    def __post_init__(self) -> None:
        self._finished = FinishedFiles(self.store, self.workspace)

    async def collect(
        self, leased: Leased, server: FleetServer, outcome: Succeeded, *, check_server: Callable[[], None]
    ) -> None:
        """Collect the result and record it. OutputProblem, FileTaken, LeaseLost, Unkeepable or LostMeanwhile.

        `check_server` is called when the server does not answer, and raises what ends the waiting.
        """
        try:
            stem = stem_of(leased, self.workspace)
        except ValueError as error:
            raise Unkeepable(str(error)) from None
        results = outcome.results
        if leased.output_node is not None:
            results = Results(tuple(file for file in results.files if file.node_id == leased.output_node))
        if len(results.kept) > MOST_FILES:
            message = f"{len(results.kept)} results, and at most {MOST_FILES} are kept: name one node as output_node"
            raise Unkeepable(message)
        outputs = None if results.kept else list[str]()
        try:
            while outputs is None:
                outputs = await self._try_to_keep(leased, server, results.kept, stem, check_server)
        finally:
            self._no_room.get(stem.parent, set()).discard(leased.lease.job_id)
        strays = await self.recorder.write(ops.complete_job, leased.lease, outputs, outcome.seconds)
        self.leases.drop(leased.lease)  # nobody takes away what is done
        if strays or leased.source is not None:
            await _finish(self._tidy(leased, strays))

    async def _try_to_keep(
        self,
        leased: Leased,
        server: FleetServer,
        results: Sequence[ResultFile],
        stem: Path,
        check_server: Callable[[], None],
    ) -> list[str] | None:
        """Fetch and name all files; their paths. None if they cannot be kept now."""
        staged: list[StagedFile] = []
        try:
            if stem.parent not in self._folders:
                stem.parent.mkdir(parents=True, exist_ok=True)
                self._folders.add(stem.parent)
            async for file in self._fetch(server, results, stem.parent, check_server):
                staged.append(file)
            paths = await self._publish(leased, staged, targets(stem, [file.kind.extension for file in staged]))
            staged.clear()
            return paths
        except OSError as error:
            problem = error
        finally:
            for file in staged:
                file.discard()
        if isinstance(problem, FileNotFoundError):  # the folder was removed, or whoever took the job over cleaned up
            self._folders.discard(stem.parent)
            await self.leases.check()
            return None
        if problem.errno not in MENDED_BY_WAITING:
            shown = self.workspace.shown(stem)
            raise Unkeepable(f"the result cannot be kept at {shown}: {problem.strerror or problem}")
        await self._report_no_room(leased, stem.parent, problem)
        await self.clock.sleep(PAUSE)
        return None

    async def _report_no_room(self, leased: Leased, folder: Path, error: OSError) -> None:
        """Alert once for all jobs that wait for the same folder, and again when it happens again."""
        waiting = self._no_room.setdefault(folder, set())
        is_news = not waiting
        waiting.add(leased.lease.job_id)
        if is_news:
            message = f"results cannot be kept in {self.workspace.shown(folder)}: {error.strerror}. Trying again"
            log.error("%s", message)
            await self.recorder.note(Event(EventName.ALERT_DISK, job_id=leased.lease.job_id, message=message))

    async def _fetch(
        self, server: FleetServer, results: Sequence[ResultFile], folder: Path, check_server: Callable[[], None]
    ) -> AsyncIterator[StagedFile]:
        """All files, one after another; through a server that goes away for a while."""
        was_away = False
        patience = self.workspace.settings.comfyui.failover_seconds
        for result in results:
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

    async def _publish(self, leased: Leased, staged: Sequence[StagedFile], paths: Sequence[Path]) -> list[str]:
        """Name the files; their paths, as they are recorded."""
        shown = [self.workspace.shown(path) for path in paths]
        for path in paths:
            try:
                self.workspace.check_result(path)
            except ValueError as error:
                raise Unkeepable(str(error)) from None
        if any(path.exists() for path in paths):
            await self._make_room(leased, paths, await self.store.run(ops.owned_files, shown))
        asked_at, until = self.clock.now(), self.leases.proved_until(leased.lease)
        renews = until - asked_at < self.leases.seconds / 2
        await self.recorder.write(ops.claim_files, leased.lease, shown, self.leases.seconds, renews=renews)
        if renews:
            until = self.leases.prove(leased.lease, asked_at)
        await _finish(PUBLISHING.run(self._publish_all, staged, paths, until))
        return shown

    def _publish_all(self, staged: Sequence[StagedFile], paths: Sequence[Path], until: float) -> None:
        for file, path in zip(staged, paths, strict=True):
            if self.clock.now() >= until:
                raise LeaseLost("the lease could have run out before the file was named")
            file.publish(path)

    async def _make_room(self, leased: Leased, paths: Sequence[Path], owned: frozenset[str]) -> None:
        """Files in the way that are no job's are kept under another name, or not touched if the job names them."""
        for path in paths:
            if path.is_dir():
                raise Unkeepable(f"{self.workspace.shown(path)} is a folder: give the job another file_path")
            if self.workspace.shown(path) not in owned and path.exists():
                await expect_result(self.store, self.workspace, leased, path)
                kept = await PUBLISHING.run(keep_aside, path)
                log.warning("%s was there already and is no job's: it is now %s", path, kept.name)

    async def _tidy(self, leased: Leased, strays: Sequence[str]) -> None:
        await self.remove(strays)
        if leased.source is not None:
            source, _ = await self.store.run(ops.file_of_job, leased.lease.job_id)  # it may have been moved meanwhile
            await self._finished.put_away(leased.lease.job_id, source or leased.source, leased.digest, leased.job_type)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files of ours that nothing refers to any more."""
        if paths:
            await self.store.run(ops.with_unowned, paths, self._unlink)

    def _unlink(self, path: str) -> None:
        try:
            self.workspace.entry(path).unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            log.warning("%s could not be removed: %s", path, error)


async def expect_result(store: OperationRunner, workspace: Workspace, leased: Leased, path: Path) -> None:
    """Unkeepable if a job names a file that is there and never was a result: it may be somebody's picture.

    Members of a batch that come from no file of their own have paths that E3 chose.
    """
    shown = workspace.shown(path)
    is_chosen = leased.file_path is not None and (leased.batch_id is None or leased.source is not None)
    if is_chosen and shown not in await store.run(ops.recorded_files, [shown]):
        raise Unkeepable(f"{shown} is there already and is no result of E3: move it, or give the job another file_path")


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Await work that is not stopped by what stops us: whoever cleans up shall find all that it leaves."""
    finishing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(finishing)
    except asyncio.CancelledError:
        await asyncio.wait({finishing}, timeout=PUBLISHING_SECONDS)
        raise
