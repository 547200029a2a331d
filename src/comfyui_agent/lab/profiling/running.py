"""Having one workflow run once, and measuring it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import datetime, timezone

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, ComfyError
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.comfy.watch import Progress, Watch
from comfyui_agent.domain.failures import Failure
from comfyui_agent.domain.prompts import Graph, PromptId, mint_prompt_id
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.measuring.gpu import GpuTrace
from comfyui_agent.lab.profiling.runs import Kind, Run
from comfyui_agent.lab.profiling.timeline import node_times

CANCEL_SECONDS = 5.0


class RunFailed(Exception):
    """A run that gave no result: what happened, and what to do, in one line."""


@dataclass
class Runner:
    """Sends prompts to one server, one at a time."""

    client: ComfyClient
    timeout: float
    watch: Watch | None = None

    @property
    def progress(self) -> Progress | None:
        """How far the run is that is under way."""
        return None if self.watch is None else self.watch.progress

    async def run(self, kind: Kind, graph: Graph, trace: GpuTrace) -> Run:
        """Send a prompt, wait for its end, and read its results through. RunFailed if there are none.

        Whatever ends this early, the prompt is taken back from the server.
        """
        self.watch = None
        prompt_id = mint_prompt_id()
        began = time.monotonic()
        started_at = utc_now()
        try:
            watch, outcome = await self._outcome(graph, prompt_id)
            known_at = time.monotonic()
            transfers = [await self.client.read_through(file) for file in outcome.results.kept]
        except ComfyError as error:
            raise RunFailed(_told(error.failure())) from None
        there = transfers[0].answered_at if transfers else known_at
        return Run(
            kind=kind,
            prompt_id=prompt_id,
            started_at=started_at,
            seconds=trace.at(began),
            ended_seconds=trace.seconds,
            duration_sec=there - began,
            exec_sec=outcome.seconds,
            queue_sec=_waited(watch, began, known_at, outcome),
            transfer_sec=sum(each.ended_at - each.asked_at for each in transfers),
            cached_nodes=outcome.cached_nodes,
            cached=bool(outcome.cached_nodes) and await self._only_outputs_ran(graph, outcome),
            nodes=node_times(watch.heard.moments, graph),
            moments=tuple(watch.heard.moments),
        )

    async def _outcome(self, graph: Graph, prompt_id: PromptId) -> tuple[Watch, Succeeded]:
        try:
            watch = self.watch = await self._submit(graph, prompt_id)
            outcome = await watch.outcome(self.timeout)
        except TimeoutError:
            await self._take_back(prompt_id)
            raise RunFailed(f"no result after {self.timeout:g} s: allow it more with --timeout") from None
        except asyncio.CancelledError:
            await self._take_back(prompt_id)
            raise
        if isinstance(outcome, Failed):
            raise RunFailed(_told(outcome.failure))
        return watch, outcome

    async def _submit(self, graph: Graph, prompt_id: PromptId) -> Watch:
        try:
            return await self.client.submit(graph, prompt_id)
        except AcceptanceUnknown:  # it may run all the same: find out
            return self.client.take_over(prompt_id, graph)

    async def _take_back(self, prompt_id: PromptId) -> None:
        with contextlib.suppress(ComfyError):
            await self.client.cancel(prompt_id, timeout=CANCEL_SECONDS)

    async def _only_outputs_ran(self, graph: Graph, outcome: Succeeded) -> bool:
        """Whether the server's cache answered: nothing but saving, under its new name, was done."""
        with contextlib.suppress(ComfyError):
            return set(graph) - outcome.cached_nodes <= await self.client.definitions.output_nodes(graph)
        return False


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _waited(watch: Watch, began: float, known_at: float, outcome: Succeeded) -> float | None:
    """From the post to the start of execution; if that was not heard, what is not execution."""
    if watch.heard.start and watch.running_since is not None:
        return max(0.0, watch.running_since - began)
    return None if outcome.seconds is None else max(0.0, known_at - began - outcome.seconds)


def _told(failure: Failure) -> str:
    place = f" at node {failure.node_id} ({failure.node_type})" if failure.node_id else ""
    return " ".join(printable(f"{failure.kind}: {failure.message}{place}").split())
