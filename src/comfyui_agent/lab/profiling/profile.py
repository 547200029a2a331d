"""Profiles one workflow on one server: a cold run, then warm ones, with samples of the graphics card."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable
from typing import Protocol

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.watch import Moment, Progress
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import printable
from comfyui_agent.fleet.nvml import MEGABYTE
from comfyui_agent.lab.measurement.machine import GpuTrace, rendering_device, utc_text
from comfyui_agent.lab.measurement.measured_prompt import MeasuredPrompt, Prompting, take_back
from comfyui_agent.lab.payloads import Payload, fitted, new_run_prefix
from comfyui_agent.lab.profiling.runs import Kind, node_times
from comfyui_agent.lab.reports.environment import GpuSample
from comfyui_agent.lab.reports.profile import RunFigures

LOOK_EVERY = 0.25
FREE_SECONDS = 5.0
SOCKET_SECONDS = 3.0
BUSY = "The server had other work: the times are not clean. Profile a server that is idle."
UNHEARD = "The websocket told nothing: the times of nodes are not known. Look for a proxy that does not pass it on."
CUT = "The websocket was lost during a run: the times of its nodes have gaps."
NOT_COLD = "The server kept what it had in memory in spite of /free: the cold run may be a warm one."
CACHED = "{count} of {total} runs were answered from the server's cache and measured nothing."


class RunFailed(Exception):
    """A run gave no result: what happened and what to do, in one line."""


class Watcher(Protocol):
    def began(self, name: str, kind: Kind, number: int, total: int) -> None: ...

    def ended(self, name: str, run: RunFigures) -> None: ...


class Profiling:
    """One workflow. What was measured so far can be read at any time."""

    def __init__(self, client: ComfyClient, payload: Payload, *, runs: int, timeout: float) -> None:
        self.client = client
        self.payload = payload
        self.wanted = runs
        self.timeout = timeout
        self.runs: list[RunFigures] = []
        self.moments: list[tuple[Moment, ...]] = []
        self._warnings: list[str] = []
        self.is_partial = True
        self.idle_vram_mb: float | None = None
        self.vram_total_mb: int | None = None
        self.trace = GpuTrace([client], every=LOOK_EVERY)
        self._prompting: Prompting | None = None
        self._chance = random.Random()
        self._prefix = new_run_prefix()

    @property
    def progress(self) -> Progress | None:
        return None if self._prompting is None else self._prompting.progress

    @property
    def warnings(self) -> list[str]:
        cached = sum(run.cached for run in self.runs)
        return [*self._warnings, *([CACHED.format(count=cached, total=len(self.runs))] if cached else [])]

    async def prepare(self) -> None:
        """Check that the server can run it, and upload what it needs. PayloadError or ComfyError if not."""
        self.payload = await fitted(self.payload, self.client)
        self._warnings += self.payload.notes

    async def measure(self, watcher: Watcher) -> None:
        """Do all runs. RunFailed if one fails; the runs before it are kept."""
        async with self.trace:
            try:
                await self._free()
                for number in range(1 + self.wanted):
                    kind = Kind.WARM if number else Kind.COLD
                    watcher.began(self.payload.name, kind, number, self.wanted)
                    self.runs.append(await self._run(kind, number))
                    watcher.ended(self.payload.name, self.runs[-1])
                self.is_partial = False
            except RunFailed as error:
                self._warn(f"A run failed and ended the profile: {error}")
                raise

    async def _free(self) -> None:
        """Free the server's memory, and note what it holds then."""
        device = await rendering_device(self.client)
        self.vram_total_mb = None if device is None else device.vram_total // MEGABYTE
        await self._note_other_work()
        try:
            await self.client.free(timeout=FREE_SECONDS)
        except ComfyError as error:
            raise RunFailed(error.message) from None
        if device is not None:
            self.idle_vram_mb = await self._seen_after(self.trace.clock.seconds)

    async def _seen_after(self, seconds: float) -> float | None:
        """The memory in the first sample after a moment; None if none comes soon."""
        until = time.monotonic() + 4 * LOOK_EVERY
        while time.monotonic() < until:
            found = [each.gpu_mem_mb for each in self.trace.samples if (each.seconds or 0.0) >= seconds]
            if found:
                return found[0]
            await asyncio.sleep(LOOK_EVERY / 5)
        return None

    async def _run(self, kind: Kind, number: int) -> RunFigures:
        await self.client.wait_for_websocket(SOCKET_SECONDS)
        sockets = self.client.websocket_connections
        graph = self.payload.varied(number, self._chance, self._prefix)
        started_at = utc_text()
        measured = await self._render(graph)
        began, ended = self.trace.clock.seconds_of(measured.sent_at), self.trace.clock.seconds
        nodes = node_times(measured.moments, graph)
        if kind is Kind.COLD and measured.cached_nodes:
            self._warn(NOT_COLD)
        if not nodes and not measured.is_cached:
            self._warn(UNHEARD)
        elif self.client.websocket_connections != sockets:
            self._warn(CUT)
        await self._note_other_work()
        peak = await self._peak(began, ended)
        self.moments.append(measured.moments)
        return RunFigures(
            kind=kind,
            prompt_id=measured.prompt_id,
            started_at=started_at,
            seconds=began,
            duration_sec=measured.duration_sec,
            queue_sec=_waited(measured),
            exec_sec=measured.exec_sec,
            transfer_sec=measured.transfer_sec or 0.0,
            peak_vram_mb=peak,
            cached=measured.is_cached,
            nodes=nodes,
        )

    async def _render(self, graph: Graph) -> MeasuredPrompt:
        """Send a prompt and follow it to its results. RunFailed if there are none. Ended early, it takes the prompt
        back."""
        prompting = self._prompting = Prompting(self.client, self.payload, graph)
        try:
            measured = await prompting.measure(self.timeout)
        except asyncio.CancelledError:
            await take_back(self.client, prompting.prompt_id)
            raise
        if measured.failure is not None:
            raise RunFailed(_message(measured.failure))
        return measured

    async def _peak(self, began: float, ended: float) -> float | None:
        """The most that was held during a run, or right after it if the run fell between two samples."""
        held = most_held(self.trace.samples, began, ended)
        if held is not None or self.vram_total_mb is None:
            return held
        return await self._seen_after(ended)

    async def _note_other_work(self) -> None:
        """Warn if the server has work. Between runs it is not ours."""
        with contextlib.suppress(ComfyError):
            queue = await self.client.queue()
            if queue.running or queue.pending:
                self._warn(BUSY)

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warnings:
            self._warnings.append(sentence)


def most_held(samples: Iterable[GpuSample], began: float, ended: float) -> float | None:
    """The most memory in MB that was seen between two moments of a trace; None if nothing was seen."""
    during = [each for each in samples if began <= (each.seconds or 0.0) <= ended]
    return max((each.gpu_mem_mb for each in during if each.gpu_mem_mb is not None), default=None)


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
