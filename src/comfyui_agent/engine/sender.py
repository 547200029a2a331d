"""Bringing a job's prompt to its server: built, given what the server needs, posted once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.errors import (
    AcceptanceUnknown,
    ComfyError,
    NotAccepted,
    PromptRejected,
    Unreachable,
    UploadRefused,
)
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.sent_prompt import filled_in
from comfyui_agent.domain.texts import json_text
from comfyui_agent.engine.live_feed import LiveFeed
from comfyui_agent.engine.prompt_builder import BuiltPrompt, NotBuildable
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.reuse import ReusedResult
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased

log = logging.getLogger(__name__)

TICK = 0.5
LARGEST_SENT = 64 * 1024
WITH_PREVIEWS = {"preview_method": "auto"}
"""Asks the server for pictures of unfinished work, however it was started; older ones ignore it."""


class Probing(Protocol):
    """What sending needs of the fleet."""

    def probe_now(self, server: FleetServer) -> None: ...

    def mark_down(self, server: FleetServer, reason: str) -> None: ...


class Builder(Protocol):
    async def prepare(self, leased: Leased) -> BuiltPrompt: ...


class Inputs(Protocol):
    """What sending needs of the server's inputs."""

    async def fit(self, graph: Graph, pictures: str | None, server: FleetServer) -> Graph: ...

    def forget(self, server: str) -> None: ...

    async def remedy(self, server: FleetServer, class_type: str, name: str, value: str) -> str: ...


class FindsResults(Protocol):
    async def find(self, leased: Leased, graph: Graph, server: FleetServer) -> ReusedResult | None: ...


class SendingRun(Protocol):
    """What sending needs of a run."""

    leased: Leased
    """Knows what was filled in for the server once that is known, whatever becomes of the post."""

    @property
    def server(self) -> FleetServer: ...

    def is_given_up(self) -> bool:
        """Whether an answer of the server is not worth waiting for."""


@dataclass(frozen=True)
class Sender:
    """Sends prompts. A post is never repeated: one whose answer was lost is taken over by its id."""

    recorder: Recorder
    fleet: Probing
    builder: Builder
    inputs: Inputs
    reuse: FindsResults
    clock: Clock
    wants_previews: Callable[[], bool]
    """Asked at the moment of sending."""
    feed: LiveFeed = field(default_factory=LiveFeed)

    async def begin(self, run: SendingRun) -> Watch | ReusedResult | None:
        """Send the prompt of a run, or take over one that was sent. None: nothing was sent, and that is recorded.

        A recorded result is returned in place of sending, where the job may have one.
        """
        leased, client = run.leased, run.server.client
        try:
            built = await self.builder.prepare(leased)
        except NotBuildable as error:
            if leased.is_taken_over:  # a prompt that is at its server needs no template any more
                return client.take_over(leased.prompt_id)
            await self.recorder.write(ops.refuse_job, leased.lease, Failure(FailureClass.INVALID, str(error)))
            return None
        if built.client is not None:
            self.feed.begin(run.server.name, leased.prompt_id, built.client)
        if leased.is_taken_over:
            return client.take_over(leased.prompt_id, built.graph, built.expected)
        return await self._send(run, built)

    async def _send(self, run: SendingRun, built: BuiltPrompt) -> Watch | ReusedResult | None:
        """Post the prompt and watch it. None: nothing reached the server, and the job waits again."""
        server, prompt_id = run.server, run.leased.prompt_id
        if (reused := await self.reuse.find(run.leased, built.plain, server)) is not None:
            return reused
        if server.out_of_work is not None or run.leased.is_ahead:  # since the lease
            await self.recorder.write(ops.return_unsent, run.leased.lease)
            return None
        try:
            return await self._fit_and_post(run, built)
        except AcceptanceUnknown as error:
            log.warning("%s: %s", run.leased.config_name, error.message)
            self.fleet.probe_now(server)
            return server.client.take_over(prompt_id, built.graph, built.expected)
        except (PromptRejected, NotAccepted, UploadRefused):
            raise
        except ComfyError as error:
            await self.recorder.write(ops.return_unsent, run.leased.lease)
            if not isinstance(error, Unreachable):
                server.misbehaved()
            server.at_work.discard(prompt_id)  # it never got there
            self.fleet.mark_down(server, error.message)
            return None

    async def explain(self, error: ComfyError, leased: Leased, server: FleetServer) -> Failure:
        """The failure of a prompt that was refused, with the nearest choice where one was meant."""
        if isinstance(error, NotAccepted):
            server.misbehaved()
        failure = error.failure(server.name, leased.prompt_id)
        if isinstance(error, PromptRejected) and error.choice is not None:
            remedy = await self.inputs.remedy(server, *error.choice)
            failure = replace(failure, message=failure.message + remedy)
        return failure

    async def _fit_and_post(self, run: SendingRun, built: BuiltPrompt) -> Watch:
        """Send the prompt with its inputs. A server that has lost the job's input files is given them again."""
        try:
            return await self._post(run, await self._fit(run, built))
        except PromptRejected:
            self.inputs.forget(run.server.name)
            if run.leased.pictures is None:
                raise
        return await self._post(run, await self._fit(run, built))

    async def _fit(self, run: SendingRun, built: BuiltPrompt) -> BuiltPrompt:
        fitting = partial(self.inputs.fit, built.graph, run.leased.pictures, run.server)
        graph = await self.recorder.outlast(
            fitting, "an input picture cannot be fetched", job_id=run.leased.lease.job_id
        )
        sent = json_text(filled_in(built.plain, graph))
        if len(sent) <= LARGEST_SENT:
            run.leased = replace(run.leased, lease=replace(run.leased.lease, sent=sent))
        return replace(built, graph=graph)

    async def _post(self, run: SendingRun, built: BuiltPrompt) -> Watch:
        """A server that takes the post and does not answer is waited for until it is given up."""
        posting = asyncio.create_task(self._post_in_turn(run.leased, run.server, built))
        try:
            while not await self.clock.first_of({posting}, TICK):
                if run.is_given_up():
                    raise AcceptanceUnknown(f"{run.server.name} did not answer the prompt: {run.server.reason}")
            return posting.result()
        finally:
            posting.cancel()

    async def _post_in_turn(self, leased: Leased, server: FleetServer, built: BuiltPrompt) -> Watch:
        async with server.sending:
            await self.clock.wait_while(lambda: bool(server.freeing))  # it would take the memory that is being freed
            extra_data = WITH_PREVIEWS if built.client or self.wants_previews() else {}
            targets = None
            if built.client is not None:
                extra_data, targets = {**extra_data, **built.client.extra_data}, built.client.targets
            watch = await server.client.submit(
                built.graph, leased.prompt_id, extra_data=extra_data or None, expected=built.expected, targets=targets
            )
            server.accepted(leased.prompt_id)
            self.feed.accepted(server.name, leased.prompt_id)
            return watch
