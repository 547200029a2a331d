"""Runs one prompt of a load test at one of its servers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.measurement.machine import RunClock
from comfyui_agent.lab.measurement.measured_prompt import MeasuredPrompt, Prompting
from comfyui_agent.lab.payloads import Payload, PayloadError
from comfyui_agent.lab.reports.load import Row, RowStatus

ALL_BACK_SECONDS = 15.0
LONGEST_ERROR = 500
REST_SECONDS = 5.0
MEASURED = ("prompt_id", "duration_sec", "queue_sec", "exec_sec", "transfer_sec", "images", "bytes")
REJECTED = (FailureClass.INVALID.value, FailureClass.MISSING.value)


@dataclass
class Target:
    """A server under load, with the payloads as they fit it."""

    client: ComfyClient
    payloads: tuple[Payload, ...]
    open: set[PromptId] = field(default_factory=set)
    """Prompts that were sent to it and have not ended."""
    unheard: int = 0
    """Completed prompts whose end was found by asking, not heard on the websocket."""
    lost: list[float] = field(default_factory=list)
    """When prompts were lost with it, in seconds of the run."""
    rests_until: float = 0.0
    """After a loss it gets nothing for a while: a server that fails at once would draw all the load."""

    @property
    def name(self) -> str:
        return str(self.client.address)


@dataclass(frozen=True)
class Rendering:
    """How prompts are sent and measured in one run."""

    clock: RunClock
    prefix: str
    chance: random.Random
    timeout: float
    same_seeds: bool = False

    async def render(self, target: Target, index: int, level: float = 0.0) -> Row:
        """Send a prompt and follow it to its result. Every end is a row; a cancelled prompt stays in `target.open`."""
        payload = target.payloads[index % len(target.payloads)]
        graph = payload.same(index, self.prefix) if self.same_seeds else payload.varied(index, self.chance, self.prefix)
        prompting = Prompting(target.client, payload, graph)
        target.open.add(prompting.prompt_id)
        measured = await prompting.measure(self.timeout)
        target.open.discard(prompting.prompt_id)
        row = self._row(index, measured, target.name, payload.name, level)
        target.unheard += row.is_completed and measured.is_unheard
        if row.failure_class == FailureClass.SERVER_LOST.value:
            target.lost.append(row.ended_seconds)
            target.rests_until = time.monotonic() + REST_SECONDS
        return row

    def _row(self, index: int, measured: MeasuredPrompt, server: str, workflow: str, level: float) -> Row:
        failure = measured.failure
        status = RowStatus.COMPLETED
        if failure is not None:
            status = RowStatus.TIMEOUT if failure.kind is FailureClass.TIMEOUT else RowStatus.FAILED
        seconds = self.clock.seconds_of(measured.sent_at)
        return Row(
            index=index,
            status=status,
            **{key: getattr(measured, key) for key in MEASURED},
            cached=measured.is_cached,
            error=None if failure is None else printable(failure.message)[:LONGEST_ERROR],
            failure_class=None if failure is None else failure.kind.value,
            server=server,
            workflow=workflow,
            level=level,
            started_at=self.clock.at(seconds),
            ended_at=self.clock.at(seconds + measured.duration_sec),
            seconds=seconds,
        )


def rejection(row: Row) -> PayloadError:
    return PayloadError(f"{row.server} does not take {row.workflow}, nothing was measured: {row.error}")


async def take_all_back(targets: Iterable[Target]) -> list[str]:
    """Take all open prompts back from the servers. Returns the ids of those that could not be."""
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
