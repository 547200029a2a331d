"""Jobs of Comfy API v2: each is a prompt that was posted at the gateway, and a job of E3."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from comfyui_agent.comfy.shapes import optional_object
from comfyui_agent.domain.prompts import is_editor_format
from comfyui_agent.fleet.workflow_conversion import convert_with
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.submissions import submit_prompt
from comfyui_agent.gateway.v2.errors import ApiError, invalid, not_found
from comfyui_agent.gateway.v2.live import LiveJobs
from comfyui_agent.gateway.v2.references import resolve_assets, with_references
from comfyui_agent.gateway.v2.requests import check_unused, claim_of, json_object, key_reuse
from comfyui_agent.gateway.v2.views import brief_view, job_view
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import KeyUsed
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.wire.prompts import Json, Rejected, Submission
from comfyui_agent.workflows.errors import NoDefinitions, WorkflowError

CREATED = 201
RESERVED = ("webhook_url", "inputs")
TAKEN = frozenset({"api_key_comfy_org"})
LISTED, MOST_LISTED = 50, 100
HIGHEST = 2**62


@dataclass(frozen=True)
class JobRoutes:
    live: LiveJobs

    async def create(self, caller: GatewayBackend, request: web.Request) -> web.Response:
        body, claim = await json_object(request), claim_of(request, caller, "job")
        workflow, extra_data = _workflow_of(body), _extra_data_of(body)
        await check_unused(caller, claim, "job")
        if is_editor_format(workflow):
            extra_data["extra_pnginfo"] = {"workflow": workflow}
            workflow = await _converted(caller, request, workflow)
        graph, files = await resolve_assets(caller, _checked(workflow))
        try:
            answer = await submit_prompt(caller, Submission(graph, None, None, False, extra_data, None), files, claim)
        except KeyUsed as used:
            raise key_reuse(used.made, "job") from None
        if isinstance(answer, Rejected):
            raise _invalid_workflow(answer)
        prompt = await find_job(caller, answer.prompt_id)
        return web.json_response(await job_view(caller, self.live, request, prompt), status=CREATED)

    async def show(self, caller: GatewayBackend, request: web.Request) -> Json:
        return await job_view(caller, self.live, request, await find_job(caller, request.match_info["id"]))

    async def listing(self, caller: GatewayBackend, request: web.Request) -> Json:
        """All of the caller's prompts, newest first. No job has labels, so none has one that is asked for."""
        query = request.query
        limit, before = _number(query.get("limit", str(LISTED)), "limit"), query.get("cursor", str(HIGHEST))
        if not 1 <= limit <= MOST_LISTED:
            raise invalid(f"limit takes 1 to {MOST_LISTED}", field="limit")
        if not (before.isascii() and before.isdigit() and int(before[:30]) <= HIGHEST):
            raise ApiError(422, "invalid_cursor", "this cursor is of no list")
        if any(name.startswith("metadata") for name in query):
            return {"jobs": []}
        store = caller.gateway.store
        ids = await store.run(ops.newest_prompts, caller.owner, int(before), limit + 1)
        prompts = [each for each in await store.run(ops.find_prompts, ids[:limit]) if "rejected" not in each.entry]
        further = {"next_cursor": str(ids[limit - 1])} if len(ids) > limit else {}
        return {"jobs": [await brief_view(self.live, each) for each in prompts], **further}

    async def cancel(self, caller: GatewayBackend, request: web.Request) -> Json:
        """A job that has ended stays as it is."""
        prompt = await find_job(caller, request.match_info["id"])
        if prompt.ended_at is None:
            await caller.stop([prompt])
            prompt = await find_job(caller, prompt.prompt_id)
        return await job_view(caller, self.live, request, prompt)

    async def workflow(self, caller: GatewayBackend, request: web.Request) -> Json:
        """The workflow as its author saved it, where the job came with that; else, or if asked for, the graph."""
        wanted = request.query.get("format", "save")
        if wanted not in ("save", "api"):
            raise invalid("format is save or api", field="format")
        prompt = await find_job(caller, request.match_info["id"])
        saved = optional_object(prompt.extra_data.get("extra_pnginfo")).get("workflow")
        if wanted == "save" and isinstance(saved, dict):
            return {"workflow": saved, "format": "save"}
        return {"workflow": with_references(prompt.graph), "format": "api"}


async def find_job(caller: GatewayBackend, prompt_id: str) -> PostedPrompt:
    """404 if there is none, if it is not the caller's, or if a server refused it at once."""
    prompt = await caller.find(prompt_id)
    if prompt is None or "rejected" in prompt.entry:
        raise not_found("job")
    return prompt


def _workflow_of(body: Mapping[str, Any]) -> dict[str, Any]:
    for name in RESERVED:
        if name in body:
            raise invalid(f"{name} is reserved, and not there yet", field=name)
    if body.get("metadata"):
        raise ApiError(422, "metadata_not_supported", "jobs have no labels here", field="metadata")
    workflow = body.get("workflow")
    if not isinstance(workflow, dict):
        raise ApiError(422, "invalid_workflow", "workflow takes a workflow in API format, a JSON object")
    return workflow


def _extra_data_of(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("extra_data", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise invalid("extra_data takes an object of texts", field="extra_data")
    if unknown := sorted(given.keys() - TAKEN):
        raise invalid(f"extra_data takes {', '.join(TAKEN)}, and not {unknown[0]}", field=f"extra_data.{unknown[0]}")
    return dict(given)


async def _converted(caller: GatewayBackend, request: web.Request, document: dict[str, Any]) -> dict[str, Any]:
    if request.query.get("convert") != "true":
        message = "this is a workflow in UI format: export it in API format, or post it to /api/v2/jobs?convert=true"
        raise ApiError(422, "workflow_format_ui", message)
    try:
        return dict(await REQUESTS.run(convert_with, caller.gateway.workspace, document, random.choice))
    except NoDefinitions:
        raise ApiError(503, "upstream_error", "no server answers that could convert it", {"Retry-After": "2"}) from None
    except WorkflowError as error:
        raise ApiError(422, "workflow_format_ui", f"it cannot be converted: {error}") from None


def _checked(workflow: dict[str, Any]) -> dict[str, Any]:
    """A workflow that is made of nodes, as far as one can tell without knowing them."""
    wrong = {
        node_id: [{"field": "class_type", "reason": "no_node", "message": "a node has a class_type and inputs"}]
        for node_id, node in workflow.items()
        if not (
            isinstance(node, dict) and isinstance(node.get("class_type"), str) and isinstance(node.get("inputs"), dict)
        )
    }
    if wrong or not workflow:
        message = f"{next(iter(wrong))!r} is no node" if wrong else "the workflow has no nodes"
        raise ApiError(422, "invalid_workflow", message, node_errors=wrong)
    return workflow


def _invalid_workflow(answer: Rejected) -> ApiError:
    """What a server would say of a workflow, node by node."""
    errors = {
        node_id: [
            {
                "field": optional_object(each.get("extra_info")).get("input_name"),
                "reason": each["type"],
                "message": f"{each['message']}: {each['details']}",
            }
            for each in found["errors"]
        ]
        for node_id, found in answer.node_errors.items()
    }
    where = optional_object(answer.error.get("extra_info")).get("node_id")
    if where is not None and not errors:
        errors[str(where)] = [
            {"field": "class_type", "reason": answer.error["type"], "message": answer.error["message"]}
        ]
    told = [str(answer.error.get(key) or "") for key in ("message", "details")]
    return ApiError(422, "invalid_workflow", ": ".join(filter(None, told)), node_errors=errors)


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid(f"{name} takes a whole number", field=name)
    return int(text)
