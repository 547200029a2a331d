"""The routes of a ComfyUI server, each also below `/api`."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from aiohttp import web

from comfyui_agent.sim.ports import Engine
from comfyui_agent.sim.prompt_queue import Json, QueueItem
from comfyui_agent.sim.wire.files import FileRoutes
from comfyui_agent.sim.wire.jobs import JobRoutes
from comfyui_agent.sim.wire.origin import origin_guard
from comfyui_agent.sim.wire.sockets import Sockets

MAX_UPLOAD_BYTES = 100 * 1024 * 1024
FEATURES: Json = {
    "supports_preview_metadata": True,
    "max_upload_size": MAX_UPLOAD_BYTES,
    "extension": {"manager": {"supports_v4": True}},
}
SECRETS = ("auth_token_comfy_org", "api_key_comfy_org")
PAGE = """<!doctype html><meta charset="utf-8"><title>E3 simulator</title>
<body style="font-family: system-ui; max-width: 40rem; margin: 4rem auto; line-height: 1.5">
<h1>E3 simulator</h1><p>This is a ComfyUI without a GPU. It answers ComfyUI's HTTP and websocket routes; it has no
editor. Ask <a href="system_stats">system_stats</a>, <a href="queue">queue</a> or <a href="object_info">object_info</a>.
"""


def application(engine: Engine, sockets: Sockets) -> web.Application:
    """Put the routes in front of an engine. What a handler does not expect ends as a 500, as in the real server."""
    guard = origin_guard(engine.dialect.cross_site_refused)
    app = web.Application(client_max_size=MAX_UPLOAD_BYTES, middlewares=[guard])
    routes = _Routes(engine, sockets)
    for route in routes.table():
        app.router.add_routes([web.RouteDef(route.method, f"/api{route.path}", route.handler, {}), route])
    app.router.add_get("/{path:.*}", routes.no_such_file)
    return app


class _Routes:
    def __init__(self, engine: Engine, sockets: Sockets) -> None:
        self._engine = engine
        self._sockets = sockets

    def table(self) -> list[web.RouteDef]:
        files, jobs = FileRoutes(self._engine.folders), JobRoutes(self._engine)
        table = [
            web.get("/", self.page),
            web.get("/ws", self.websocket),
            web.get("/prompt", self.queue_info),
            web.post("/prompt", self.submit),
            web.get("/queue", self.queue),
            web.post("/queue", self.change_queue),
            web.post("/interrupt", self.interrupt),
            web.post("/free", self.free),
            web.get("/history", self.history),
            web.get("/history/{prompt_id}", self.history_of),
            web.post("/history", self.change_history),
            web.get("/object_info", self.object_info),
            web.get("/object_info/{node_class}", self.object_info),
            web.get("/system_stats", self.system_stats),
            web.get("/features", self.show_features),
            web.get("/embeddings", self.embeddings),
            web.get("/models", self.model_folders),
            web.get("/models/{folder}", self.models),
            web.get("/view", files.view),
            web.post("/upload/image", files.upload_image),
            web.post("/upload/mask", files.upload_mask),
        ]
        if self._engine.dialect.jobs_api:
            table += [web.get("/api/jobs", jobs.listing), web.get("/api/jobs/{job_id}", jobs.show)]
        if self._engine.dialect.jobs_cancel_api:
            table += [
                web.post("/api/jobs/cancel", jobs.cancel_many),
                web.post("/api/jobs/{job_id}/cancel", jobs.cancel),
            ]
        return table

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def no_such_file(self, _: web.Request) -> web.Response:
        """A path without a route may be a file of the editor: GET finds none, other methods are not allowed."""
        return web.Response(status=404)

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        return await self._sockets.serve(request, self._engine)

    async def submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "number" in body:
            number = float(body["number"])
        else:
            number = self._engine.prompts.take_number()
            if _field(body, "front"):
                number = -number
        if "prompt" not in body:
            error = {
                "type": "no_prompt",
                "message": "No prompt provided",
                "details": "No prompt provided",
                "extra_info": {},
            }
            return web.json_response({"error": error, "node_errors": {}}, status=400)
        prompt_id = self._prompt_id(body)
        if prompt_id is None:
            return web.json_response({"error": _invalid_id(body["prompt_id"]), "node_errors": {}}, status=400)
        verdict = self._engine.validate(body["prompt"], body.get("partial_execution_targets"))
        extra_data = body.get("extra_data", {})
        if "client_id" in body:
            extra_data["client_id"] = body["client_id"]
        if verdict.error is not None:
            return web.json_response({"error": verdict.error, "node_errors": verdict.node_errors}, status=400)
        secrets = {key: extra_data.pop(key) for key in SECRETS if key in extra_data}
        if self._engine.dialect.create_time:
            extra_data["create_time"] = int(time.time() * 1000)
        self._engine.prompts.put(QueueItem(number, prompt_id, body["prompt"], extra_data, verdict.outputs, secrets))
        return web.json_response({"prompt_id": prompt_id, "number": number, "node_errors": verdict.node_errors})

    def _prompt_id(self, body: Json) -> str | None:
        """The id of a prompt; None if the client's own is refused."""
        given = body.get("prompt_id", uuid.uuid4())
        if not self._engine.dialect.prompt_id_must_be_uuid:
            return str(given)
        if given is None:
            return str(uuid.uuid4())
        try:
            return str(given) if str(uuid.UUID(str(given))) == str(given) else None
        except ValueError:
            return None

    async def queue_info(self, _: web.Request) -> web.Response:
        return web.json_response({"exec_info": {"queue_remaining": self._engine.prompts.remaining()}})

    async def queue(self, _: web.Request) -> web.Response:
        running, pending = self._engine.prompts.running_and_pending()
        answer = {
            "queue_running": [item.shown() for item in running],
            "queue_pending": [item.shown() for item in pending],
        }
        return web.json_response(answer)

    async def change_queue(self, request: web.Request) -> web.Response:
        body = await request.json()
        if _field(body, "clear"):
            self._engine.prompts.clear()
        for prompt_id in _field(body, "delete", ()):
            self._engine.prompts.delete(prompt_id)
        return web.Response()

    async def interrupt(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except json.JSONDecodeError:
            body = {}
        prompt_id = body.get("prompt_id") if self._engine.dialect.targeted_interrupt else None
        if not prompt_id or self._engine.prompts.is_running(prompt_id):
            self._engine.interrupt()
        return web.Response()

    async def free(self, request: web.Request) -> web.Response:
        body = await request.json()
        for flag in ("unload_models", "free_memory"):
            if body.get(flag, False):
                self._engine.prompts.set_flag(flag)
        return web.Response()

    async def history(self, request: web.Request) -> web.Response:
        query = request.rel_url.query
        max_items = int(query["max_items"]) if "max_items" in query else None
        offset = int(query["offset"]) if "offset" in query else -1
        return web.json_response(self._engine.prompts.history(max_items, offset))

    async def history_of(self, request: web.Request) -> web.Response:
        return web.json_response(self._engine.prompts.history_of(request.match_info["prompt_id"]))

    async def change_history(self, request: web.Request) -> web.Response:
        body = await request.json()
        if _field(body, "clear"):
            self._engine.prompts.forget_all()
        self._engine.prompts.forget(_field(body, "delete", ()))
        return web.Response()

    async def object_info(self, request: web.Request) -> web.Response:
        return web.json_response(self._engine.object_info(request.match_info.get("node_class")))

    async def system_stats(self, _: web.Request) -> web.Response:
        return web.json_response(self._engine.system_stats())

    async def show_features(self, _: web.Request) -> web.Response:
        return web.json_response(FEATURES)

    async def embeddings(self, _: web.Request) -> web.Response:
        return web.json_response([name.rsplit(".", 1)[0] for name in self._engine.models()["embeddings"]])

    async def model_folders(self, _: web.Request) -> web.Response:
        return web.json_response(list(self._engine.models()))

    async def models(self, request: web.Request) -> web.Response:
        files = self._engine.models().get(request.match_info["folder"])
        return web.Response(status=404) if files is None else web.json_response(files)


def _field(body: Any, name: str, default: Any = None) -> Any:
    """A field of a JSON body. A list or a text counts as an object without the field, as in the real server."""
    if name in body:
        return body[name]
    return default


def _invalid_id(given: Any) -> Json:
    return {
        "type": "invalid_prompt_id",
        "message": "prompt_id must be a canonical lowercase UUID",
        "details": f"received {given!r}",
        "extra_info": {},
    }
