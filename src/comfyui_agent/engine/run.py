"""One run of one job: from its lease to its end, or until someone else has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.errors import (
    AcceptanceUnknown,
    ComfyError,
    NotAccepted,
    PromptRejected,
    Unreachable,
    UploadRefused,
)
from comfyui_agent.comfy.fleet import Fleet, FleetServer, Health
from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.comfy.tasks import wait_while
from comfyui_agent.comfy.watch import Progress, Stage, Watch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry, RetryPolicy, decide
from comfyui_agent.domain.sent_prompt import filled_in
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.domain.texts import json_text
from comfyui_agent.engine.collector import Collector, LostMeanwhile, ServerAway, Unkeepable
from comfyui_agent.engine.prompt_builder import BuiltPrompt, NotBuildable, PromptBuilder
from comfyui_agent.engine.server_inputs import ServerInputs, Unfit
from comfyui_agent.engine.write_retry import write_with_retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import FileTaken, LeaseLost, StoreError
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

TICK = 0.5
RUNNING_IS_NOTED_AFTER = 1.0
RUNNING_IS_NOTED_EVERY = 10.0
INTERRUPT_SECONDS = 10.0
FREE_SECONDS = 30.0
JUST_BEGUN = 0.001
"""Seconds of execution of a prompt that nobody saw run, and that must have."""
LARGEST_SENT = 64 * 1024
WITH_PREVIEWS = {"preview_method": "auto"}
"""What a prompt carries so that its server shows unfinished pictures, however it was started; older ones ignore it."""


@dataclass(frozen=True)
class Rules:
    """The limits that runs are held to."""

    policy: RetryPolicy
    timeout_seconds: float
    stall_seconds: float
    failover_seconds: float


class Run:
    """Sends or takes over one prompt, watches it, and records how it ended. Every record needs the lease."""

    def __init__(
        self,
        leased: Leased,
        server: FleetServer,
        *,
        fleet: Fleet,
        store: Store,
        preparing: PromptBuilder,
        fitting: ServerInputs,
        collecting: Collector,
        rules: Rules,
        wake: Callable[[], None],
        previews: bool,
    ) -> None:
        self.leased = leased
        self.server = server
        self._fleet = fleet
        self._store = store
        self._preparing = preparing
        self._fitting = fitting
        self._collecting = collecting
        self._rules = rules
        self._wake = wake
        self._extra_data = WITH_PREVIEWS if previews else None
        self._watch: Watch | None = None
        self._noted_seconds = leased.running_seconds or 0.0
        self._is_left = False
        self.is_collecting = False

    @property
    def progress(self) -> Progress | None:
        return self._watch.progress if self._watch is not None else None

    async def live(self) -> None:
        """From here to the end. LeaseLost is no error: the job is someone else's."""
        try:
            await self._live()
        except LeaseLost as lost:
            log.info("%s: dropped, %s", self.leased.config_name, lost)
        except (ComfyError, StoreError):
            raise
        except Exception as error:
            log.exception("running %s failed", self.leased.config_name)
            words = f"E3 itself failed: {type(error).__name__}: {error}"
            await self._settle(self._failure(FailureClass.EXECUTION, words))
        finally:
            self.server.ended(self.leased.prompt_id)
            self.server.fetching.discard(self.leased.prompt_id)

    async def _live(self) -> None:
        prepared = await self._prepare()
        if prepared is None and not self.leased.is_taken_over:
            return
        outcome: Outcome
        try:
            watch = await self._send(prepared)
            if watch is None:
                return
            self._watch = watch
            outcome = await self._wait(watch)
        except ServerAway:
            await self._wait_for_server()
            return
        except Unfit as error:
            outcome = Failed(self.leased.prompt_id, self._failure(error.kind, error.message))
        except ComfyError as error:
            if isinstance(error, NotAccepted):
                self.server.misbehaved()
            failure = error.failure(self.server.name, self.leased.prompt_id)
            if isinstance(error, PromptRejected) and error.choice is not None:
                remedy = await self._fitting.remedy(self.server, *error.choice)
                failure = replace(failure, message=failure.message + remedy)
            outcome = Failed(self.leased.prompt_id, failure)
        if isinstance(outcome, Succeeded):
            self.server.ended(self.leased.prompt_id)
            self.is_collecting = True
            self.server.fetching.add(self.leased.prompt_id)
            self._wake()
            try:
                outcome = await self._bring_home(outcome)
            except ServerAway:
                await self._wait_for_server()
                return
        if isinstance(outcome, Failed):
            await self._settle(outcome.failure)

    async def _prepare(self) -> BuiltPrompt | None:
        try:
            return await self._preparing.prepare(self.leased)
        except NotBuildable as error:
            if not self.leased.is_taken_over:  # a prompt that is at its server needs no template any more
                failure = Failure(FailureClass.INVALID, str(error))
                await write_with_retry(self._store, lambda: self._store.run(ops.refuse_job, self.leased.lease, failure))
            return None

    async def _send(self, prepared: BuiltPrompt | None) -> Watch | None:
        """The watch on the prompt; None if nothing reached the server and the job waits again."""
        client, prompt_id = self.server.client, self.leased.prompt_id
        if prepared is None:
            return client.take_over(prompt_id)
        if self.leased.is_taken_over:
            return client.take_over(prompt_id, prepared.graph, prepared.expected)
        if self.server.halt is not None:  # taken out of work since the lease
            await write_with_retry(self._store, lambda: self._store.run(ops.return_unsent, self.leased.lease))
            return None
        try:
            return await self._fit_and_submit(prepared)
        except AcceptanceUnknown as error:
            log.warning("%s: %s", self.leased.config_name, error.message)
            self._fleet.probe_now(self.server)
            return client.take_over(prompt_id, prepared.graph, prepared.expected)
        except (PromptRejected, NotAccepted, UploadRefused):
            raise
        except ComfyError as error:
            await write_with_retry(self._store, lambda: self._store.run(ops.return_unsent, self.leased.lease))
            if not isinstance(error, Unreachable):
                self.server.misbehaved()
            self.server.at_work.discard(prompt_id)  # it never got there
            self._fleet.mark_down(self.server, error.message)
            return None

    async def _fit_and_submit(self, prepared: BuiltPrompt) -> Watch:
        """Send the prompt with what the server needs. One that has lost its input files is given them again."""
        try:
            return await self._submit(await self._fitted(prepared))
        except PromptRejected:
            self._fitting.forget(self.server.name)
            if self.leased.pictures is None:
                raise
        return await self._submit(await self._fitted(prepared))

    async def _fitted(self, prepared: BuiltPrompt) -> BuiltPrompt:
        graph = await self._fitting.fit(prepared.graph, self.leased.pictures, self.server)
        sent = json_text(filled_in(prepared.plain, graph))
        if len(sent) <= LARGEST_SENT:
            self.leased = replace(self.leased, lease=replace(self.leased.lease, sent=sent))
        return replace(prepared, graph=graph)

    async def _submit(self, prepared: BuiltPrompt) -> Watch:
        """Send the prompt. A server that swallows it and is away, or set aside, is not waited for."""
        sending = asyncio.create_task(self._submit_in_turn(prepared))
        try:
            while not (await asyncio.wait({sending}, timeout=TICK))[0]:
                if self._is_away() or self._is_to_be_left():
                    raise AcceptanceUnknown(f"{self.server.name} did not answer the prompt: {self.server.reason}")
            return sending.result()
        finally:
            sending.cancel()

    async def _submit_in_turn(self, prepared: BuiltPrompt) -> Watch:
        async with self.server.sending:
            await wait_while(lambda: self.server.pauses > 0)  # it would take the memory that is being freed
            watch = await self.server.client.submit(
                prepared.graph, self.leased.prompt_id, extra_data=self._extra_data, expected=prepared.expected
            )
            self.server.accepted(self.leased.prompt_id)
            return watch

    def _is_away(self) -> bool:
        """Whether the server has not answered for too long."""
        return self.server.seconds_down() > self._rules.failover_seconds

    def _is_to_be_left(self) -> bool:
        """Whether the server is set aside, and another is there."""
        return self.server.health is Health.ASIDE and self._fleet.is_alternative_to(self.server)

    async def _wait(self, watch: Watch) -> Outcome:
        """The end of the prompt, or of our patience with it. ServerAway if the server does not answer any more."""
        while True:
            with contextlib.suppress(TimeoutError):
                return await watch.outcome(TICK)
            if self._is_away():
                raise ServerAway
            await self._note_running(watch)
            if self._waits_to_be_drained(watch) and await self._take_back(watch):
                return Failed(watch.prompt_id, self._failure(FailureClass.INTERRUPTED, "its server is being drained"))
            failure = self._out_of_patience(watch)
            if failure is not None:
                ended = await self._interrupt(watch, failure)
                return ended or Failed(watch.prompt_id, failure)

    def _waits_to_be_drained(self, watch: Watch) -> bool:
        """Whether it was seen waiting at a server that is to be empty. One that was not seen is judged by its watch."""
        is_waiting = self.server.health is not Health.DOWN and watch.progress.stage is Stage.WAITING
        return is_waiting and self.server.halt is ServerState.DRAINING

    async def _take_back(self, watch: Watch) -> bool:
        """Take the prompt from the server's queue; False if it has begun, or that could not be done now."""
        try:
            result = await self.server.client.cancel(watch.prompt_id, timeout=INTERRUPT_SECONDS, interrupt=False)
        except ComfyError as error:
            log.info("%s could not be taken back yet: %s", self.leased.config_name, error.message)
            return False
        if result is Cancellation.LEFT_RUNNING:
            watch.see_running()
        return result is Cancellation.REMOVED

    async def _note_running(self, watch: Watch) -> None:
        """Remember now and then how long it has been executed, for whoever takes it over; not for short ones."""
        seconds = self._seconds_running(watch)
        if seconds >= self._noted_seconds + (RUNNING_IS_NOTED_EVERY if self._noted_seconds else RUNNING_IS_NOTED_AFTER):
            self._noted_seconds = seconds
            await write_with_retry(self._store, lambda: self._store.run(ops.note_running, self.leased.lease, seconds))

    def _seconds_running(self, watch: Watch) -> float:
        """Seconds of execution; those before a take-over included, where they were noted."""
        if watch.running_since is None:
            return 0.0
        return time.monotonic() - watch.running_since + (self.leased.running_seconds or 0.0)

    def _out_of_patience(self, watch: Watch) -> Failure | None:
        if self._is_to_be_left() and watch.progress.stage is not Stage.RUNNING:
            self._is_left = True
            words = f"its server does not work: {self.server.reason or 'set aside'}"
            return self._failure(FailureClass.SERVER_LOST, words)
        if self.server.health is not Health.UP:
            return None
        if watch.judged.unreachable_since is not None:
            # While the server was away it could not be read: that is no sign of nonsense. That it answers is.
            since = max(watch.judged.unreachable_since, self.server.since)
            return self._unreadable(watch, self.server.answered_at - since)
        limit = self.leased.timeout_seconds or self._rules.timeout_seconds
        if self._seconds_running(watch) > limit:
            return self._failure(FailureClass.TIMEOUT, f"it ran for more than {limit:g} s")
        stall = self._rules.stall_seconds
        if watch.is_ours and self._could_move(watch) and time.monotonic() - watch.progress.changed_at > stall:
            return self._failure(FailureClass.TIMEOUT, f"no sign of life for {stall:g} s: the server has stalled")
        return None

    def _unreadable(self, watch: Watch, seconds: float) -> Failure | None:
        """The server answers, and what it says about this prompt makes no sense: for a while, then that is the end."""
        if seconds <= self._rules.failover_seconds or watch.judged.trouble is None:
            return None
        self.server.misbehaved()
        if self._fleet.is_alternative_to(self.server):
            return replace(watch.judged.trouble, kind=FailureClass.SERVER_LOST)
        return watch.judged.trouble

    def _could_move(self, watch: Watch) -> bool:
        """Whether a sign of life is due: it runs and we would hear of it, or it is the next to run."""
        progress = watch.progress
        if progress.stage is Stage.RUNNING:
            return self.server.client.websocket_is_open
        return progress.stage is Stage.WAITING and progress.ahead == 0

    def _failure(self, kind: FailureClass, message: str) -> Failure:
        return Failure(kind, message, server=self.server.name, prompt_id=self.leased.prompt_id)

    async def _interrupt(self, watch: Watch, failure: Failure) -> Outcome | None:
        """Take the prompt back; its outcome if it ended after all. A server that does not let go is set aside."""
        if failure.kind is FailureClass.TIMEOUT:
            self._fleet.set_aside(self.server, self.leased.prompt_id, failure.message)
            await self._alert(EventName.ALERT_SERVER, f"set aside: {failure.message}")
        try:
            result = await self.server.client.cancel(self.leased.prompt_id, timeout=INTERRUPT_SECONDS)
        except ComfyError as error:
            log.warning("%s could not be interrupted: %s", self.leased.config_name, error.message)
            return None
        if result.runs_on and failure.kind is FailureClass.TIMEOUT:
            await write_with_retry(
                self._store,
                lambda: self._store.run(ops.note_stuck, self.server.name, self.leased.prompt_id, failure.message),
            )
        if result is Cancellation.ENDED_BEFORE:
            with contextlib.suppress(TimeoutError):
                outcome = await watch.outcome(INTERRUPT_SECONDS)
                return outcome if isinstance(outcome, Succeeded) else None
        self._fleet.probe_now(self.server)
        return None

    async def _bring_home(self, outcome: Succeeded) -> Outcome:
        self.server.rendered(outcome.seconds)
        try:
            await self._collecting.collect(self.leased, self.server, outcome, check_server=self._check_server)
        except LostMeanwhile:
            failure = self._failure(FailureClass.SERVER_LOST, "the server went away before its result was fetched")
            return Failed(outcome.prompt_id, failure)
        except ComfyError as error:  # the server answers, and what it hands out is no result
            # A file that was found without its history may be what a dying server had begun to write.
            kind = FailureClass.OUTPUT if outcome.evidence == "history" else FailureClass.SERVER_LOST
            failure = error.failure(self.server.name, outcome.prompt_id)
            return Failed(outcome.prompt_id, replace(failure, kind=kind))
        except (FileTaken, Unkeepable) as error:
            failure = self._failure(FailureClass.OUTPUT, str(error))
            await self._end(failure, GiveUp(FailureClass.OUTPUT))
        return outcome

    def _check_server(self) -> None:
        """While a result cannot be fetched: whether it is worth waiting."""
        if self._is_away():
            raise ServerAway
        if self._is_to_be_left():
            raise LostMeanwhile

    async def _wait_for_server(self) -> None:
        """Give the job back, uncharged: it waits for its server or another, and the server's copy may be taken over.

        Whether the prompt is a suspect shows when the server is back without it, or another has taken it. Where one
        strike more would end it as poison, no other server takes it before.
        """
        server, watch = self.server, self._watch
        away = server.seconds_down()
        executed = 0.0
        if watch is not None and not self.is_collecting and self._was_running(watch, is_gone=watch.is_ours):
            executed = max(self._noted_seconds, self._seconds_running(watch), JUST_BEGUN)
        if watch is not None:
            server.client.forget(watch)
        words = f"it waits for a server: {server.name} has not answered for {away:.0f} s ({server.reason})"
        failure = self._failure(FailureClass.SERVER_LOST, words)
        log.info("%s: %s", self.leased.config_name, words)
        lost = server.untold_loss(self.leased.prompt_id)
        if lost:
            await self._alert(EventName.ALERT_SERVER, f"gone with {lost} of our prompts: {server.reason}")
        is_held = executed > 0 and self.leased.tally.strikes + 1 >= self._rules.policy.poison_limit
        await write_with_retry(
            self._store,
            lambda: self._store.run(ops.wait_for_server, self.leased.lease, failure, away, executed, is_held=is_held),
        )

    async def _settle(self, failure: Failure) -> None:
        """Decide by the class of the failure, and record it."""
        if failure.kind is FailureClass.CANCELLED:  # of an earlier life: whoever holds the lease is wanted
            failure = replace(failure, kind=FailureClass.INTERRUPTED)
        if failure.kind is FailureClass.OOM:
            await self._free_memory()
        if failure.kind is FailureClass.SERVER_LOST:
            self._fleet.probe_now(self.server)
            lost = 0 if self._is_left else self.server.untold_loss(self.leased.prompt_id)
            if lost:
                await self._alert(EventName.ALERT_SERVER, f"it has lost {lost} of our prompts: {failure.message}")
        lacks = failure.kind is FailureClass.MISSING or (failure.kind is FailureClass.INVALID and failure.by_choice)
        if lacks and self._fleet.is_alternative_to(self.server, self.leased.avoids):
            await self._go_elsewhere(failure)
            return
        watch = self._watch
        was_running = (
            failure.kind is FailureClass.SERVER_LOST
            and watch is not None
            and self._was_running(watch, is_gone=watch.is_ours and watch.is_over)
        )
        decision = decide(
            failure.kind,
            self.leased.tally,
            self._rules.policy,
            suspect=was_running,
            chance=random.random(),
            by_choice=failure.by_choice,
        )
        if isinstance(decision, GiveUp) and decision.kind is FailureClass.POISON:
            times = self.leased.tally.strikes + 1
            words = f"its server died {times} times while it ran; not tried again. The last time: {failure.message}"
            failure = replace(failure, kind=FailureClass.POISON, message=words)
        await self._end(failure, decision)

    def _was_running(self, watch: Watch, *, is_gone: bool) -> bool:
        """Whether the prompt was being executed when its server was lost, as far as anyone can tell.

        `is_gone`: it was accepted, and what the server had is lost or out of reach.
        """
        was_first = is_gone and self.server.forgot(self.leased.prompt_id)
        if self._noted_seconds > 0 or watch.running_since is not None:
            return True
        return is_gone and ((was_first and not watch.progress.ahead) or self.leased.is_suspect)

    def _is_too_small(self, failure: Failure) -> bool:
        """Whether memory was short here again after it had been freed, and there is another server."""
        again = failure.kind is FailureClass.OOM and self.leased.tally.retries_attempted > 0
        return again and self._fleet.is_alternative_to(self.server, self.leased.avoids)

    async def _go_elsewhere(self, failure: Failure) -> None:
        again = Retry(0.0, charged=False)
        await write_with_retry(
            self._store, lambda: self._store.run(ops.requeue_job, self.leased.lease, failure, again, avoid_server=True)
        )

    async def _end(self, failure: Failure, decision: Retry | GiveUp) -> None:
        log.info("%s: %s: %s", self.leased.config_name, failure.kind, failure.message)
        if isinstance(decision, Retry):
            avoid = self._is_too_small(failure)
            await write_with_retry(
                self._store,
                lambda: self._store.run(ops.requeue_job, self.leased.lease, failure, decision, avoid_server=avoid),
            )
        else:
            strays = await write_with_retry(
                self._store, lambda: self._store.run(ops.fail_job, self.leased.lease, failure, decision)
            )
            await self._collecting.remove(strays)

    async def _free_memory(self) -> None:
        """Make the server let go of its models, once it renders nothing else of ours, and see that memory came free.

        It gets nothing new meanwhile.
        """
        self.server.pauses += 1
        self.server.freeing.add(self.leased.prompt_id)
        try:
            await wait_while(lambda: self.server.is_rendering_ours, FREE_SECONDS)
            freed = await self.server.client.free(timeout=FREE_SECONDS)
            if not freed.came_free:
                await self._alert(EventName.ALERT_MEMORY, "memory did not come free after an out-of-memory error")
        except ComfyError as error:
            await self._alert(EventName.ALERT_MEMORY, f"memory could not be freed: {error.message}")
        finally:
            self.server.freeing.discard(self.leased.prompt_id)
            self.server.pauses -= 1

    async def _alert(self, name: EventName, message: str) -> None:
        event = Event(name, job_id=self.leased.lease.job_id, server=self.server.name, message=message)
        await write_with_retry(self._store, lambda: self._store.run(ops.add_event, event))
