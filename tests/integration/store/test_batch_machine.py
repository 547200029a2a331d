"""Whatever workers, people and clocks do in whatever order, a batch completes once in each generation, and in time."""

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

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Lease, OpenAttempt, Window
from comfyui_agent.store.store import Store
from support.sampling import some
from support.stores import HOST, KINDS, LEASE_SECONDS, Database, broken, register, wish

T = TypeVar("T")

NAMES = ("ada", "bob", "eve")
WORKERS = st.sampled_from(NAMES)
SERVERS = st.sampled_from(["http://one:8188", "http://two:8188"])
PICK = st.integers(0, 30)
OPEN, ENDED = ("pending", "processing"), ("done", "failed")
GAP, EXPIRY = 10.0, 29.5
MOST_BATCHES = 4


@dataclass(eq=False)
class ModelJob:
    """What a member should look like."""

    id: int
    priority: int
    batch: ModelBatch
    status: str = "pending"
    fence: int = 0
    worker: str | None = None
    is_cancelled: bool = False
    attempt: int | None = None
    """The run that has no outcome."""
    server: str | None = None
    waits_until: float | None = None


@dataclass(eq=False)
class ModelBatch:
    """What a batch should look like. What follows from a change of a member is said here, and only here."""

    id: str
    is_serial: bool
    status: str = "pending"
    generation: int = 1
    is_paused: bool = False
    quiet: float = 0.0
    ticked_at: float | None = None
    told: list[str] = field(default_factory=list)
    jobs: list[ModelJob] = field(default_factory=list)

    @property
    def has_open(self) -> bool:
        return any(job.status in OPEN for job in self.jobs)

    def change(self, job: ModelJob, status: str) -> None:
        before, job.status, job.worker = job.status, status, None
        if status in ENDED and before in OPEN:
            self.quiet = 0.0
            if self.status == "active":
                self.status = "collecting"
            self.complete_if_nothing_is_left()
        elif status in OPEN and before in ENDED:
            self.reopen()

    def reopen(self) -> None:
        if self.status in ("complete", "cancelled", "expired"):
            self.status, self.quiet = "active", 0.0
            self.generation += 1

    def complete_if_nothing_is_left(self) -> None:
        if self.status in ("active", "collecting") and not self.has_open:
            self.status, self.is_paused = "complete", False
            self.told.append("batch.completed")

    def end(self, status: str) -> int:
        """How many members had not ended."""
        self.status, self.is_paused = status, False
        ending = [job for job in self.jobs if job.status in OPEN]
        for job in ending:
            self.change(job, "failed")
            job.is_cancelled, job.waits_until, job.fence = status == "cancelled", None, job.fence + 1
        self.told.append(f"batch.{status}")
        return len(ending)


