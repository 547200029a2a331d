"""The live stream of a job: what it is at, until it has ended."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from PIL import Image

from comfyui_agent.access.gate import Caller as Admitted
from comfyui_agent.access.gate import Gate
from comfyui_agent.engine.live_runs import LiveRun, read_preview
from comfyui_agent.gateway.access import caller_of
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.v2.errors import ApiError
from comfyui_agent.gateway.v2.jobs import find_job
from comfyui_agent.gateway.v2.live import FRESH_SECONDS, LiveJobs, progress_of
from comfyui_agent.gateway.v2.views import job_view
from comfyui_agent.pools import RENDERING
from comfyui_agent.store.posted_prompts import PostedPrompt

THROTTLE_SECONDS = 0.5
SILENT_SECONDS = 10.0
"""After so long without news a comment is sent, so that nobody takes the stream for dead."""
MOST_STREAMS = 100
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
News = tuple[str, dict[str, Any]]


@dataclass
class EventRoutes:
    live: LiveJobs
    gate: Gate
    _open: Counter[str] = field(default_factory=Counter)

    async def events(self, caller: GatewayBackend, request: web.Request) -> web.StreamResponse:
        prompt, admitted = await find_job(caller, request.match_info["id"]), caller_of(request)
        if self._open[admitted.scope] >= MOST_STREAMS:
            message = f"{MOST_STREAMS} streams are open already: close one, or ask for the job itself"
            raise ApiError(429, "too_many_streams", message, {"Retry-After": "5"})
        self._open[admitted.scope] += 1
        try:
            with self.live.watching(prompt.job_id):
                return await self._stream(caller, request, prompt, admitted)
        finally:
            self._open[admitted.scope] -= 1

    async def _stream(
        self, caller: GatewayBackend, request: web.Request, prompt: PostedPrompt, admitted: Admitted
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers=HEADERS)
        await stream.prepare(request)
        written_at = time.monotonic()
        async for news in self._news(caller, request, prompt):
            if not await self.gate.still_admits(admitted):
                break
            if news is not None:
                await stream.write(f"event: {news[0]}\ndata: {json.dumps(news[1])}\n\n".encode())
                written_at = time.monotonic()
            elif time.monotonic() - written_at > SILENT_SECONDS:
                await stream.write(b": still here\n\n")
                written_at = time.monotonic()
        return stream

    async def _news(
        self, caller: GatewayBackend, request: web.Request, prompt: PostedPrompt
    ) -> AsyncIterator[News | None]:
        """What has changed, from the state of this moment on; None now and then when nothing has."""
        told: dict[str, Any] = {}
        preview, next_at = "", 0.0
        while True:
            look = await self.live.look()
            known, run = look.open.get(prompt.job_id), look.runs.get(prompt.job_id)
            if known is None:  # it has ended, or this look is older than the stream
                prompt = await find_job(caller, prompt.prompt_id)
                if prompt.ended_at is not None:
                    break
            status = await self.live.status(known or prompt, run)
            news: list[News] = [("status", status)]
            if time.monotonic() >= next_at and (progress := progress_of(run)) is not None:
                news.append(("progress", progress))
            changed = [(name, data) for name, data in news if told.get(name) != data]
            for name, data in changed:
                told[name] = data
                next_at = time.monotonic() + THROTTLE_SECONDS if name == "progress" else next_at
                yield name, data
            if run is not None and run.preview not in ("", preview):
                preview = run.preview
                if (shown := await RENDERING.run(_preview, caller.gateway.workspace.locks, run)) is not None:
                    yield "preview", shown
            yield None
            await asyncio.sleep(FRESH_SECONDS)
        view = await job_view(caller, self.live, request, prompt)
        for output in view["outputs"]:
            yield "output", output
        yield "status", {"status": view["status"], "queue_position": None}


def _preview(folder: Any, run: LiveRun) -> dict[str, Any] | None:
    """The newest picture of unfinished work, as JPEG."""
    data = read_preview(folder, run.job_id)
    if data is None:
        return None
    if not data.startswith(b"\xff\xd8\xff"):
        file = io.BytesIO()
        with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as picture:
            picture.convert("RGB").save(file, "JPEG")
        data = file.getvalue()
    return {"node_id": run.node_id, "content_type": "image/jpeg", "data_base64": base64.b64encode(data).decode()}
