"""Whatever workers, people and crashes do in whatever order, the store does what a simple model says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.records import Lease, OpenAttempt, Window
from support.job_states import JobEvent, NotAllowed, next_status
from support.sampling import some
from support.stores import HOST, KINDS, LEASE_SECONDS, Database, broken, register, wish

T = TypeVar("T")

NAMES = ("ada", "bob", "eve")
WORKERS = st.sampled_from(NAMES)
SERVERS = st.sampled_from(["http://one:8188", "http://two:8188"])
PICK = st.integers(0, 30)
PRIORITY = st.integers(1, 3)


@dataclass
class ModelJob:
    """What a job should look like."""

    id: int
    priority: int
    status: JobStatus = JobStatus.PENDING
    fence: int = 0
    worker: str | None = None
    prompt_id: str | None = None
    """The run that has no outcome."""
    server: str | None = None
    run_count: int = 0
    retries: int = 0
    strikes: int = 0
    waits_until: float | None = None
    is_lost: bool = False
    """Whether the server of that run stopped answering."""
    was_executed: bool = False
    completions: int = 0
    attempts: list[str] = field(default_factory=list)

    def happens(self, event: JobEvent) -> None:
        self.status = next_status(self.status, event)
        self.worker = None

    def holds(self, lease: Lease) -> bool:
        return self.status is JobStatus.PROCESSING and self.fence == lease.fence

    def run_ends(self) -> None:
        self.prompt_id = self.server = None
        self.is_lost = False

    def may_run_at(self, server: str) -> bool:
        is_free = self.prompt_id is None or (self.is_lost and self.server != server)
        return self.status is JobStatus.PENDING and self.waits_until is None and is_free

    @property
    def strikes_elsewhere(self) -> int:
        """What it has once another server takes it."""
        return self.strikes + (self.is_lost and self.was_executed)


class StoreMachine(RuleBasedStateMachine):
    make: ClassVar[Callable[[], Database]]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = self.make()
        self.store = self.do(self._open())
        self.do(register(self.store, *NAMES))
        self.now = 0.0
        self.names = count()
        self.jobs: dict[int, ModelJob] = {}
        self.leases: list[Lease] = []
        self.seen: list[OpenAttempt] = []

    async def _open(self) -> Any:
        return self.database.open()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        for job in self.jobs.values():
            runs = [run.prompt_id for run in self.do(self.store.run(ops.list_attempts, JobId(job.id)))]
            assert runs == job.attempts
        self.do(self.database.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.close()

    def a_job(self, pick: int) -> ModelJob:
        return list(self.jobs.values())[pick % len(self.jobs)]

    def open_at(self, server: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.server == server]

    # What doors and people do.

    @initialize(priorities=st.lists(PRIORITY, min_size=6, max_size=8))
    def there_is_much_to_do(self, priorities: list[int]) -> None:
        self.submit(priorities)

    @rule(priorities=st.lists(PRIORITY, min_size=1, max_size=3))
    def submit(self, priorities: list[int]) -> None:
        wishes = [wish(f"{next(self.names)}.yaml", priority=priority) for priority in priorities]
        for job_id, priority in zip(self.do(self.store.run(ops.submit_jobs, wishes)), priorities, strict=True):
            assert job_id is not None
            assert job_id not in self.jobs
            self.jobs[job_id] = ModelJob(job_id, priority)

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, priority=PRIORITY)
    def bump(self, pick: int, priority: int) -> None:
        job = self.a_job(pick)
        assert self.do(self.store.run(ops.set_priority, job.id, priority))
        job.priority = priority

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        job = self.a_job(pick)
        cancelled = self.do(self.store.run(ops.cancel_jobs, [job.id]))
        try:
            job.happens(JobEvent.CANCEL)
        except NotAllowed:
            assert cancelled == []
        else:
            assert cancelled == [job.id]
            job.fence += 1
            job.waits_until = None

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK)
    def retry(self, pick: int) -> None:
        job = self.a_job(pick)
        retried = self.do(self.store.run(ops.retry_jobs, [job.id]))
        try:
            job.happens(JobEvent.RETRY)
        except NotAllowed:
            assert retried == []
        else:
            assert retried == [job.id]
            job.retries = job.strikes = 0

    @precondition(lambda self: any(job.status is JobStatus.PROCESSING for job in self.jobs.values()))
    @rule(pick=PICK)
    def reset_by_hand(self, pick: int) -> None:
        running = [job for job in self.jobs.values() if job.status is JobStatus.PROCESSING]
        job = running[pick % len(running)]
        self.database.by_hand(
            f"UPDATE jobs SET status='pending', worker_id=NULL, lease_expires_at=NULL WHERE id = {job.id}"
        )
        job.happens(JobEvent.REQUEUE)

    # What time and workers do.

    @rule(seconds=st.sampled_from([1, 14, 16, 31, 3600, -1, -20]))
    def time_passes(self, seconds: int) -> None:
        self.database.clock.advance(seconds)
        self.now += seconds

    @rule(worker=WORKERS, size=st.integers(1, 3))
    def lease_for_the_usual_server(self, worker: str, size: int) -> None:
        self.lease(worker, "http://one:8188", 3, size)

    @rule(worker=WORKERS, server=SERVERS, most=st.integers(0, 3), size=st.integers(1, 3))
    def lease(self, worker: str, server: str, most: int, size: int) -> None:
        prompt_ids = [mint_prompt_id() for _ in range(most)]
        expected = self._next_jobs(server, most, size)
        leased = self.do(self.store.run(ops.lease_jobs, worker, Window(server, size), prompt_ids, LEASE_SECONDS))
        assert [each.lease.job_id for each in leased] == [job.id for job in expected]
        for job, each, prompt_id in zip(expected, leased, prompt_ids, strict=False):
            job.happens(JobEvent.LEASE)
            job.strikes = job.strikes_elsewhere
            job.run_ends()
            job.worker, job.prompt_id, job.server = worker, prompt_id, server
            job.fence, job.run_count = job.fence + 1, job.run_count + 1
            job.attempts.append(prompt_id)
            assert (each.prompt_id, each.lease.fence, each.tally.strikes) == (prompt_id, job.fence, job.strikes)
            self.leases.append(each.lease)
        if leased:
            assert len(self.open_at(server)) <= size
            assert len(self.open_at(server)) == 1 or not any(job.strikes for job in self.open_at(server))

    def _next_jobs(self, server: str, most: int, size: int) -> list[ModelJob]:
        for job in self.jobs.values():
            if job.waits_until is not None and job.waits_until <= self.now:
                job.waits_until = None
        here = self.open_at(server)
        room = min(most, max(0, size - len(here)))
        if any(job.strikes for job in here):
            return []
        able = [
            job for job in sorted(self.jobs.values(), key=lambda job: (job.priority, job.id)) if job.may_run_at(server)
        ][:room]
        suspect = next((place for place, job in enumerate(able) if job.strikes_elsewhere), None)
        if suspect is None:
            return able
        return able[:1] if suspect == 0 and not here else able[:suspect]

    @rule(worker=WORKERS)
    def renew(self, worker: str) -> None:
        ours = {(job.id, job.fence) for job in self.jobs.values() if job.worker == worker}
        assert self.do(self.store.run(ops.held_leases, worker)) == ours
        assert self.do(self.store.run(ops.renew_leases, worker, LEASE_SECONDS)) == ours

    @rule(worker=WORKERS)
    def release(self, worker: str) -> None:
        ours = [job for job in self.jobs.values() if job.worker == worker]
        assert self.do(self.store.run(ops.release_jobs, worker)) == len(ours)
        for job in ours:
            job.happens(JobEvent.REQUEUE)

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def complete(self, pick: int) -> None:
        if job := self._write(
            pick, lambda lease: self.store.run(ops.complete_job, lease, [f"{lease.fence}.png"], None)
        ):
            job.happens(JobEvent.COMPLETE)
            job.run_ends()
            job.completions, job.strikes = job.completions + 1, 0

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        if job := self._write(
            pick, lambda lease: self.store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION))
        ):
            job.happens(JobEvent.FAIL)
            job.run_ends()

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, wait=st.sampled_from([0.0, 15.0]), charged=st.booleans(), strike=st.booleans())
    def requeue(self, pick: int, wait: float, charged: bool, strike: bool) -> None:
        again = Retry(wait, charged=charged, strike=strike)
        if job := self._write(pick, lambda lease: self.store.run(ops.requeue_job, lease, broken(), again)):
            job.happens(JobEvent.REQUEUE)
            job.run_ends()
            job.waits_until = self.now + wait if wait else None
            job.retries, job.strikes = job.retries + charged, job.strikes + strike

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, executed=st.sampled_from([0.0, 2.0]))
    def its_server_stops_answering(self, pick: int, executed: float) -> None:
        lost = broken(FailureClass.SERVER_LOST)
        if job := self._write(pick, lambda lease: self.store.run(ops.wait_for_server, lease, lost, 60.0, executed)):
            job.happens(JobEvent.REQUEUE)
            job.is_lost, job.was_executed = True, executed > 0

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, refuse=st.booleans())
    def never_sent(self, pick: int, refuse: bool) -> None:
        def write(lease: Lease) -> Coroutine[Any, Any, None]:
            return (
                self.store.run(ops.refuse_job, lease, broken()) if refuse else self.store.run(ops.return_unsent, lease)
            )

        if job := self._write(pick, write):
            job.happens(JobEvent.REQUEUE)
            if refuse:
                job.happens(JobEvent.FAIL)
            job.run_ends()
            job.run_count -= 1
            job.attempts.pop()

    @precondition(lambda self: self.outlived_leases())
    @rule(pick=PICK)
    def a_worker_wakes_up_whose_job_another_has(self, pick: int) -> None:
        stale = self.outlived_leases()
        lease = stale[pick % len(stale)]
        for write in (
            self.store.run(ops.complete_job, lease, ["stale.png"], None),
            self.store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION)),
            self.store.run(ops.requeue_job, lease, broken(), Retry(0.0, charged=True)),
            self.store.run(ops.return_unsent, lease),
            self.store.run(ops.claim_files, lease, ["stale.png"], LEASE_SECONDS),
        ):
            with pytest.raises(LeaseLost):
                self.do(write)

    def outlived_leases(self) -> list[Lease]:
        running = {job.id: job for job in self.jobs.values() if job.status is JobStatus.PROCESSING}
        return [lease for lease in self.leases if lease.job_id in running and not running[lease.job_id].holds(lease)]

    def _write(self, pick: int, write: Callable[[Lease], Coroutine[Any, Any, object]]) -> ModelJob | None:
        """Write with any lease that was ever handed out; the job, if that lease still is good."""
        lease = self.leases[-1 - pick % len(self.leases)]
        job = self.jobs[lease.job_id]
        if job.holds(lease):
            self.do(write(lease))
            return job
        before = self._everything()
        with pytest.raises(LeaseLost):
            self.do(write(lease))
        assert self._everything() == before
        return None

    def _everything(self) -> tuple[Any, ...]:
        jobs = self.do(self.store.run(ops.list_jobs, limit=1000))
        return jobs, self.do(self.store.run(ops.open_attempts)), self.do(self.store.run(ops.newest_event))

    # What happens after a crash.

    @rule()
    def look_around(self) -> None:
        self.seen += self.do(self.store.run(ops.open_attempts))

    @rule(pick=PICK, worker=WORKERS)
    def take_over(self, pick: int, worker: str) -> None:
        seen = self.do(self.store.run(ops.open_attempts))
        if seen:
            self._adopt(seen[pick % len(seen)], worker)

    @precondition(lambda self: self.seen)
    @rule(pick=PICK, worker=WORKERS)
    def take_over_as_seen_before(self, pick: int, worker: str) -> None:
        self._adopt(self.seen[-1 - pick % len(self.seen)], worker)

    def _adopt(self, seen: OpenAttempt, worker: str) -> None:
        job = self.jobs[seen.job_id]
        leased = self.do(self.store.run(ops.adopt_attempt, seen, worker, LEASE_SECONDS))
        is_open = job.prompt_id == seen.prompt_id
        if job.fence != seen.fence or not is_open or job.status in (JobStatus.DONE, JobStatus.FAILED):
            assert leased is None
            return
        assert leased is not None
        if job.status is JobStatus.PENDING:
            job.happens(JobEvent.LEASE)
        job.worker, job.fence, job.waits_until, job.is_lost = worker, job.fence + 1, None, False
        assert (leased.prompt_id, leased.lease.fence, leased.is_taken_over) == (job.prompt_id, job.fence, True)
        self.leases.append(leased.lease)

    @precondition(lambda self: self.seen)
    @rule(pick=PICK)
    def withdraw(self, pick: int) -> None:
        seen = self.seen[-1 - pick % len(self.seen)]
        job = self.jobs[seen.job_id]
        unwanted = job.prompt_id == seen.prompt_id and job.status in (JobStatus.DONE, JobStatus.FAILED)
        assert self.do(self.store.run(ops.withdraw_attempt, seen)) == ([] if unwanted else None)
        if unwanted:
            job.run_ends()

    @rule(dead=WORKERS)
    def a_worker_dies(self, dead: str) -> None:
        expired = {each.job_id for each in self.do(self.store.run(ops.open_attempts)) if each.has_expired}
        orphans = [
            job
            for job in self.jobs.values()
            if job.status is JobStatus.PROCESSING and (job.worker == dead or job.id in expired)
        ]
        self.do(self.store.run(ops.remove_agent, dead))
        assert self.do(self.store.run(ops.put_back_orphans, HOST)) == len(orphans)
        self.do(register(self.store, dead))
        for job in orphans:
            job.happens(JobEvent.REQUEUE)
            job.fence += 1

    # What always holds.

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        found = {job.id: job for job in self.do(self.store.run(ops.list_jobs, limit=1000))}
        assert found.keys() == self.jobs.keys()
        for model in self.jobs.values():
            job = found[model.id]
            assert (job.status, job.worker_id, job.priority) == (model.status, model.worker, model.priority)
            assert (job.run_count, job.retries_attempted) == (model.run_count, model.retries)
            assert job.strikes == model.strikes
            assert (job.lost_at is not None) == model.is_lost

    @invariant()
    def counts_are_true(self) -> None:
        counts = self.do(self.store.run(ops.count_jobs))
        for status in JobStatus:
            assert getattr(counts, status) == sum(job.status is status for job in self.jobs.values())

    @invariant()
    def a_job_has_at_most_one_open_run(self) -> None:
        found = [(each.job_id, each.prompt_id, each.server) for each in self.do(self.store.run(ops.open_attempts))]
        model = [(job.id, job.prompt_id, job.server) for job in self.jobs.values() if job.prompt_id]
        assert sorted(found) == sorted(model)

    @invariant()
    def a_job_is_completed_at_most_once(self) -> None:
        done = [
            event.job_id for event in self.do(self.store.run(ops.events_after, 0, 10_000)) if event.name == "job.done"
        ]
        assert sorted(done) == sorted(job.id for job in self.jobs.values() if job.status is JobStatus.DONE)
        assert all(job.completions == (job.status is JobStatus.DONE) for job in self.jobs.values())


@pytest.mark.timeout(600)  # a failure takes a while to be made small
@pytest.mark.parametrize(
    ("kind", "examples"), some([("sqlite", 15), ("sqlite", 60), ("postgres", 5), ("postgres", 60)], 2)
)
def test_the_store_does_what_the_model_says(kind: str, examples: int, tmp_path: Path) -> None:
    numbers = count()

    def make() -> Database:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return KINDS[kind](folder)

    class Machine(StoreMachine):
        pass

    Machine.make = staticmethod(make)
    quick = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(Machine, settings=quick)
