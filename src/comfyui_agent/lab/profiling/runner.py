"""Runs a workflow once and measures it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.watch import Progress
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import printable
from comfyui_agent.lab.measurement.gpu import GpuTrace
from comfyui_agent.lab.measurement.measured_prompt import MeasuredPrompt, Prompting, take_back
from comfyui_agent.lab.measurement.moments import utc_text
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.profiling.runs import Kind, Run
from comfyui_agent.lab.profiling.timeline import node_times


class RunFailed(Exception):
    """A run gave no result: what happened and what to do, in one line."""


@dataclass
class Runner:
    """Sends prompts to one server, one at a time."""

    client: ComfyClient
    timeout: float
    prompting: Prompting | None = None

    @property
    def progress(self) -> Progress | None:
        return None if self.prompting is None else self.prompting.progress

    async def run(self, kind: Kind, payload: Payload, graph: Graph, trace: GpuTrace) -> Run:
        """Send a prompt, wait for its end, and read its results. RunFailed if there are none.

        If this ends early, the prompt is taken back from the server.
        """
        prompting = self.prompting = Prompting(self.client, payload, graph)
        started_at = utc_text()
        try:
            measured = await prompting.measure(self.timeout)
        except asyncio.CancelledError:
            await take_back(self.client, prompting.prompt_id)
            raise
        if measured.failure is not None:
            raise RunFailed(_message(measured.failure))
        return Run(
            kind=kind,
            prompt_id=measured.prompt_id,
            started_at=started_at,
            seconds=trace.at(measured.sent_at),
            ended_seconds=trace.seconds,
            duration_sec=measured.duration_sec,
            exec_sec=measured.exec_sec,
            queue_sec=_waited(measured),
            transfer_sec=measured.transfer_sec or 0.0,
            cached_nodes=measured.cached_nodes,
            cached=measured.is_cached,
            nodes=node_times(measured.moments, graph),
            moments=measured.moments,
        )


def _waited(measured: MeasuredPrompt) -> float | None:
    """From the post to the start of execution; if that was not heard, what is not execution."""
    if measured.queue_sec is not None or measured.exec_sec is None or measured.ended_sec is None:
        return measured.queue_sec
    return max(0.0, measured.ended_sec - measured.exec_sec)


def _message(failure: Failure) -> str:
    if failure.kind is FailureClass.TIMEOUT:
        return f"{failure.message}: allow it more with --timeout"
    place = f" at node {failure.node_id} ({failure.node_type})" if failure.node_id else ""
    return " ".join(printable(f"{failure.kind}: {failure.message}{place}").split())
