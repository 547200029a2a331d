"""One prompt at one server, with each part of its time measured."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, ComfyError
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.comfy.watch import Moment, Progress, Watch
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import Graph, PromptId, mint_prompt_id
from comfyui_agent.lab.payloads import Payload

CANCEL_SECONDS = 5.0


@dataclass(frozen=True)
class MeasuredPrompt:
    """A prompt, from the post to its results. Times are seconds; what was not measured is None."""

    prompt_id: PromptId
    sent_at: float
    """A monotonic time."""
    duration_sec: float = 0.0
    """Until the first result answered under its URL; else until the failure was known."""
    ended_sec: float | None = None
    """Until the end of the prompt was known."""
    queue_sec: float | None = None
    """From the post to the start of execution, if the start was heard when it happened."""
    exec_sec: float | None = None
    """By the server's own clock."""
    transfer_sec: float | None = None
    """For reading all results through, which is no part of the duration."""
    images: int = 0
    bytes: int = 0
    cached_nodes: frozenset[str] = frozenset()
    is_cached: bool = False
    """Whether the server's cache answered: of the needed nodes, only those that save ran."""
    is_unheard: bool = False
    """Whether the end was found by asking, not heard on the websocket."""
    moments: tuple[Moment, ...] = ()
    failure: Failure | None = None


class Prompting:
    """Sends one prompt of a payload and measures it. `graph` is what is sent."""

    def __init__(self, client: ComfyClient, payload: Payload, graph: Graph) -> None:
        self.prompt_id = mint_prompt_id()
        self._client = client
        self._payload = payload
        self._graph = graph
        self._watch: Watch | None = None

    @property
    def progress(self) -> Progress | None:
        """How far it is; None before the server has accepted it."""
        return None if self._watch is None else self._watch.progress

    async def measure(self, timeout: float) -> MeasuredPrompt:
        """Send it and follow it until its results are read; a failure is part of the result. A prompt that takes too
        long is taken back. If this is cancelled, the caller must take it back."""
        sent = MeasuredPrompt(self.prompt_id, time.monotonic())
        following = asyncio.create_task(self._follow(sent))
        try:  # before Python 3.12, `wait_for` swallows a cancellation that meets the end
            done, _ = await asyncio.wait({following}, timeout=timeout)
        finally:
            await end_tasks([following])
        if done:
            return following.result()
        late = _failed(sent, Failure(FailureClass.TIMEOUT, f"no result after {timeout:g} s"))
        await take_back(self._client, self.prompt_id)
        return late

    async def _follow(self, sent: MeasuredPrompt) -> MeasuredPrompt:
        try:
            watch = self._watch = await self._submit()
            outcome = await watch.outcome()
            seconds = time.monotonic() - sent.sent_at
            has_started = watch.heard.start and watch.running_since is not None
            cached = outcome.cached_nodes
            ended = replace(
                sent,
                duration_sec=seconds,
                ended_sec=seconds,
                queue_sec=max(0.0, (watch.running_since or 0.0) - sent.sent_at) if has_started else None,
                cached_nodes=cached,
                is_cached=bool(cached) and self._payload.needed - cached <= self._payload.outputs,
                is_unheard=not watch.heard.end,
            )
            if isinstance(outcome, Failed):
                return _failed(ended, outcome.failure)
            return replace(await self._read(outcome, ended), moments=tuple(watch.heard.moments))
        except ComfyError as error:
            return _failed(sent, error.failure())

    async def _submit(self) -> Watch:
        try:
            return await self._client.submit(self._graph, self.prompt_id)
        except AcceptanceUnknown:  # it may run all the same: find out
            return self._client.take_over(self.prompt_id, self._graph)

    async def _read(self, outcome: Succeeded, ended: MeasuredPrompt) -> MeasuredPrompt:
        """The duration ends when the first result answers; reading them all through is the transfer."""
        transfers = [await self._client.read_through(file) for file in outcome.results.kept]
        return replace(
            ended,
            duration_sec=transfers[0].answered_at - ended.sent_at if transfers else ended.duration_sec,
            exec_sec=outcome.seconds,
            transfer_sec=sum(each.ended_at - each.asked_at for each in transfers),
            images=len(transfers),
            bytes=sum(each.size for each in transfers),
        )


def _failed(so_far: MeasuredPrompt, failure: Failure) -> MeasuredPrompt:
    return replace(so_far, duration_sec=time.monotonic() - so_far.sent_at, failure=failure)


async def take_back(client: ComfyClient, prompt_id: PromptId) -> None:
    """Cancel a prompt at its server, so that it does not disturb the next measurement."""
    with contextlib.suppress(ComfyError, asyncio.TimeoutError):
        await client.cancel(prompt_id, timeout=CANCEL_SECONDS)