class BatchMachine(RuleBasedStateMachine):
    make: ClassVar[Callable[[], Database]]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.database = self.make()
        self.stores: list[Store] = [self.do(self._open()) for _ in range(2)]
        self.do(register(self.stores[0], *NAMES))
        self.turns = count()
        self.now = 0.0
        self.names = count()
        self.batches: list[ModelBatch] = []
        self.leases: list[Lease] = []
        self.orphans: dict[int, str] = {}
        """Open runs whose jobs were deleted, and their servers."""

    async def _open(self) -> Store:
        return self.database.open()

    @property
    def store(self) -> Store:
        """One process after the other."""
        return self.stores[next(self.turns) % len(self.stores)]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def by_hand(self, sql: str) -> None:
        def type_it(session: Session) -> None:
            session.database.execute(sql)  # type: ignore[attr-defined]

        self.do(self.store.driver.write(type_it))

    def teardown(self) -> None:
        self.do(self.database.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.close()

    @property
    def jobs(self) -> list[ModelJob]:
        return sorted((job for batch in self.batches for job in batch.jobs), key=lambda job: job.id)

    def a_job(self, pick: int) -> ModelJob:
        return self.jobs[pick % len(self.jobs)]

    def a_batch(self, pick: int) -> ModelBatch:
        return self.batches[pick % len(self.batches)]

    def job_with(self, job_id: int) -> ModelJob | None:
        return next((job for job in self.jobs if job.id == job_id), None)

    # Doors.

    @initialize(priorities=st.lists(st.integers(1, 3), min_size=3, max_size=3))
    def there_are_two_batches(self, priorities: list[int]) -> None:
        for is_serial in (False, True):
            self.create(is_serial)
            self.put_in(len(self.batches) - 1, priorities)
            self.open(len(self.batches) - 1)

    @precondition(lambda self: len(self.batches) < MOST_BATCHES)
    @rule(is_serial=st.booleans())
    def create(self, is_serial: bool) -> None:
        batch = ModelBatch(f"batch_{len(self.batches)}", is_serial)
        self.do(self.store.run(ops.create_batch, NewBatch(batch.id, "x", BatchKind.SWEEP, is_serial=is_serial), "door"))
        self.batches.append(batch)

    @rule(pick=PICK, priorities=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def put_in(self, pick: int, priorities: list[int]) -> None:
        batch = self.a_batch(pick)
        if len(batch.jobs) > 6:
            return
        wishes = [wish(f"{next(self.names)}", batch_id=batch.id, priority=each) for each in priorities]
        for job_id, priority in zip(self.do(self.store.run(ops.fill_batch, wishes)), priorities, strict=True):
            batch.reopen()
            batch.jobs.append(ModelJob(job_id, priority, batch))

    @rule(pick=PICK)
    def open(self, pick: int) -> None:
        batch = self.a_batch(pick)
        self.do(self.store.run(ops.open_batch, batch.id))
        if batch.status == "pending":
            batch.status = "active"
            batch.told.append("batch.created")
            batch.complete_if_nothing_is_left()

    # Workers.

    @rule(worker=WORKERS, server=SERVERS, most=st.integers(1, 4))
    def lease(self, worker: str, server: str, most: int) -> None:
        self.do(self.store.run(ops.free_turns))
        expected = self._next_jobs(server, most)
        prompt_ids = [mint_prompt_id() for _ in range(most)]
        leased = self.do(self.store.run(ops.lease_jobs, worker, Window(server, 4), prompt_ids, LEASE_SECONDS))
        assert [each.lease.job_id for each in leased] == [job.id for job in expected]
        for job, each in zip(expected, leased, strict=True):
            job.batch.change(job, "processing")
            job.worker, job.attempt, job.server = worker, each.lease.attempt_id, server
            job.fence, job.waits_until = job.fence + 1, None
            assert each.lease.fence == job.fence
            self.leases.append(each.lease)

    def _next_jobs(self, server: str, most: int) -> list[ModelJob]:
        at_server = [job for job in self.jobs if job.server == server and job.attempt is not None]
        room = min(most, max(0, 4 - len(at_server) - list(self.orphans.values()).count(server)))
        taken: list[ModelJob] = []
        for job in sorted(self.jobs, key=lambda job: (job.priority, job.id)):
            if len(taken) < room and self._may_run(job, taken):
                taken.append(job)
        return taken

    def _may_run(self, job: ModelJob, taken: list[ModelJob]) -> bool:
        batch = job.batch
        if batch.is_serial and any(each.attempt is not None or each in taken for each in batch.jobs):
            return False
        waits = job.waits_until is not None and job.waits_until > self.now
        is_held = batch.status == "pending" or batch.is_paused
        return job.status == "pending" and job.attempt is None and not waits and not is_held

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def complete(self, pick: int) -> None:
        self._write(pick, lambda lease: self.store.run(ops.complete_job, lease, ["a.png"], None), "done")

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def complete_as_another_does(self, pick: int) -> None:
        """Most of what workers do is to complete."""
        self.complete(pick)

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        self._write(
            pick, lambda lease: self.store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION)), "failed"
        )

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def refuse(self, pick: int) -> None:
        self._write(pick, lambda lease: self.store.run(ops.refuse_job, lease, broken()), "failed")

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def unsend(self, pick: int) -> None:
        self._write(pick, lambda lease: self.store.run(ops.return_unsent, lease), "pending")

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, wait=st.sampled_from([0.0, 15.0]))
    def requeue(self, pick: int, wait: float) -> None:
        again = Retry(wait, charged=True)
        if job := self._write(pick, lambda lease: self.store.run(ops.requeue_job, lease, broken(), again), "pending"):
            job.waits_until = self.now + wait if wait else None

    def _write(self, pick: int, write: Callable[[Lease], Coroutine[Any, Any, object]], status: str) -> ModelJob | None:
        """Write with any lease that was ever handed out; the job, if that lease is still good."""
        lease = self.leases[-1 - pick % len(self.leases)]
        job = self.job_with(lease.job_id)
        if job is None or job.status != "processing" or job.fence != lease.fence:
            newest = self.do(self.store.run(ops.newest_event))
            with pytest.raises(LeaseLost):
                self.do(write(lease))
            assert self.do(self.store.run(ops.newest_event)) == newest
            return None
        self.do(write(lease))
        job.waits_until = job.waits_until if status == "pending" else None
        job.attempt = None
        job.is_cancelled = False
        job.batch.change(job, status)
        return job

    @rule(worker=WORKERS)
    def release(self, worker: str) -> None:
        ours = [job for job in self.jobs if job.worker == worker]
        assert self.do(self.store.run(ops.release_jobs, worker)) == len(ours)
        for job in ours:
            job.batch.change(job, "pending")

    # Recovery.

    @rule(worker=WORKERS)
    def recover(self, worker: str) -> None:
        """Take over what waits and is at a server; take back what nobody wants."""
        for seen in self.do(self.store.run(ops.open_attempts)):
            if seen.status == "pending":
                self._adopt(seen, worker)
            elif not seen.is_wanted:
                assert self.do(self.store.run(ops.withdraw_attempt, seen, "taken back")) == []
                self.orphans.pop(seen.attempt_id, None)
                if job := self.job_with(seen.job_id):
                    job.attempt = None
        unattended = [job for job in self.jobs if job.status == "processing" and job.attempt is None]
        assert self.do(self.store.run(ops.put_back_unattended, HOST)) == len(unattended)
        for job in unattended:
            job.batch.change(job, "pending")
            job.fence += 1

    def _adopt(self, seen: OpenAttempt, worker: str) -> None:
        leased = self.do(self.store.run(ops.adopt_attempt, seen, worker, LEASE_SECONDS))
        job = self.job_with(seen.job_id)
        assert leased is not None
        assert job is not None
        job.batch.change(job, "processing")
        job.worker, job.fence, job.waits_until = worker, job.fence + 1, None
        self.leases.append(leased.lease)

    # People.

    @rule(pick=PICK)
    def cancel_job(self, pick: int) -> None:
        if not self.jobs:
            return
        job = self.a_job(pick)
        is_open = job.status in OPEN
        assert self.do(self.store.run(ops.cancel_jobs, [JobId(job.id)])) == ([job.id] if is_open else [])
        if is_open:
            job.batch.change(job, "failed")
            job.is_cancelled, job.waits_until, job.fence = True, None, job.fence + 1

    @rule(pick=PICK)
    def cancel_batch(self, pick: int) -> None:
        batch = self.a_batch(pick)
        can = batch.status in ("active", "collecting")
        assert self.do(ops.cancel_batch(self.store, batch.id)) == (batch.end("cancelled") if can else None)

    @rule(pick=PICK)
    def retry_job(self, pick: int) -> None:
        if not self.jobs:
            return
        job = self.a_job(pick)
        failed = job.status == "failed"
        assert self.do(self.store.run(ops.retry_jobs, [JobId(job.id)])) == ([job.id] if failed else [])
        if failed:
            self._retried(job)

    @rule(pick=PICK, with_cancelled=st.booleans())
    def retry_batch(self, pick: int, with_cancelled: bool) -> None:
        batch = self.a_batch(pick)
        failed = [job for job in batch.jobs if job.status == "failed" and (with_cancelled or not job.is_cancelled)]
        assert self.do(self.store.run(ops.retry_batch, batch.id, with_cancelled=with_cancelled)) == len(failed)
        for job in failed:
            self._retried(job)

    def _retried(self, job: ModelJob) -> None:
        job.batch.change(job, "pending")
        job.waits_until, job.is_cancelled = None, False

    @rule(picks=st.lists(PICK, min_size=1, max_size=3))
    def resubmit(self, picks: list[int]) -> None:
        if not self.jobs:
            return
        wanted = list({(job := self.a_job(pick)).id: job for pick in picks}.values())
        ended = [job for job in wanted if job.status in ENDED]
        assert self.do(self.store.run(ops.resubmit_jobs, [(JobId(job.id), None) for job in wanted])) == [
            job.id for job in ended
        ]
        for job in ended:
            self._retried(job)
            job.attempt, job.fence = None, job.fence + 1

    @rule(pick=PICK)
    def pause(self, pick: int) -> None:
        batch = self.a_batch(pick)
        can = batch.status in ("active", "collecting") and not batch.is_paused
        assert self.do(self.store.run(ops.pause_batch, batch.id)) is can
        batch.is_paused |= can

    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        batch = self.a_batch(pick)
        assert self.do(self.store.run(ops.resume_batch, batch.id)) is batch.is_paused
        batch.is_paused = False

    # By hand.

    @rule(pick=PICK)
    def delete_by_hand(self, pick: int) -> None:
        if not self.jobs:
            return
        job = self.a_job(pick)
        self.by_hand(f"DELETE FROM jobs WHERE id = {job.id}")
        job.batch.jobs.remove(job)
        if job.attempt is not None:
            self.orphans[job.attempt] = job.server or ""
        if job.status in OPEN:
            job.batch.complete_if_nothing_is_left()

    @rule(pick=PICK, status=st.sampled_from([*OPEN, *ENDED]))
    def set_by_hand(self, pick: int, status: str) -> None:
        if not self.jobs:
            return
        job = self.a_job(pick)
        if job.batch.status == "pending":
            return
        self.by_hand(
            f"UPDATE jobs SET status = '{status}', worker_id = NULL, lease_expires_at = NULL, failure_class = NULL "
            f"WHERE id = {job.id}"
        )
        job.batch.change(job, status)
        job.is_cancelled = False

    @rule(pick=PICK, status=st.sampled_from(["pending", "done"]))
    def set_all_by_hand(self, pick: int, status: str) -> None:
        batch = self.a_batch(pick)
        if batch.status == "pending":
            return
        self.by_hand(
            f"UPDATE jobs SET status = '{status}', worker_id = NULL, lease_expires_at = NULL, failure_class = NULL "
            f"WHERE batch_id = '{batch.id}'"
        )
        for job in batch.jobs:
            batch.change(job, status)
            job.is_cancelled = False

    # Time.

    @rule(seconds=st.sampled_from([4.0, 9.0, 16.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.database.clock.advance(seconds)

    @rule(pick=PICK, seconds=st.lists(st.sampled_from([5.0, 9.0, 20.0, -3.0]), max_size=5))
    def look(self, pick: int, seconds: list[float]) -> None:
        """Members are being rendered: the clock of their batch runs."""
        batch = self.a_batch(pick)
        for step in [0.0, *seconds]:
            self.time_passes(step)
            assert self.do(self.store.run(ops.tick_batches, [batch.id], GAP, EXPIRY)) == self._expired(batch)

    def _expired(self, batch: ModelBatch) -> list[str]:
        if batch.status not in ("active", "collecting"):
            return []
        if not batch.is_paused and batch.ticked_at is not None and 0 <= self.now - batch.ticked_at <= GAP:
            batch.quiet += self.now - batch.ticked_at
        batch.ticked_at = self.now
        if batch.quiet < EXPIRY:
            return []
        batch.end("expired")
        return [batch.id]

    # What always holds.

    @invariant()
    def every_batch_is_as_the_model_says(self) -> None:
        for batch in self.batches:
            found = self.do(self.store.run(ops.find_batch, batch.id))
            assert found is not None
            assert (found.status.value, found.generation) == (batch.status, batch.generation)
            assert found.is_paused is batch.is_paused
            assert (found.completed_at is not None) is found.status.has_ended
            for status in (*OPEN, *ENDED):
                assert getattr(found, status) == sum(job.status == status for job in batch.jobs)

    @invariant()
    def a_batch_is_never_left_without_an_end_and_never_ended_with_something_left(self) -> None:
        for batch in self.batches:
            if batch.status != "pending":
                assert batch.has_open is (batch.status in ("active", "collecting"))

    @invariant()
    def what_was_told_is_what_happened(self) -> None:
        events = self.do(self.store.run(ops.events_after, 0, 100_000))
        for batch in self.batches:
            told = [event.name for event in events if event.batch_id == batch.id and event.job_id is None]
            assert told == batch.told
            ends = sum(name != "batch.created" for name in told)
            assert ends == batch.generation - (batch.status in ("pending", "active", "collecting"))

    @invariant()
    def members_that_go_one_by_one_have_one_run_at_most(self) -> None:
        found = {(each.job_id, each.attempt_id) for each in self.do(self.store.run(ops.open_attempts)) if each.status}
        assert found == {(job.id, job.attempt) for job in self.jobs if job.attempt is not None}
        for batch in self.batches:
            if batch.is_serial:
                assert sum(job.attempt is not None for job in batch.jobs) <= 1


@pytest.mark.timeout(600)  # a failure takes a while to be made small
@pytest.mark.parametrize(
    ("kind", "examples"), some([("sqlite", 12), ("sqlite", 300), ("postgres", 4), ("postgres", 300)], 2)
)
def test_batches_do_what_the_model_says(kind: str, examples: int, tmp_path: Path) -> None:
    numbers = count()

    def make() -> Database:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return KINDS[kind](folder)

    class Machine(BatchMachine):
        pass

    Machine.make = staticmethod(make)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
