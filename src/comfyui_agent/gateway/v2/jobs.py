"""Jobs of Comfy API v2: each is a prompt that was posted at the gateway, and a job of E3."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from comfyui_agent.access.gate import Caller as Admitted
from comfyui_agent.access.gate import Gate
from comfyui_agent.comfy.content import media_type_of
from comfyui_agent.comfy.shapes import optional_object
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import is_editor_format
from comfyui_agent.engine.live_runs import read_preview, want_previews
from comfyui_agent.fleet.workflow_conversion import convert_with
from comfyui_agent.gateway.access import caller_of
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.submissions import submit_prompt
from comfyui_agent.gateway.v2.errors import ApiError, invalid
from comfyui_agent.gateway.v2.references import resolve_assets, with_references
from comfyui_agent.gateway.v2.requests import JobRequest, json_object, key_used_once, parsed
from comfyui_agent.gateway.v2.views import find_job, job_view, live_runs
from comfyui_agent.pools import FILES, REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.wire.prompts import Json, Rejected, Submission
from comfyui_agent.workflows.errors import NoDefinitions, WorkflowError

REFUSED = {"webhook_url": "invalid_request", "inputs": "invalid_request", "metadata": "metadata_not_supported"}
LISTED, MOST_LISTED, HIGHEST = 50, 100, 2**62
MOST_STREAMS = 100
LOOK_SECONDS, SILENT_SECONDS = 0.5, 10.0
"""How often a stream looks, and after how long without news it sends a comment."""
STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass
class JobRoutes:
    gate: Gate
    streams: Counter[str] = field(default_factory=Counter)

    async def create(self, caller: GatewayBackend, request: web.Request) -> web.Response:
        body = await json_object(request)
        for name, code in REFUSED.items():
            if name in body:
                raise ApiError(422, code, f"{name} is not there yet", field=name)
        said = parsed(JobRequest, body)
        extra_data = said.extra_data.model_dump(exclude_none=True)
        async with key_used_once(caller, request, "job") as claim:
            workflow = said.workflow
            if is_editor_format(workflow):
                extra_data["extra_pnginfo"] = {"workflow": workflow}
                workflow = await _converted(caller, request, workflow)
            graph, files = await resolve_assets(caller, _checked(workflow))
            answer = await submit_prompt(caller, Submission(graph, None, None, False, extra_data, None), files, claim)
        if isinstance(answer, Rejected):
            raise _invalid_workflow(answer)
        return web.json_response(await self.show(caller, request, answer.prompt_id), status=201)

    async def show(self, caller: GatewayBackend, request: web.Request, prompt_id: str) -> Json:
        return await job_view(caller, request, await find_job(caller, prompt_id), await live_runs(caller))

    async def listing(self, caller: GatewayBackend, request: web.Request) -> Json:
        """The caller's prompts, newest first. No job has labels, so none has one that is asked for."""
        limit, before = request.query.get("limit", str(LISTED)), request.query.get("cursor", str(HIGHEST))
        if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_LISTED):
            raise invalid(f"limit takes 1 to {MOST_LISTED}", field="limit")
        if not (before.isascii() and before.isdigit() and len(before) < 20 and int(before) <= HIGHEST):
            raise ApiError(422, "invalid_cursor", "this cursor is of no list")
        if any(name.startswith("metadata") for name in request.query):
            return {"jobs": []}
        ids = await caller.gateway.store.run(ops.newest_prompts, caller.owner, int(before), int(limit) + 1)
        listed = ids[: int(limit)]
        prompts = await caller.gateway.store.run(ops.find_prompts, listed)
        runs = await live_runs(caller)
        views = [await job_view(caller, request, each, runs) for each in prompts if "rejected" not in each.entry]
        for view in views:
            changed = view["completed_at"] or view["started_at"] or view["created_at"]
            view |= {"create_time": view["created_at"], "update_time": changed}
        return {"jobs": views, **({"next_cursor": str(listed[-1])} if len(ids) > len(listed) else {})}

    async def cancel(self, caller: GatewayBackend, request: web.Request, prompt_id: str) -> Json:
        """A job that has ended stays as it is."""
        prompt = await find_job(caller, prompt_id)
        if prompt.ended_at is None:
            await caller.stop([prompt])
        return await self.show(caller, request, prompt_id)

    async def workflow(self, caller: GatewayBackend, request: web.Request, prompt_id: str) -> Json:
        """The workflow as its author saved it, where the job came with that; else, or if asked for, the graph."""
        prompt = await find_job(caller, prompt_id)
        saved = optional_object(prompt.extra_data.get("extra_pnginfo")).get("workflow")
        if request.query.get("format") != "api" and isinstance(saved, dict):
            return {"workflow": saved, "format": "save"}
        return {"workflow": with_references(prompt.graph), "format": "api"}

    async def events(self, caller: GatewayBackend, request: web.Request, prompt_id: str) -> web.StreamResponse:
        """The live stream of a job: what it is at, until it has ended."""
        await find_job(caller, prompt_id)
        admitted = caller_of(request)
        if self.streams[admitted.scope] >= MOST_STREAMS:
            raise ApiError(429, "too_many_streams", f"{MOST_STREAMS} streams are open already", {"Retry-After": "5"})
        self.streams[admitted.scope] += 1
        try:
            stream = web.StreamResponse(headers=STREAM)
            await stream.prepare(request)
            await self._stream(stream, admitted, self._news(caller, request, prompt_id))
            return stream
        finally:
            self.streams[admitted.scope] -= 1

    async def _stream(
        self, stream: web.StreamResponse, admitted: Admitted, news: AsyncIterator[tuple[str, Any] | None]
    ) -> None:
        written_at = time.monotonic()
        async for told in news:
            if not await self.gate.still_admits(admitted):
                return
            if told is not None or time.monotonic() - written_at > SILENT_SECONDS:
                text = f"event: {told[0]}\ndata: {json.dumps(told[1])}\n\n" if told else ": still here\n\n"
                await stream.write(text.encode())
                written_at = time.monotonic()

    async def _news(
        self, caller: GatewayBackend, request: web.Request, prompt_id: str
    ) -> AsyncIterator[tuple[str, Any] | None]:
        """What has changed since the last look, from the state of this moment on; None when nothing has."""
        folder, told = caller.gateway.workspace.locks, dict[str, Any]()
        while True:
            prompt = await find_job(caller, prompt_id)
            runs = await live_runs(caller)
            run, view = runs.get(prompt.job_id), await job_view(caller, request, prompt, runs)
            status = {"status": view["status"], "queue_position": view["queue_position"]}
            if prompt.ended_at is not None:
                if prompt.has_run and told.get("status", {}).get("status") == "queued":  # it was quicker than the looks
                    yield "status", {"status": "running", "queue_position": None}
                for output in view["outputs"]:
                    yield "output", output
                yield "status", status
                return
            for name, data in (("status", status), ("progress", view["progress"])):
                if data not in (None, told.get(name)):
                    told[name] = data
                    yield name, data
            await FILES.run(want_previews, folder)
            if run is not None and run.preview not in ("", told.get("preview")):
                told["preview"] = run.preview
                picture = await FILES.run(read_preview, folder, JobId(run.job_id))
                shown = {"node_id": run.node_id, "content_type": media_type_of(picture or b"")}
                yield "preview", {**shown, "data_base64": base64.b64encode(picture or b"").decode()}
            yield None
            await asyncio.sleep(LOOK_SECONDS)


