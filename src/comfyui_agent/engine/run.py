"""One run of one job: from its lease to its end, or until someone else has it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from typing_extensions import assert_never

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.errors import ComfyError, PromptRejected
from comfyui_agent.comfy.outcomes import Failed, Outcome, Succeeded
from comfyui_agent.comfy.results import Results
from comfyui_agent.comfy.watch import Progress, Watch
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.domain.texts import json_text
from comfyui_agent.engine.collector import Collector, LostMeanwhile, ServerAway, Unkeepable
from comfyui_agent.engine.early_downloads import EarlyDownloads
from comfyui_agent.engine.patience import (
    EndRun,
    PatienceLimits,
    Wait,
    WaitDecision,
    WatchedPrompt,
    WatchedServer,
    decide_wait,
    is_away,
    is_to_be_left,
)
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.reuse import ReusedResult
from comfyui_agent.engine.sender import Sender
from comfyui_agent.engine.server_inputs import Unfit
from comfyui_agent.engine.settlement import Settlement
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import FileTaken, LeaseLost, StoreError
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)

TICK = 0.5
RUNNING_IS_NOTED_AFTER = 1.0
RUNNING_IS_NOTED_EVERY = 10.0
INTERRUPT_SECONDS = 10.0
JUST_BEGUN = 0.001
"""Seconds of execution of a prompt that nobody saw run, and that must have."""


class RunFleet(Protocol):
    """What a run needs of the fleet."""

    def is_alternative_to(self, server: FleetServer) -> bool: ...

    def set_aside(self, server: FleetServer, prompt_id: str, reason: str) -> None: ...

    def probe_now(self, server: FleetServer) -> None: ...


@dataclass(frozen=True)
class RunParts:
    """What all runs of an agent share."""

    fleet: RunFleet
    sender: Sender
    collector: Collector
    settlement: Settlement
    recorder: Recorder
    limits: PatienceLimits
    clock: Clock
    wake: Callable[[], None]
    """A server has room again."""


class Run:
    """Sends or takes over one prompt, watches it, and records how it ended."""

    def __init__(self, leased: Leased, server: FleetServer, parts: RunParts) -> None:
        self.leased = leased
        """Knows what was filled in for the server once that is known, whatever becomes of the post."""
        self.server = server
        self._parts = parts
        limits, timeout = parts.limits, leased.timeout_seconds
        self._limits = replace(limits, timeout=timeout) if timeout else limits
        self._watch: Watch | None = None
        self._noted_seconds = leased.running_seconds or 0.0
        self._is_left = False
        self._early = EarlyDownloads()
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
            message = f"E3 itself failed: {type(error).__name__}: {error}"
            await self._settle(self._failed(FailureClass.EXECUTION, message).failure)
        finally:
            self.server.ended(self.leased.prompt_id)
            self.server.fetching.discard(self.leased.prompt_id)
            self._parts.sender.feed.end(self.server.name, self.leased.prompt_id)
            self._early.discard()

    async def _live(self) -> None:
        try:
            outcome = await self._render()
            if outcome is not None and outcome.entry is not None:
                self._keep_for_client(outcome.entry.told)
            if isinstance(outcome, Succeeded):
                outcome = await self._collect(outcome)
        except ServerAway:
            await self._wait_for_server()
            return
        if isinstance(outcome, Failed):
            await self._settle(outcome.failure)

    # The prompt.

    async def _render(self) -> Outcome | None:
        """Bring the prompt to its server and wait for its end. None: it was not sent, and that is recorded."""
        try:
            begun = await self._parts.sender.begin(self)
            if begun is None:
                return None
            if isinstance(begun, ReusedResult):
                return await self._take_reused(begun)
            self._watch = begun
            return await self._wait(begun)
        except Unfit as error:
            return self._failed(error.kind, error.message)
        except ComfyError as error:
            failure = await self._parts.sender.explain(error, self.leased, self.server)
            if isinstance(error, PromptRejected) and error.answer is not None:
                self._keep_for_client({"rejected": error.answer})
            return Failed(self.leased.prompt_id, failure)

    async def _take_reused(self, reused: ReusedResult) -> Outcome | None:
        """Give the job a recorded result."""
        self.is_collecting = True
        try:
            await self._parts.collector.take_over(self.leased, reused.files, reused.origin)
        except LostMeanwhile:
            return self._failed(FailureClass.SERVER_LOST, "copies of a recorded result were lost: it is copied again")
        except (FileTaken, Unkeepable) as error:
            await self._parts.settlement.give_up(
                self.leased, self._failed(FailureClass.OUTPUT, str(error)).failure, GiveUp(FailureClass.OUTPUT)
            )
        return None

    def _keep_for_client(self, entry: Mapping[str, Any]) -> None:
        """What the server said about a posted prompt is recorded with its end."""
        if self.leased.is_posted:
            self.leased = replace(self.leased, lease=replace(self.leased.lease, entry=json_text(entry)))

    async def _wait(self, watch: Watch) -> Outcome:
        """The end of the prompt, or of our patience with it. ServerAway if the server is given up."""
        watch.when_succeeded(lambda: self._fetch_early(watch))
        while True:
            with contextlib.suppress(TimeoutError):
                return await watch.outcome(TICK)
            decision = self._decide(watch, self._server_facts())
            if decision is not Wait.GIVE_SERVER_UP:
                await self._note_running(watch)
            if decision is Wait.TAKE_BACK:
                if await self._take_back(watch):
                    return self._failed(FailureClass.INTERRUPTED, "its server is being drained")
                decision = self._decide(watch, replace(self._server_facts(), out_of_work=None))
            match decision:
                case Wait.ON | Wait.TAKE_BACK:
                    continue
                case Wait.GIVE_SERVER_UP:
                    raise ServerAway
                case EndRun():
                    return await self._end_early(watch, decision)
                case _:
                    assert_never(decision)

    def _fetch_early(self, watch: Watch) -> None:
        with contextlib.suppress(ComfyError):  # said when its history is read
            heard = Results.read(watch.heard.outputs)
            self._parts.collector.begin_early(self.leased, self.server, heard, self._early)

    def _decide(self, watch: Watch, server: WatchedServer) -> WaitDecision:
        progress = watch.progress
        prompt = WatchedPrompt(
            prompt_id=watch.prompt_id,
            stage=progress.stage,
            ahead=progress.ahead,
            changed_at=progress.changed_at,
            seconds_running=self._seconds_running(watch),
            is_ours=watch.is_ours,
            unreachable_since=watch.judged.unreachable_since,
            trouble=watch.judged.trouble,
        )
        return decide_wait(self._parts.clock.now(), server, prompt, self._limits)

    def _server_facts(self) -> WatchedServer:
        server = self.server
        return WatchedServer(
            name=server.name,
            health=server.health,
            reason=server.reason,
            since=server.since,
            answered_at=server.answered_at,
            seconds_down=server.seconds_down(),
            is_heard=server.client.websocket_is_open,
            has_alternative=self._parts.fleet.is_alternative_to(server),
            out_of_work=server.out_of_work,
        )

    def is_given_up(self) -> bool:
        """Whether an answer of the server is not worth waiting for."""
        facts = self._server_facts()
        return is_away(facts, self._limits) or is_to_be_left(facts)

    async def _take_back(self, watch: Watch) -> bool:
        """Take the prompt from the server's queue. False if it has begun, or that could not be done now."""
        try:
            result = await self.server.client.cancel(watch.prompt_id, timeout=INTERRUPT_SECONDS, interrupt=False)
        except ComfyError as error:
            log.info("%s could not be taken back yet: %s", self.leased.config_name, error.message)
            return False
        if result is Cancellation.LEFT_RUNNING:
            watch.see_running()
        return result is Cancellation.REMOVED

    async def _note_running(self, watch: Watch) -> None:
        """Note now and then for how long it has been executed; not for short prompts."""
        seconds = self._seconds_running(watch)
        if seconds >= self._noted_seconds + (RUNNING_IS_NOTED_EVERY if self._noted_seconds else RUNNING_IS_NOTED_AFTER):
            self._noted_seconds = seconds
            await self._parts.recorder.write(ops.note_running, self.leased.lease, seconds)

    def _seconds_running(self, watch: Watch) -> float:
        """Seconds of execution, those before a take-over included where they were noted."""
        if watch.running_since is None:
            return 0.0
        return self._parts.clock.now() - watch.running_since + (self.leased.running_seconds or 0.0)

    async def _end_early(self, watch: Watch, end: EndRun) -> Outcome:
        """Take the prompt back. Its result counts if it ended after all; a server that does not let go is set aside."""
        self._is_left = self._is_left or end.leaves_server
        if end.server_misbehaved:
            self.server.misbehaved()
        failure, prompt_id = end.failure, watch.prompt_id
        is_timeout = failure.kind is FailureClass.TIMEOUT
        if is_timeout:
            self._parts.fleet.set_aside(self.server, prompt_id, failure.message)
            await self._parts.settlement.alert(
                self.leased, self.server, EventName.ALERT_SERVER, f"set aside: {failure.message}"
            )
        try:
            result = await self.server.client.cancel(prompt_id, timeout=INTERRUPT_SECONDS)
        except ComfyError as error:
            log.warning("%s could not be interrupted: %s", self.leased.config_name, error.message)
            return Failed(prompt_id, failure)
        if result.runs_on and is_timeout:
            await self._parts.recorder.write(ops.note_stuck, self.server.name, prompt_id, failure.message)
        if result is Cancellation.ENDED_BEFORE:
            with contextlib.suppress(TimeoutError):
                outcome = await watch.outcome(INTERRUPT_SECONDS)
                return outcome if isinstance(outcome, Succeeded) else Failed(prompt_id, failure)
        self._parts.fleet.probe_now(self.server)
        return Failed(prompt_id, failure)

    # Its end.

    async def _collect(self, outcome: Succeeded) -> Outcome | None:
        """Bring the result home and record it; the failure if there is none after all."""
        server, prompt_id, was_full = self.server, outcome.prompt_id, self.server.room <= 0
        server.ended(prompt_id)
        server.fetching.add(prompt_id)
        server.rendered(outcome.seconds)
        self.is_collecting = True
        if was_full:  # else it was offered what waits, and has taken what it may
            self._parts.wake()
        try:
            await self._parts.collector.collect(self.leased, server, outcome, self._early, self._check_server)
        except LostMeanwhile:
            return self._failed(FailureClass.SERVER_LOST, "the server went away before its result was fetched")
        except ComfyError as error:  # the server answers, and what it hands out is no result
            # A file that was found without its history may be what a dying server had begun to write.
            kind = FailureClass.OUTPUT if outcome.evidence == "history" else FailureClass.SERVER_LOST
            return Failed(prompt_id, replace(error.failure(server.name, prompt_id), kind=kind))
        except (FileTaken, Unkeepable) as error:
            failed = self._failed(FailureClass.OUTPUT, str(error))
            await self._parts.settlement.give_up(self.leased, failed.failure, GiveUp(FailureClass.OUTPUT))
        return None

    def _check_server(self) -> None:
        """While a result cannot be fetched: whether it is worth waiting."""
        facts = self._server_facts()
        if is_away(facts, self._limits):
            raise ServerAway
        if is_to_be_left(facts):
            raise LostMeanwhile

    async def _settle(self, failure: Failure) -> None:
        watch, was_running = self._watch, False
        if failure.kind is FailureClass.SERVER_LOST and watch is not None:
            was_running = self._was_running(watch, is_gone=watch.is_ours and watch.is_over)
        await self._parts.settlement.settle(
            self.leased, self.server, failure, was_running=was_running, is_left=self._is_left
        )

    async def _wait_for_server(self) -> None:
        watch, executed = self._watch, 0.0
        if watch is not None and not self.is_collecting and self._was_running(watch, is_gone=watch.is_ours):
            executed = max(self._noted_seconds, self._seconds_running(watch), JUST_BEGUN)
        if watch is not None:
            self.server.client.forget(watch)
        await self._parts.settlement.wait_for_server(self.leased, self.server, executed)

    def _was_running(self, watch: Watch, *, is_gone: bool) -> bool:
        """Whether the prompt was being executed when its server was lost, as far as anyone can tell.

        `is_gone`: it was accepted, and what the server had is lost or out of reach.
        """
        was_first = is_gone and self.server.forgot(self.leased.prompt_id)
        if self._noted_seconds > 0 or watch.running_since is not None:
            return True
        return is_gone and ((was_first and not watch.progress.ahead) or self.leased.is_suspect)

    def _failed(self, kind: FailureClass, message: str) -> Failed:
        prompt_id = self.leased.prompt_id
        return Failed(prompt_id, Failure(kind, message, server=self.server.name, prompt_id=prompt_id))
