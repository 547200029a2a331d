"""Profiles one workflow on one server: a cold run, then warm ones, with samples of the graphics card."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.watch import Progress
from comfyui_agent.lab.measurement.gpu import GpuTrace, rendering_device
from comfyui_agent.lab.measurement.moments import utc_text
from comfyui_agent.lab.measurement.nvml import MEGABYTE
from comfyui_agent.lab.payloads import Payload, fitted, new_run_prefix
from comfyui_agent.lab.profiling.runner import RunFailed, Runner
from comfyui_agent.lab.profiling.runs import Kind, Run
from comfyui_agent.lab.reports.environment import GpuSample

LOOK_EVERY = 0.25
FREE_SECONDS = 5.0
SOCKET_SECONDS = 3.0
BUSY = "The server had other work: the times are not clean. Profile a server that is idle."
UNHEARD = "The websocket told nothing: the times of nodes are not known. Look for a proxy that does not pass it on."
CUT = "The websocket was lost during a run: the times of its nodes have gaps."
NOT_COLD = "The server kept what it had in memory in spite of /free: the cold run may be a warm one."
CACHED = "{count} of {total} runs were answered from the server's cache and measured nothing."


class Watcher(Protocol):
    """Is called when a run begins and when it ends."""

    def began(self, name: str, kind: Kind, number: int, total: int) -> None: ...

    def ended(self, name: str, run: Run) -> None: ...


class Profiling:
    """One workflow. What was measured so far can be read at any time."""

    def __init__(self, client: ComfyClient, payload: Payload, *, runs: int, timeout: float) -> None:
        self.client = client
        self.payload = payload
        self.wanted = runs
        self.timeout = timeout
        self.started_at = ""
        self.runs: list[Run] = []
        self._warnings: list[str] = []
        self.is_partial = True
        self.idle_vram_mb: float | None = None
        self.vram_total_mb: int | None = None
        self.trace = GpuTrace([client], every=LOOK_EVERY)
        self._runner = Runner(client, timeout)
        self._chance = random.Random()
        self._prefix = new_run_prefix()

    @property
    def samples(self) -> list[GpuSample]:
        return self.trace.samples

    @property
    def progress(self) -> Progress | None:
        """How far the current run is."""
        return self._runner.progress

    @property
    def warnings(self) -> list[str]:
        """Why the numbers may not mean what they say."""
        cached = sum(run.cached for run in self.runs)
        return [*self._warnings, *([CACHED.format(count=cached, total=len(self.runs))] if cached else [])]

    async def prepare(self) -> None:
        """Check that the server can run it, and upload what it needs. PayloadError or ComfyError if not."""
        self.payload = await fitted(self.payload, self.client)
        self._warnings += self.payload.notes

    async def measure(self, watcher: Watcher) -> None:
        """Do all runs. RunFailed if one fails; the runs before it are kept."""
        self.started_at = utc_text()
        async with self.trace:
            try:
                await self._measure(watcher)
            except RunFailed as error:
                self._warn(f"A run failed and ended the profile: {error}")
                raise

    async def _measure(self, watcher: Watcher) -> None:
        await self._free()
        for number in range(1 + self.wanted):
            kind = Kind.WARM if number else Kind.COLD
            watcher.began(self.payload.name, kind, number, self.wanted)
            self.runs.append(await self._run(kind, number))
            watcher.ended(self.payload.name, self.runs[-1])
        self.is_partial = False

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
            self.idle_vram_mb = await self._seen_after(self.trace.seconds)

    async def _seen_after(self, seconds: float) -> float | None:
        """The memory in the first sample after a moment; None if none comes soon."""
        until = time.monotonic() + 4 * LOOK_EVERY
        while time.monotonic() < until:
            found = [each.gpu_mem_mb for each in self.samples if (each.seconds or 0.0) >= seconds]
            if found:
                return found[0]
            await asyncio.sleep(LOOK_EVERY / 5)
        return None

    async def _run(self, kind: Kind, number: int) -> Run:
        await self._wait_for_socket()
        sockets = self.client.websocket_connections
        graph = self.payload.varied(number, self._chance, self._prefix)
        run = await self._runner.run(kind, self.payload, graph, self.trace)
        if kind is Kind.COLD and run.cached_nodes:
            self._warn(NOT_COLD)
        if not run.nodes and not run.cached:
            self._warn(UNHEARD)
        elif self.client.websocket_connections != sockets:
            self._warn(CUT)
        await self._note_other_work()
        return replace(run, peak_vram_mb=await self._peak(run))

    async def _peak(self, run: Run) -> float | None:
        """The most that was held during a run, or right after it if the run fell between two samples."""
        held = most_held(self.samples, run.seconds, run.ended_seconds)
        if held is not None or self.vram_total_mb is None:
            return held
        return await self._seen_after(run.ended_seconds)

    async def _wait_for_socket(self) -> None:
        until = time.monotonic() + SOCKET_SECONDS
        while not self.client.websocket_is_open:
            if time.monotonic() > until:
                return
            await asyncio.sleep(0.02)

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