async def _converted(caller: GatewayBackend, request: web.Request, document: dict[str, Any]) -> dict[str, Any]:
    """A workflow in UI format as ComfyUI's page would post it, if that was asked for."""
    if request.query.get("convert") != "true":
        message = "this is a workflow in UI format: export it in API format, or post it to /api/v2/jobs?convert=true"
        raise ApiError(422, "workflow_format_ui", message)
    try:
        return dict(await REQUESTS.run(convert_with, caller.gateway.workspace, document, random.choice))
    except NoDefinitions as error:
        raise ApiError(503, "upstream_error", str(error), {"Retry-After": "2"}) from None
    except WorkflowError as error:
        raise ApiError(422, "workflow_format_ui", f"it cannot be converted: {error}") from None


def _checked(workflow: dict[str, Any]) -> dict[str, Any]:
    """A workflow that is made of nodes, as far as one can tell without knowing them."""
    for node_id, node in workflow.items() or [("", None)]:
        kinds = [type(node.get(key)) for key in ("class_type", "inputs")] if isinstance(node, dict) else []
        if kinds != [str, dict]:
            message = f"{node_id!r} is no node with class_type and inputs" if node_id else "the workflow has no nodes"
            raise ApiError(422, "invalid_workflow", message)
    return workflow


def _invalid_workflow(answer: Rejected) -> ApiError:
    """What a server would say of a workflow, node by node."""

    def reason(error: Json) -> Json:
        field = optional_object(error.get("extra_info")).get("input_name")
        return {"field": field, "reason": error["type"], "message": f"{error['message']}: {error['details']}"}

    found = {node_id: [reason(error) for error in node["errors"]] for node_id, node in answer.node_errors.items()}
    node_id = optional_object(answer.error.get("extra_info")).get("node_id")
    errors = {node_id: [reason(answer.error)]} if node_id and not found else found
    message = ": ".join(filter(None, [answer.error["message"], answer.error["details"]]))
    return ApiError(422, "invalid_workflow", message, node_errors=errors)
