"""Leases: which worker runs which job. Given by priority and route, kept by heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyui_agent.domain.jobs import AttemptId, JobId
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.retry_policy import Tally
from comfyui_agent.domain.routing import Choice, Decline, Head, Routed, choose
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.operation import Operation, query, statement, transition
from comfyui_agent.store.port import Deferred, Result, ResultUnknown, Row, Session, result_of
from comfyui_agent.store.records import Lease, Leased, Window
from comfyui_agent.store.rows import record, text

LONGEST_BACKOFF = 24 * 3600.0
SLOW_SECONDS = 0.01
BEFORE_ALL = -2e18
"""Comes before every priority. In the order of leases, NULL and whatever is below -1e18 count as -1e18."""


class Route(Protocol):
    """Chooses what one server is given next. It is called inside the transaction of a lease."""

    def choose(self, priority: Any, waiting: Sequence[Head], loaded: str | None, queue: Queue) -> Routed:
        """Choose among the first waiting jobs of each needs in one priority. None: the server can run none of them.

        `loaded`: the model set that the server has, None if that is not known.
        """


class ById:
    """Every server can run every job: the oldest is next."""

    def choose(self, priority: Any, waiting: Sequence[Head], loaded: str | None, queue: Queue) -> Routed:  # noqa: ARG002
        return choose(waiting, loaded, 0.0)


@dataclass(frozen=True)
class Queue:
    """What else a route may ask about the queue."""

    session: Session
    server: str

    def sets_elsewhere(self) -> dict[str, str]:
        """The model sets that other servers work on now."""
        return {row["server"]: row["model_set"] for row in self.session.rows("sets_elsewhere", server=self.server)}

    def count(self, priority: Any, needs: str, most: int) -> int:
        """How many jobs of a priority wait with these needs, counted up to `most`."""
        found: int = self.session.value("count_of_set", priority=priority, needs=needs, most=most)
        return found


@dataclass
class QueueFront:
    """The first waiting jobs of a priority, as they were found last. It is for databases where finding them is slow.

    While someone reads a long time, PostgreSQL keeps the index entries of all jobs that were leased since, and they lie
    in front of those that wait. The next lease begins where the last one found jobs. So a job that comes back waits
    longer than its turn, for at most a hundred times as long as it takes to walk through all, and for ten seconds.
    """

    priority: Any = None
    ids: Sequence[int] = ()
    _until: float = field(default=0.0, init=False)

    @property
    def is_known(self) -> bool:
        return bool(self.ids) and time.monotonic() < self._until

    def note(self, priority: Any, ids: Sequence[int], seconds: float | None) -> None:
        """`seconds`: how long it took to find them from the very beginning."""
        self.priority, self.ids = priority, ids
        if seconds is not None:
            self._until = time.monotonic() + min(100 * seconds, 10.0) if seconds > SLOW_SECONDS else 0.0

    def forget(self) -> None:
        """Something was put into the queue: it may come first."""
        self.ids = ()


@transition
def lease_jobs(
    session: Session,
    worker: str,
    window: Window,
    prompt_ids: Sequence[PromptId],
    seconds: float,
    *,
    route: Route | None = None,
    front: QueueFront | None = None,
    longest_backoff: float = LONGEST_BACKOFF,
) -> Result[list[Leased]]:
    """Lease the next jobs for a server, as many as its window has room for and prompt ids are given.

    The run and its prompt id are recorded in the same transaction, before anything is sent. A suspect job runs alone on
    its server. A server that people took out of work gets nothing. Members of a serial batch wait for their turn. A job
    whose server was lost is taken from it.
    """
    front = front if front is not None and window.batch_id is None else QueueFront()

    def lease(session: Session, *, locks_first: bool) -> Result[list[Leased]]:
        lock = session.ask("begin_lease", longest=longest_backoff, lock=f"server {window.server}")
        loads = session.ask("load_of_server", server=window.server, batch_id=window.batch_id)
        leasing = _Leasing(session, worker, window, route or ById(), seconds, front, locks_first)
        if not lock()[0]["is_locked"]:
            return []
        load = loads()[0]
        # An agent for one batch gets at least one prompt in: others would fill the window before it looks.
        least = 1 if window.batch_id is not None and not load["own"] else 0
        ids = prompt_ids[: max(least, window.size - load["open"])]
        if not ids or load["suspects"] or load["is_out_of_work"]:
            return []
        leasing.has_runs, leasing.loaded = load["open"] > 0, text(load["model_set"])
        taken = leasing.lease(ids)
        return Deferred(lambda: [leased for each in taken if (leased := each())], look_up)

    def look_up(session: Session) -> list[Leased]:
        found = session.rows("leased_prompts", worker=worker, prompt_ids=prompt_ids)
        return [leased_from(row, row["attempt_id"]) for row in found] or result_of(lease(session, locks_first=True))

    return lease(session, locks_first=False)


@dataclass
class _Leasing:
    """One lease: jobs are taken priority by priority, as the route chooses. The first are asked for at once."""

    session: Session
    worker: str
    window: Window
    route: Route
    seconds: float
    front: QueueFront
    locks_first: bool
    """Whether a job is locked before it is taken: another agent was quicker without."""
    has_runs: bool = False
    loaded: str | None = None
    """The model set that the server was given last."""

    def __post_init__(self) -> None:
        self._began, self._is_known = time.monotonic(), self.front.is_known
        if self._is_known:
            known = {"priority": self.front.priority, "ids": self.front.ids}
            self._next = self.session.ask("heads_from", **vars(self.window), **known)
        else:
            self._next = self._ask_heads(BEFORE_ALL)

    def lease(self, ids: Sequence[PromptId]) -> list[Callable[[], Leased | None]]:
        taken: list[Callable[[], Leased | None]] = []
        queue = Queue(self.session, self.window.server)
        after: Any = BEFORE_ALL
        while True:
            rows = self._next()
            if not rows and self._is_known:
                self._is_known, self._next = False, self._ask_heads(BEFORE_ALL)
                continue
            if not rows:
                break
            priority = rows[0]["priority"]
            if after == BEFORE_ALL and not taken:
                seconds = None if self._is_known else time.monotonic() - self._began
                self.front.note(priority, [row["id"] for row in rows], seconds)
            waiting = [Head(row["id"], row["needs"], overtaken_seconds=row["overtaken_seconds"]) for row in rows]
            choice = self.route.choose(priority, waiting, self.loaded, queue)
            if choice is None:
                after = priority
                self._next = self._ask_heads(after)
                continue
            if choice.oldest is not None:
                self.session.send("note_overtaken", id=choice.oldest)
            if isinstance(choice, Decline):
                break
            first = min((row for row in rows if row["needs"] == choice.needs), key=lambda row: row["id"])
            if len(ids) == 1 and self._is_plain(first, choice):
                return [_surely(self._take(first, ids[0]))]
            if not self._take_chosen(priority, first["id"], choice, ids, taken) or len(taken) == len(ids):
                break
            self._next = self._ask_heads(after)
        return taken

    def _ask_heads(self, after: Any) -> Callable[[], list[Row]]:
        """The next priority's first waiting job of each needs."""
        query = "heads_of_queue" if self.window.batch_id is None else "heads_of_batch"
        return self.session.ask(query, **vars(self.window), after=after)

    def _is_turn_taken(self, batch_id: str) -> bool:
        self.session.rows("lock_batch", id=batch_id)  # of two agents, the later one sees what the other has taken
        return self.session.one("turn_is_taken", batch_id=batch_id, server=self.window.server) is not None

    def _is_plain(self, row: Row, choice: Choice) -> bool:
        """Whether taking a job is all there is to do. Then it need not be locked before."""
        is_same_set = self.loaded == choice.model_set and choice.oldest is None
        return not self.locks_first and is_same_set and not (row["strikes"] or row["is_serial"] or row["is_lost"])

    def _take_chosen(
        self,
        priority: Any,
        first: int,
        choice: Choice,
        ids: Sequence[PromptId],
        taken: list[Callable[[], Leased | None]],
    ) -> bool:
        """Take what was chosen, as far as it is one after another. Returns whether there may be more."""
        session, server, before = self.session, self.window.server, len(taken)
        query = "next_jobs" if self.window.batch_id is None else "next_jobs_of_batch"
        wanted = {"priority": priority, "needs": choice.needs, "first": first, "below": choice.below}
        for row in session.rows(query, **vars(self.window), **wanted, most=len(ids) - before):
            if row["strikes"] and (self.has_runs or taken):
                return False
            if row["is_serial"] and self._is_turn_taken(row["batch_id"]):
                session.run("hold_for_turn", batch_id=row["batch_id"])
                return True  # look again, without the other members of that batch
            if row["is_lost"] and session.value("leave_server", id=row["id"]):
                session.run("strike_job", id=row["id"])  # executed there, it may have brought that server down
            is_load = self.loaded != choice.model_set
            if is_load:
                session.send("note_set", server=server, model_set=choice.model_set, needs=choice.needs)
                self.loaded = choice.model_set
            if choice.oldest is not None:
                session.send("count_overtake", server=server, is_stay=not is_load)
            taken.append(self._take(row, ids[len(taken)], is_load=is_load))
            if row["strikes"]:
                return False
        return len(taken) > before

    def _take(self, row: Row, prompt_id: PromptId, *, is_load: bool = False) -> Callable[[], Leased | None]:
        """Take a job. None if another agent was quicker."""
        run = {"worker": self.worker, "server": self.window.server, "prompt_id": prompt_id, "seconds": self.seconds}
        jobs = self.session.ask("take_job", id=row["id"], is_load=is_load, **run)
        return lambda: next((leased_from(job, job["attempt_id"]) for job in jobs()), None)


