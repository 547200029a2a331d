"""The store: every question and every transition, each in one transaction."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.batches import Batch, BatchKind, NewBatch
from comfyui_agent.domain.bursts import Item, ItemRequest, ItemStatus, Pick
from comfyui_agent.domain.events import Event
from comfyui_agent.domain.failures import Failure
from comfyui_agent.domain.idempotency import Beginning
from comfyui_agent.domain.job_files import Disposition, ReadFile
from comfyui_agent.domain.jobs import Job, JobId, NewJob, Template
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.server_states import LostServer, ServerInState, ServerState, StuckPrompt
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.tokens import Role, Token
from comfyui_agent.store import (
    batches,
    bursts,
    event_log,
    gauges,
    grid_files,
    idempotency,
    job_commands,
    job_files,
    job_pages,
    job_queries,
    leases,
    members,
    names,
    outcomes,
    overview,
    recovery,
    server_states,
    tokens,
)
from comfyui_agent.store.gauges import Gauges
from comfyui_agent.store.job_pages import BatchPage, JobFilter, JobPage
from comfyui_agent.store.overview import Overview
from comfyui_agent.store.port import Driver, Session
from comfyui_agent.store.records import Counts, Lease, Leased, OpenAttempt, Window
from comfyui_agent.store.tokens import Access

T = TypeVar("T")

LONGEST_BACKOFF = 24 * 3600.0
PART = 1_000


class Store:
    """The memory of E3 over any driver. What returns has been committed; what raises has changed nothing."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._listeners: list[Callable[[], None]] = []

    @property
    def identity(self) -> str:
        return self.driver.identity

    @property
    def version(self) -> int:
        """A number that has gone up if anything was changed since it was last looked at, here or elsewhere.

        It costs nothing to look. What others change is seen within a fraction of a second.
        """
        return self.driver.version

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this soon after another process has changed something, or a door of this one."""
        self._listeners.append(call)
        self.driver.on_change(call)

    async def _steer(self, work: Callable[[Session], T]) -> T:
        """A change that people or doors make: whoever works the queue off wakes up."""
        result = await self.driver.write(work)
        self._tell_listeners()
        return result

    def _tell_listeners(self) -> None:
        for call in self._listeners:
            call()

    async def close(self, *, timeout: float | None = None) -> None:
        await self.driver.close(timeout=timeout)

    # What doors and people ask for.

    async def submit(self, jobs: Sequence[NewJob]) -> list[JobId | None]:
        """Accept jobs, all or none. None stands for one whose name is taken."""
        return await self._steer(lambda session: job_commands.submit(session, jobs))

    async def cancel(self, jobs: Sequence[JobId]) -> list[JobId]:
        return await self._steer(lambda session: job_commands.cancel(session, jobs))

    async def retry(self, jobs: Sequence[JobId], *, forget_files: bool = False) -> list[JobId]:
        """Give failed jobs a fresh start; those that had failed. Files that are gone may be forgotten."""
        return await self._steer(lambda session: job_commands.retry(session, jobs, forget_files=forget_files))

    async def dismiss(self, jobs: Sequence[JobId]) -> int:
        """Failed jobs need no attention any more; how many of these did, or were cancelled."""
        return await self._steer(lambda session: job_commands.dismiss(session, jobs))

    async def remove(self, jobs: Sequence[JobId]) -> list[JobId]:
        """Forget ended jobs, their runs and whose their files are; those that had ended. Files stay on disk."""
        return await self._steer(lambda session: job_commands.remove(session, jobs))

    async def set_priority(self, job_id: JobId, priority: int) -> bool:
        return await self._steer(lambda session: job_commands.set_priority(session, job_id, priority))

    async def file_jobs(self, files: Sequence[ReadFile]) -> list[Disposition]:
        """Take job files in, all or none; what became of each. No name may be there twice."""
        return await self._steer(lambda session: job_files.file_jobs(session, files))

    async def cancel_deleted(self, sources: Sequence[str]) -> list[str]:
        """Cancel jobs that wait and whose files are gone; their names."""
        return await self._steer(lambda session: job_files.cancel_deleted(session, sources))

    async def finished_files(self, seconds: tuple[float, float]) -> list[tuple[str, str | None, str]]:
        """Source, digest and type of jobs that were done between so many seconds ago."""
        return await self.driver.read(lambda session: job_files.finished_files(session, *seconds))

    async def file_of(self, job_id: JobId) -> tuple[str | None, str | None]:
        """Where the file of a job is now, and the digest of what the job stands for."""
        return await self.driver.read(lambda session: job_files.file_of(session, job_id))

    async def follow_file(self, name: str, source: str, target: str) -> None:
        """The file of a job that is done was moved."""
        await self.driver.write(lambda session: job_files.follow_file(session, name, source, target))

    async def holder_of_path(self, path: str, *, besides: str = "") -> str | None:
        """The job or the grid that a path belongs to, in words; None if it is free, or the job's named `besides`."""
        return await self.driver.read(lambda session: job_files.holder_of_path(session, path, besides))

    async def pending_sources(self) -> list[str]:
        return await self.driver.read(job_files.pending_sources)

    async def note_change(self, job_id: JobId) -> None:
        """The file of a job was changed while it ran: it is submitted again."""
        await self.driver.write(lambda session: job_files.note_change(session, job_id))

    async def note_repeat(self, name: str) -> None:
        """The file of a job that is done has come again, with the same bytes."""
        await self.driver.write(lambda session: job_files.note_repeat(session, name))

    async def reject(self, path: str, reason: str, kept: str | None = None) -> None:
        """Remember why a job file was renamed, and as what one that was rejected there before is `kept`."""
        await self.driver.write(lambda session: job_files.reject(session, path, reason, kept))

    async def rejections(self) -> dict[str, str]:
        return await self.driver.read(job_files.rejections)

    # Batches.

    async def create_batch(self, batch: NewBatch, creator: str | None) -> None:
        """A batch to be filled. If its creator dies before it is opened, it is as if it had never been."""
        await self.driver.write(lambda session: batches.create(session, batch, creator))

    async def fill_batch(self, jobs: Sequence[NewJob]) -> list[JobId]:
        """Put jobs into a batch, all or none. BatchTaken if one has a name that is taken."""
        return await self.driver.write(lambda session: batches.fill(session, jobs))

    async def open_batch(self, batch_id: str) -> None:
        """It is whole: its jobs may run."""
        await self._steer(lambda session: batches.open_batch(session, batch_id))

    async def group(self, batch: NewBatch, jobs: Sequence[JobId]) -> int:
        """Make a batch of jobs that are there and in no other; how many."""
        return await self._steer(lambda session: batches.group(session, batch, jobs))

    async def discard_unfinished(self, is_dead: Callable[[str], bool]) -> int:
        return await self.driver.write(lambda session: batches.discard_unfinished(session, is_dead))

    async def batch(self, batch_id: str) -> Batch | None:
        return await self.driver.read(lambda session: batches.find(session, batch_id))

    async def batches(self, *, kind: BatchKind | None = None, limit: int = 50) -> list[Batch]:
        """The newest first."""
        return await self.driver.read(lambda session: batches.newest(session, kind, limit))

    async def members(self, batch_id: str, *, is_whole: bool = False) -> AsyncIterator[Job]:
        """Every member in its order, read a part at a time; what is large in one only if they are wanted whole."""
        last: Job | None = None
        while found := await self._part_of(batch_id, last, is_whole):
            for job in found:
                yield job
            last = found[-1]

    async def _part_of(self, batch_id: str, after: Job | None, is_whole: bool) -> list[Job]:
        return await self.driver.read(
            lambda session: batches.members(session, batch_id, after, PART, is_whole=is_whole)
        )

    async def members_at(self, batch_id: str, indexes: Sequence[int]) -> list[Job]:
        """Those at these places, in their order."""
        return await self.driver.read(lambda session: members.members_at(session, batch_id, indexes))

    async def members_without_place(self, batch_id: str, most: int) -> list[Job]:
        """Those that someone put in by hand, without a place."""
        return await self.driver.read(lambda session: members.members_without_place(session, batch_id, most))

    async def book_pages(
        self, book_id: str, *, after: float = -math.inf, until: float = math.inf, most_bytes: int | None = None
    ) -> list[dict[str, Any]]:
        """The rows of the view `book_pages` with numbers above `after` up to `until`, JSON parsed.

        With `most_bytes` they are shortened as far as needed.
        """
        return await self.driver.read(lambda session: batches.book_pages(session, book_id, after, until, most_bytes))

    async def cancel_batch(self, batch_id: str) -> int | None:
        """End a batch and what has not ended of it; how many that were. None if it has ended already."""
        return await self._steer(lambda session: batches.cancel(session, batch_id))

    async def retry_batch(self, batch_id: str, *, with_cancelled: bool = False) -> int:
        """Give failed members a fresh start; how many."""
        return await self._steer(lambda session: batches.retry(session, batch_id, with_cancelled=with_cancelled))

    async def dismiss_batch(self, batch_id: str) -> int:
        """Dismiss the members that need attention; how many."""
        return await self._steer(lambda session: batches.dismiss(session, batch_id))

    async def pause_batch(self, batch_id: str) -> bool:
        return await self._steer(lambda session: batches.pause(session, batch_id))

    async def resume_batch(self, batch_id: str) -> bool:
        return await self._steer(lambda session: batches.resume(session, batch_id))

    async def resubmit(
        self, wishes: Sequence[tuple[JobId, NewJob | None]], *, avoid_cache: bool = False
    ) -> list[JobId]:
        """Want ended jobs anew, as they were or changed; those that had ended."""
        return await self._steer(
            lambda session: [
                job_id
                for job_id, changed in wishes
                if batches.resubmit(session, job_id, changed, avoid_cache=avoid_cache)
            ]
        )

    async def tick_batches(self, batch_ids: Sequence[str], longest_gap: float, expiry: float) -> list[str]:
        """Members of these batches run at live servers. Those that have expired with this."""
        expired = await self.driver.write(lambda session: batches.tick(session, batch_ids, longest_gap, expiry))
        if expired:
            self._tell_listeners()
        return expired

    async def is_batch_idle(self, batch_id: str) -> bool:
        return await self.driver.read(lambda session: batches.is_idle(session, batch_id))

    async def free_turns(self) -> int:
        return await self.driver.write(batches.free_turns)

    async def past_durations(self, workflow_id: str) -> list[float]:
        return await self.driver.read(lambda session: batches.past_durations(session, workflow_id))

    async def claim_grid(
        self, worker: str, is_dead: Callable[[str], bool], only: str | None = None
    ) -> tuple[str, int] | None:
        return await self.driver.write(lambda session: batches.claim_grid(session, worker, is_dead, only))

    async def settle_grid(
        self, batch_id: str, worker: str, generation: int, *, grid: str | None = None, problem: str | None = None
    ) -> bool:
        return await self.driver.write(
            lambda session: batches.settle_grid(session, batch_id, worker, generation, grid, problem)
        )

    async def release_grids(self, worker: str) -> None:
        await self.driver.write(lambda session: batches.release_grids(session, worker))

    async def claim_grid_files(
        self, batch_id: str, paths: Sequence[str], existing: Collection[str], output: str = ""
    ) -> str:
        """Note files as those of a batch's grid, all or none; why that cannot be, or an empty text."""
        return await self.driver.write(lambda session: grid_files.claim(session, batch_id, paths, existing, output))

    async def keep_grid_files(self, batch_id: str, paths: Sequence[str], output: str = "") -> list[str]:
        """The grid is made of these files now; those of an earlier one, which are nobody's any more."""
        return await self.driver.write(lambda session: grid_files.keep(session, batch_id, paths, output))

    async def note_grid(self, batch: Batch, grid: str) -> None:
        """A grid was made by hand of a batch as it was read."""
        await self.driver.write(lambda session: batches.note_grid(session, batch, grid))

    # Bursts.

    async def burst_items(self, batch_id: str) -> list[Item]:
        return await self.driver.read(lambda session: bursts.items(session, batch_id))

    async def begin_burst(
        self, batch_id: str, worker: str, wishes: Sequence[tuple[JobId, ItemRequest]], lowest: int
    ) -> int:
        """Note that a burst is under way and what its user wants; by how many steps it is smaller, at most `lowest`."""
        return await self.driver.write(lambda session: bursts.begin(session, batch_id, worker, wishes, lowest))

    async def pick_items(self, batch_id: str, picks: Sequence[Pick]) -> None:
        """These items are for this burst, and no others."""
        await self.driver.write(lambda session: bursts.pick(session, batch_id, picks))

    async def note_written(self, batch_id: str, words: Mapping[JobId, ItemStatus], digests: tuple[str, str]) -> None:
        """These words are about to be written to the state file; its digest before and after."""
        await self.driver.write(lambda session: bursts.note_written(session, batch_id, words, digests))

    async def confirm_written(self, batch_id: str, digest: str) -> None:
        """The state file has this digest."""
        await self.driver.write(lambda session: bursts.confirm_written(session, batch_id, digest))

    async def forget_items(self, jobs: Sequence[JobId]) -> None:
        """Items that are in neither the folder nor the state file any more."""
        await self.driver.write(lambda session: bursts.forget(session, jobs))

    async def end_burst(self, batch_id: str, *, has_worked: bool = True) -> None:
        """A burst ended by itself: if it `has_worked`, the next may be larger. What it did not begin is for later."""
        await self.driver.write(lambda session: bursts.end(session, batch_id, has_worked=has_worked))

    # Leases.

    async def lease(
        self,
        worker: str,
        window: Window,
        prompt_ids: Sequence[PromptId],
        seconds: float,
        *,
        longest_backoff: float = LONGEST_BACKOFF,
    ) -> list[Leased]:
        """The next jobs for a server, leased, each with one of the prompt ids noted as its run.

        A job that would wait longer than the longest backoff was noted before the clock stepped back: it may run.
        """
        return await self.driver.write(
            lambda session: leases.lease_jobs(session, worker, window, prompt_ids, seconds, longest_backoff)
        )

    async def renew(self, worker: str, seconds: float) -> frozenset[tuple[JobId, int]]:
        return await self.driver.write(lambda session: leases.renew(session, worker, seconds))

    async def held(self, worker: str) -> frozenset[tuple[JobId, int]]:
        return await self.driver.read(lambda session: leases.held(session, worker))

    async def release(self, worker: str) -> int:
        """Let go of everything; prompts at servers stay there for the next agent."""
        return await self.driver.write(lambda session: leases.release(session, worker))

    async def note_running(self, lease: Lease, seconds: float) -> None:
        """The prompt has been executing for so many seconds; once known, this is remembered."""
        await self.driver.write(lambda session: leases.note_running(session, lease, seconds))

    # How runs end. All raise LeaseLost, and change nothing, if the job is no longer the worker's.

    async def claim_files(self, lease: Lease, paths: Sequence[str], seconds: float) -> list[str]:
        """Prove the lease and note files as the job's; those that were so before. FileTaken if another has one."""
        return await self.driver.write(lambda session: outcomes.claim_files(session, lease, paths, seconds))

    async def kept_pictures(self) -> frozenset[str]:
        """The names of kept input files that jobs use."""
        rows = await self.driver.read(lambda session: session.rows("kept_pictures"))
        return frozenset(row["name"] for row in rows)

    async def owned_files(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of these paths that belong to a job."""
        return await self.driver.read(lambda session: outcomes.owned_files(session, paths))

    async def recorded_files(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of the paths that are, or once were, a result or a grid."""
        return await self.driver.read(lambda session: outcomes.recorded_files(session, paths))

    async def with_unowned(self, paths: Sequence[str], do: Callable[[str], None]) -> None:
        """Do something with those paths that are no job's, while none can become one's. It may be done twice."""
        await self.driver.write(lambda session: outcomes.with_unowned(session, paths, do))

    async def complete(self, lease: Lease, outputs: Sequence[str], duration: float | None) -> list[str]:
        """`done`. Returns files of earlier runs that are no longer the job's result."""
        return await self.driver.write(lambda session: outcomes.complete(session, lease, outputs, duration))

    async def requeue(self, lease: Lease, failure: Failure, again: Retry, *, avoid_server: bool = False) -> None:
        await self.driver.write(
            lambda session: outcomes.requeue(session, lease, failure, again, avoid_server=avoid_server)
        )

    async def wait_for_server(
        self, lease: Lease, failure: Failure, away: float, executed: float, *, is_held: bool = False
    ) -> None:
        await self.driver.write(
            lambda session: outcomes.wait_for_server(session, lease, failure, away, executed, is_held=is_held)
        )

    async def fail(self, lease: Lease, failure: Failure, over: GiveUp) -> list[str]:
        """`failed`. Returns files that were noted and never became the result."""
        return await self.driver.write(lambda session: outcomes.fail(session, lease, failure, over))

    async def unsend(self, lease: Lease) -> None:
        await self.driver.write(lambda session: outcomes.unsend(session, lease))

    async def refuse(self, lease: Lease, failure: Failure) -> None:
        await self.driver.write(lambda session: outcomes.refuse(session, lease, failure))

    # Recovery.

    async def open_attempts(self) -> list[OpenAttempt]:
        return await self.driver.read(recovery.open_attempts)

    async def adopt(self, attempt: OpenAttempt, worker: str, seconds: float) -> Leased | None:
        return await self.driver.write(lambda session: recovery.adopt(session, attempt, worker, seconds))

    async def withdraw(self, attempt: OpenAttempt, words: str = "") -> list[str] | None:
        """Close a run that nobody wants, with words on it. Returns files noted for it that never became a result.

        None if it is closed already, or wanted again.
        """
        return await self.driver.write(lambda session: recovery.withdraw(session, attempt, words))

    async def owned_prompts(self) -> frozenset[str]:
        return await self.driver.read(recovery.owned_prompts)

    async def put_back_unattended(self, is_dead: Callable[[str], bool]) -> int:
        return await self.driver.write(lambda session: recovery.put_back_unattended(session, is_dead))

    async def put_back_orphans(self, is_dead: Callable[[str], bool]) -> int:
        return await self.driver.write(lambda session: recovery.put_back_orphans(session, is_dead))

    async def recount(self) -> None:
        await self.driver.write(recovery.recount)

    # Servers that people take out of work.

    async def pause_server(self, server: str) -> ServerState:
        """It gets nothing new; what it has runs on."""
        await self._steer(lambda session: server_states.pause(session, server))
        return ServerState.PAUSED

    async def drain_server(self, server: str) -> ServerState:
        """It gets nothing new, and what waits there is taken back; how far that is."""
        return await self._steer(lambda session: server_states.drain(session, server))

    async def finish_drain(self, server: str) -> bool:
        """`drained`, if nothing is there any more; whether that was now."""
        return await self._steer(lambda session: server_states.finish_drain(session, server))

    async def resume_server(self, server: str) -> bool:
        return await self._steer(lambda session: server_states.resume(session, server))

    async def halted_servers(self) -> list[ServerInState]:
        return await self.driver.read(server_states.halted_servers)

    # Servers that are lost or stuck.

    async def lost_servers(self, batch_id: str | None = None) -> list[LostServer]:
        return await self.driver.read(lambda session: server_states.lost_servers(session, batch_id))

    async def stuck_prompts(self) -> list[StuckPrompt]:
        return await self.driver.read(server_states.stuck_prompts)

    async def note_stuck(self, server: str, prompt_id: str, reason: str) -> bool:
        return await self._steer(lambda session: server_states.note_stuck(session, server, prompt_id, reason))

    async def forget_stuck(self, prompt_id: str) -> None:
        await self._steer(lambda session: server_states.forget_stuck(session, prompt_id))

    async def is_blocked(self, servers: Collection[str], batch_id: str | None = None) -> bool:
        return await self.driver.read(lambda session: server_states.is_blocked(session, servers, batch_id))

    # Looking.

    async def find(self, name: str) -> Job | None:
        return await self.driver.read(lambda session: job_queries.find_job(session, name))

    async def find_by_id(self, job_id: JobId) -> Job | None:
        return await self.driver.read(lambda session: job_queries.find_by_id(session, job_id))

    async def find_by_name(self, name: str) -> Job | None:
        return await self.driver.read(lambda session: job_queries.find_by_name(session, name))

    async def jobs(
        self,
        *,
        status: JobStatus | None = None,
        batch_id: str | None = None,
        attention: bool = False,
        limit: int = 50,
    ) -> list[Job]:
        """Jobs as `e3 queue ls` lists them; with `attention`, only those that need it."""
        return await self.driver.read(
            lambda session: job_queries.list_jobs(session, status, batch_id, limit, attention=attention)
        )

    async def attempts(self, job_id: JobId) -> list[Attempt]:
        return await self.driver.read(lambda session: job_queries.attempts_of(session, job_id))

    async def is_idle(self) -> bool:
        return await self.driver.read(job_queries.is_idle)

    async def counts(self) -> Counts:
        return await self.driver.read(job_queries.counts)

    async def open_jobs_of(self, token_id: int, most: int) -> int:
        """How many jobs of a token have not ended, counted up to `most`."""
        return await self.driver.read(lambda session: job_queries.open_jobs_of(session, token_id, most))

    async def seconds_until_next(self) -> float | None:
        return await self.driver.read(job_queries.seconds_until_next)

    async def template(self, hash_: str) -> Template | None:
        return await self.driver.read(lambda session: job_queries.template(session, hash_))

    async def job_page(
        self, wanted: JobFilter, cursor: str | None = None, limit: int = 50, *, most_bytes: int | None = None
    ) -> JobPage:
        """A page of jobs for people; BadCursor if the cursor belongs to another question."""
        return await self.driver.read(lambda session: job_pages.job_page(session, wanted, cursor, limit, most_bytes))

    async def batch_page(self, kind: BatchKind | None = None, cursor: str | None = None, limit: int = 50) -> BatchPage:
        """A page of batches, the newest first."""
        return await self.driver.read(lambda session: job_pages.batch_page(session, kind, cursor, limit))

    async def overview(self) -> Overview:
        """How it stands, all of one moment."""
        return await self.driver.read(overview.overview)

    async def gauges(self) -> Gauges:
        """A few figures for whoever scrapes them every few seconds."""
        return await self.driver.read(gauges.gauges)

    async def index_names(self, most: int = 2_000) -> int:
        """Make names of newer jobs quick to search; how many. Until then they are looked at one by one."""
        if not await self.driver.read(names.is_behind):
            return 0
        return await self.driver.write(lambda session: names.index_names(session, most))

    # Who may use it over the network, and what they asked for.

    async def create_token(
        self, name: str, role: Role, hash_: str, *, is_shared: bool = False, seconds: float | None = None
    ) -> Token:
        """A token that expires after so many seconds, or never. From the first one on, access is closed."""
        return await self.driver.write(
            lambda session: tokens.create(session, name, role, hash_, is_shared=is_shared, seconds=seconds)
        )

    async def enrol(self, user: str, role: Role, address: str = "") -> Token:
        """The token of somebody whom a proxy has logged in; it has this role if they are new."""
        return await self.driver.write(lambda session: tokens.enrol(session, user, role, address))

    async def tokens(self) -> list[Token]:
        """The oldest first, revoked and expired ones included."""
        return await self.driver.read(tokens.listed)

    async def access(self) -> Access:
        """All that decides who is admitted."""
        return await self.driver.read(tokens.access)

    async def token_name(self, token_id: int | None) -> str | None:
        """What a token is called, for whoever sees what it made; None if nobody knows."""
        if token_id is None:
            return None
        return await self.driver.read(lambda session: tokens.name_of(session, token_id))

    async def revoke_token(self, token_id: int) -> bool:
        """Whether there was one. Its sessions end with it."""
        return await self.driver.write(lambda session: tokens.revoke(session, token_id))

    async def open_access(self, *, revoke: bool) -> list[Token]:
        """Let everyone on this machine in without a token; the tokens that were not revoked before.

        If there are some and they may not be revoked, nothing is changed.
        """
        return await self.driver.write(lambda session: tokens.open_access(session, revoke=revoke))

    async def begin_session(self, hash_: str, token_id: int) -> None:
        await self.driver.write(lambda session: tokens.begin_session(session, hash_, token_id))

    async def end_session(self, hash_: str) -> None:
        await self.driver.write(lambda session: tokens.end_session(session, hash_))

    async def note_uses(self, uses: Iterable[tuple[int, str]]) -> None:
        """Tokens that were used, each with the hash of its session or with an empty text."""
        await self.driver.write(lambda session: tokens.note_uses(session, uses))

    async def begin_wish(
        self, key: str, scope: str, digest: str, creator: str, made: str, is_dead: Callable[[str], bool]
    ) -> Beginning:
        """Ask for something under a key that may be used again for the same wish, for a week.

        Of all who begin the same at once, one is told that it has begun. Whoever is told so, or takes over, has to
        finish or drop it.
        """
        return await self.driver.write(
            lambda session: idempotency.begin(session, key, scope, digest, creator, made, is_dead)
        )

    async def finish_wish(self, key: str, scope: str, status: int, answer: str) -> None:
        """Remember the answer for whoever asks again. The first one stands."""
        await self.driver.write(lambda session: idempotency.finish(session, key, scope, status, answer))

    async def drop_wish(self, key: str, scope: str) -> None:
        """Nothing was made: the key may be used as if for the first time. An answer that was given stays."""
        await self.driver.write(lambda session: idempotency.drop(session, key, scope))

    # Events.

    async def note(self, event: Event) -> None:
        await self.driver.write(lambda session: event_log.note(session, event))

    async def events_after(self, after: int, most: int = 500) -> list[Event]:
        return await self.driver.read(lambda session: event_log.events_after(session, after, most))

    async def alerts(self, seconds: float, most: int = 50) -> list[Event]:
        """What a person should see, of so many last seconds, the newest first."""
        return await self.driver.read(lambda session: event_log.alerts(session, seconds, most))

    async def audit_trail(
        self, *, seconds: float | None = None, actor: str = "", before: int | None = None, most: int = 50
    ) -> list[Event]:
        """Who asked for which change, the newest first."""
        return await self.driver.read(lambda session: event_log.audit_trail(session, seconds, actor, before, most))

    async def newest_event(self) -> int:
        return await self.driver.read(event_log.newest_event)

    async def failures_since(self, event_id: int) -> int:
        return await self.driver.read(lambda session: event_log.failures_since(session, event_id))

    async def prune_events(self) -> int:
        return await self.driver.write(event_log.prune_events)
