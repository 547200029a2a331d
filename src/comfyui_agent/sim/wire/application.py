"""The routes of a ComfyUI server, each also below `/api`."""

from __future__ import annotations

import ipaddress
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.prompt_queue import Json, QueueItem
from comfyui_agent.sim.wire.files import FileRoutes
from comfyui_agent.sim.wire.jobs import JobRoutes
from comfyui_agent.sim.wire.sockets import FEATURES, MAX_UPLOAD_BYTES, Sockets

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRETS = ("auth_token_comfy_org", "api_key_comfy_org")
PAGE = """<!doctype html><meta charset="utf-8"><title>E3 simulator</title>
<body style="font-family: system-ui; max-width: 40rem; margin: 4rem auto; line-height: 1.5">
<h1>E3 simulator</h1><p>This is a ComfyUI without a GPU. It answers ComfyUI's HTTP and websocket routes; it has no
editor. Ask <a href="system_stats">system_stats</a>, <a href="queue">queue</a> or <a href="object_info">object_info</a>.
"""


def application(engine: SimulatedEngine, sockets: Sockets) -> web.Application:
    """Put the routes in front of an engine. What a handler does not expect ends as a 500, as in the real server."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a web page of another origin sends to a server on this machine."""
        is_cross_site = request.headers.get("Sec-Fetch-Site") == "cross-site"
        if is_cross_site and engine.dialect.cross_site_refused:
            return web.Response(status=403)
        if _is_foreign(request.headers.get("Host"), request.headers.get("Origin")):
            return web.Response(status=403)
        return web.Response() if request.method == "OPTIONS" else await handler(request)

    async def no_such_file(_: web.Request) -> web.Response:
        """A path without a route may be a file of the editor: GET finds none, other methods are not allowed."""
        return web.Response(status=404)

    app = web.Application(client_max_size=MAX_UPLOAD_BYTES, middlewares=[guard])
    for route in _Routes(engine, sockets).table():
        app.router.add_routes([web.RouteDef(route.method, f"/api{route.path}", route.handler, {}), route])
    app.router.add_get("/{path:.*}", no_such_file)
    return app


