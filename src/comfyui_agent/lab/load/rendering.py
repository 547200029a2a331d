"""Having one prompt rendered by one server, and measuring every part of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, ComfyError
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import Graph, PromptId, mint_prompt_id
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.load.rows import Row, RowStatus, RunClock
from comfyui_agent.lab.payloads import Payload, PayloadError, fitted

CANCEL_SECONDS = 5.0
ALL_BACK_SECONDS = 15.0
LONGEST_ERROR = 500
REST_SECONDS = 5.0
REJECTED = (FailureClass.INVALID.value, FailureClass.MISSING.value)


@dataclass
class Target:
    """A server under load, with the payloads as they fit it."""

    client: ComfyClient
    payloads: tuple[Payload, ...]
    open: set[PromptId] = field(default_factory=set)
    """Prompts that it has and that have not ended."""
    unheard: int = 0
    """Completed prompts whose end was not heard on the websocket, but found by asking."""
    lost: list[float] = field(default_factory=list)
    """When prompts were lost with it, in seconds of the run."""
    rests_until: float = 0.0
    """After a loss it gets nothing for a while: who answers at once, with an error, must not draw all the load."""

    @classmethod
    async def of(cls, client: ComfyClient, payloads: tuple[Payload, ...]) -> Target:
        """PayloadError if the server lacks something; ComfyError if it cannot be asked."""
        return cls(client, tuple([await fitted(payload, client) for payload in payloads]))

    @property
    def name(self) -> str:
        return str(self.client.address)

    def outputs(self, which: int) -> frozenset[str]:
        """The nodes of a payload that the server runs for their own sake."""
        return self.payloads[which].outputs

    def needed(self, which: int) -> frozenset[str]:
        """Those, and all that lead to them: the others never run."""
        return self.payloads[which].needed

    def prompt(self, index: int, chance: random.Random, prefix: str, *, same: bool) -> tuple[int, Graph]:
        """Which payload prompt number `index` is, and what is sent."""
        which = index % len(self.payloads)
        payload = self.payloads[which]
        return which, payload.same(index, prefix) if same else payload.varied(index, chance, prefix)


@dataclass(frozen=True)
class Rendering:
    """How prompts are sent and measured in one run."""

    clock: RunClock
    prefix: str
    chance: random.Random
    timeout: float
    same_seeds: bool = False

    async def render(self, target: Target, index: int, level: float = 0.0) -> Row:
        """Send a prompt and follow it until its result can be fetched by its URL: a row, whatever happens.

        Cancelled, the prompt stays among those that the target has open.
        """
        which, graph = target.prompt(index, self.chance, self.prefix, same=self.same_seeds)
        prompt_id = mint_prompt_id()
        began = time.monotonic()
        name = target.payloads[which].name
        row = Row(index, prompt_id, RowStatus.FAILED, server=target.name, workflow=name, level=level)
        row = replace(row, seconds=self.clock.seconds_of(began))
        target.open.add(prompt_id)
        following = asyncio.create_task(self._follow(target, which, graph, row, began))
        try:
            done, _ = await asyncio.wait({following}, timeout=self.timeout)
        finally:
            await end_tasks([following])
        if done:
            row = following.result()
        else:
            row = replace(
                row,
                status=RowStatus.TIMEOUT,
                duration_sec=time.monotonic() - began,
                error=f"no result after {self.timeout:g} s",
                failure_class=FailureClass.TIMEOUT.value,
            )
            await take_back(target, prompt_id)
        target.open.discard(prompt_id)
        ended = row.ended_seconds
        if row.failure_class == FailureClass.SERVER_LOST.value:
            target.lost.append(ended)
            target.rests_until = time.monotonic() + REST_SECONDS
        return replace(row, started_at=self.clock.at(row.seconds), ended_at=self.clock.at(ended))

    async def _follow(self, target: Target, which: int, graph: Graph, row: Row, began: float) -> Row:
        try:
            return await self._measure(target, which, graph, row, began)
        except ComfyError as error:
            return self._failed(row, began, error.message, error.kind)

    async def _measure(self, target: Target, which: int, graph: Graph, row: Row, began: float) -> Row:
        watch = await _submit(target.client, graph, PromptId(row.prompt_id))
        outcome = await watch.outcome()
        known_at = time.monotonic()
        target.unheard += not watch.heard.end
        row = replace(
            row,
            cached=bool(outcome.cached_nodes) and target.needed(which) - outcome.cached_nodes <= target.outputs(which),
            queue_sec=_waited(watch, began),
        )
        if isinstance(outcome, Failed):
            return self._failed(row, began, outcome.failure.message, outcome.failure.kind)
        return await self._fetch(target, outcome, row, began, known_at)

    async def _fetch(self, target: Target, outcome: Succeeded, row: Row, began: float, known_at: float) -> Row:
        """The duration ends when the first result answers; reading them all through is the transfer."""
        transfers = [await target.client.read_through(file) for file in outcome.results.kept]
        there = transfers[0].answered_at if transfers else known_at
        return replace(
            row,
            status=RowStatus.COMPLETED,
            duration_sec=there - began,
            exec_sec=outcome.seconds,
            transfer_sec=sum(each.ended_at - each.asked_at for each in transfers),
            images=len(transfers),
            bytes=sum(each.size for each in transfers),
        )

    def _failed(self, row: Row, began: float, message: str, kind: FailureClass) -> Row:
        text = printable(message)[:LONGEST_ERROR]
        return replace(row, duration_sec=time.monotonic() - began, error=text, failure_class=kind.value)


def rejection(row: Row) -> PayloadError:
    return PayloadError(f"{row.server} does not take {row.workflow}, nothing was measured: {row.error}")


async def take_back(target: Target, prompt_id: PromptId) -> None:
    """Nobody waits for this prompt any more: it shall not burden what is measured next."""
    with contextlib.suppress(ComfyError, asyncio.TimeoutError):
        await target.client.cancel(prompt_id, timeout=CANCEL_SECONDS)


async def take_all_back(targets: Iterable[Target]) -> list[str]:
    """Leave nothing behind at the servers; the ids of prompts that could not be taken back."""
    busy = [target for target in targets if target.open]
    return [prompt_id for left in await asyncio.gather(*map(_empty, busy)) for prompt_id in left]


async def _empty(target: Target) -> Iterable[str]:
    wanted = set(target.open)
    try:
        left = await target.client.cancel_all(wanted, timeout=ALL_BACK_SECONDS)
    except ComfyError:
        return wanted
    target.open.clear()
    return left


async def _submit(client: ComfyClient, graph: Graph, prompt_id: PromptId) -> Watch:
    try:
        return await client.submit(graph, prompt_id)
    except AcceptanceUnknown:  # it may run all the same: find out
        return client.take_over(prompt_id, graph)


def _waited(watch: Watch, began: float) -> float | None:
    """From the post to the start of execution, if the start was heard when it happened."""
    if not watch.heard.start or watch.running_since is None:
        return None
    return max(0.0, watch.running_since - began)