def _surely(take: Callable[[], Leased | None]) -> Callable[[], Leased]:
    """What was taken. ResultUnknown if another agent was quicker: the next job has to be looked for."""

    def taken() -> Leased:
        leased = take()
        if leased is None:
            raise ResultUnknown
        return leased

    return taken


def leased_from(job: Row, attempt_id: int) -> Leased:
    """A lease from the row of its job."""
    lease = Lease(JobId(job["id"]), job["fence"], AttemptId(attempt_id))
    return record(Leased, job, lease=lease, tally=record(Tally, job), last_failure=text(job["failure_class"]))


@transition
def renew_leases(session: Session, worker: str, seconds: float) -> frozenset[tuple[JobId, int]]:
    """Prolong all leases of a worker and its heartbeat. Returns the leases that it still has, as job and fence."""
    session.run("beat_agent", worker=worker)
    return _pairs(session.rows("renew_leases", worker=worker, seconds=seconds))


@query
def held_leases(session: Session, worker: str) -> frozenset[tuple[JobId, int]]:
    return _pairs(session.rows("held_leases", worker=worker))


def _pairs(rows: list[Row]) -> frozenset[tuple[JobId, int]]:
    return frozenset((JobId(row["id"]), row["fence"]) for row in rows)


def change_leased(session: Session, query: str, lease: Lease, **values: Any) -> Row:
    """Change a job by a query that takes its id and fence. LeaseLost if the job is no longer this worker's."""
    row = session.one(query, id=lease.job_id, fence=lease.fence, **values)
    if row is None:
        raise lost(lease)
    return row


def lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"job {lease.job_id} is no longer this worker's")


@transition
def note_running(session: Session, lease: Lease, seconds: float) -> None:
    session.run("note_running", **vars(lease), seconds=round(seconds, 3))


release_jobs: Operation[[str], int] = statement("release_jobs", "worker")