class _Routes:
    def __init__(self, engine: SimulatedEngine, sockets: Sockets) -> None:
        self._engine = engine
        self._prompts = engine.prompts
        self._sockets = sockets

    def table(self) -> list[web.RouteDef]:
        engine, prompts, dialect = self._engine, self._prompts, self._engine.dialect
        files, jobs = FileRoutes(engine.folders), JobRoutes(engine)
        table = [
            web.get("/", self.page),
            web.get("/ws", self.websocket),
            web.post("/prompt", self.submit),
            web.get("/prompt", _answers(lambda _: {"exec_info": {"queue_remaining": prompts.remaining()}})),
            web.post("/queue", self.change_queue),
            web.get("/queue", _answers(self.queue)),
            web.post("/interrupt", self.interrupt),
            web.post("/free", self.free),
            web.post("/history", self.change_history),
            web.get("/history", _answers(self.history)),
            web.get("/history/{id}", _answers(lambda request: prompts.history_of(request.match_info["id"]))),
            web.get("/object_info", _answers(lambda _: engine.object_info())),
            web.get("/object_info/{name}", _answers(lambda request: engine.object_info(request.match_info["name"]))),
            web.get("/system_stats", _answers(lambda _: engine.system_stats())),
            web.get("/features", _answers(lambda _: FEATURES)),
            web.get("/embeddings", _answers(self.embeddings)),
            web.get("/models", _answers(lambda _: list(engine.definitions.offered_models()))),
            web.get("/models/{folder}", self.models),
            web.get("/view", files.view),
            web.post("/upload/image", files.upload_image),
            web.post("/upload/mask", files.upload_mask),
        ]
        if dialect.jobs_api:
            table += [web.get("/api/jobs", jobs.listing), web.get("/api/jobs/{job_id}", jobs.show)]
        if dialect.jobs_cancel_api:
            table += [
                web.post("/api/jobs/cancel", jobs.cancel_many),
                web.post("/api/jobs/{job_id}/cancel", jobs.cancel),
            ]
        return table

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        return await self._sockets.serve(request, self._engine)

    async def submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "number" in body:
            number = float(body["number"])
        else:
            number = next(self._prompts.numbers)
            if _field(body, "front"):
                number = -number
        if "prompt" not in body:
            return _refused("no_prompt", "No prompt provided", "No prompt provided")
        prompt_id = self._prompt_id(body)
        if prompt_id is None:
            message = "prompt_id must be a canonical lowercase UUID"
            return _refused("invalid_prompt_id", message, f"received {body['prompt_id']!r}")
        verdict = self._engine.validate(body["prompt"], body.get("partial_execution_targets"))
        extra_data = body.get("extra_data", {})
        if "client_id" in body:
            extra_data["client_id"] = body["client_id"]
        if verdict.error is not None:
            return web.json_response({"error": verdict.error, "node_errors": verdict.node_errors}, status=400)
        secrets = {key: extra_data.pop(key) for key in SECRETS if key in extra_data}
        if self._engine.dialect.create_time:
            extra_data["create_time"] = int(time.time() * 1000)
        self._prompts.put(QueueItem(number, prompt_id, body["prompt"], extra_data, verdict.outputs, secrets))
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

    def queue(self, _: web.Request) -> Json:
        running, pending = self._prompts.running_and_pending()
        return {
            "queue_running": [item.shown() for item in running],
            "queue_pending": [item.shown() for item in pending],
        }

    async def change_queue(self, request: web.Request) -> web.Response:
        body = await request.json()
        if _field(body, "clear"):
            self._prompts.clear()
        for prompt_id in _field(body, "delete", ()):
            self._prompts.delete(prompt_id)
        return web.Response()

    async def interrupt(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except json.JSONDecodeError:
            body = {}
        prompt_id = body.get("prompt_id") if self._engine.dialect.targeted_interrupt else None
        if not prompt_id or self._prompts.is_running(prompt_id):
            self._engine.interrupt()
        return web.Response()

    async def free(self, request: web.Request) -> web.Response:
        body = await request.json()
        for flag in ("unload_models", "free_memory"):
            if body.get(flag, False):
                self._prompts.set_flag(flag)
        return web.Response()

    def history(self, request: web.Request) -> Json:
        query = request.rel_url.query
        max_items = int(query["max_items"]) if "max_items" in query else None
        return self._prompts.history(max_items, int(query.get("offset", "-1")))

    async def change_history(self, request: web.Request) -> web.Response:
        body = await request.json()
        if _field(body, "clear"):
            self._prompts.forget(None)
        self._prompts.forget(_field(body, "delete", ()))
        return web.Response()

    def embeddings(self, _: web.Request) -> list[str]:
        return [name.rsplit(".", 1)[0] for name in self._engine.definitions.offered_models()["embeddings"]]

    async def models(self, request: web.Request) -> web.Response:
        files = self._engine.definitions.offered_models().get(request.match_info["folder"])
        return web.Response(status=404) if files is None else web.json_response(files)


def _answers(read: Callable[[web.Request], Any]) -> Handler:
    """A handler that answers with what `read` returns, as JSON."""

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(read(request))

    return handler


def _field(body: Any, name: str, default: Any = None) -> Any:
    """A field of a JSON body. A list or a text counts as an object without the field, as in the real server."""
    if name in body:
        return body[name]
    return default


def _refused(kind: str, message: str, details: str) -> web.Response:
    error = {"type": kind, "message": message, "details": details, "extra_info": {}}
    return web.json_response({"error": error, "node_errors": {}}, status=400)


def _is_foreign(host: str | None, origin: str | None) -> bool:
    if not host or not origin:
        return False
    own, other = urlsplit(f"//{host.lower()}"), urlsplit(origin.lower())
    if not _is_loopback(own.hostname or ""):
        return False
    own_name, other_name = host.lower(), other.netloc
    if other.port is None:
        own_name = own.hostname or ""
    if own.port is None:
        other_name = other.hostname or ""
    return bool(own_name and other_name) and own_name != other_name


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
