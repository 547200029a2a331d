"""Routes that only ComfyUI's page asks for, and the files of that page."""

from __future__ import annotations

import io
import os
import time
from datetime import datetime
from pathlib import Path

from aiohttp import web
from PIL import Image, UnidentifiedImageError

from comfyui_agent.sim.engine.card import MODEL_BYTES
from comfyui_agent.sim.engine.definitions import PICTURES
from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.user_routes import UserRoutes
from comfyui_agent.wire.prompts import Json

PAGE = """<!doctype html><meta charset="utf-8"><title>E3 simulator</title>
<body style="font-family: system-ui; max-width: 40rem; margin: 4rem auto; line-height: 1.5">
<h1>E3 simulator</h1><p>This is a ComfyUI without a GPU. It answers ComfyUI's HTTP and websocket routes; for its editor,
start it with <code>--frontend</code>. Ask <a href="system_stats">system_stats</a>, <a href="queue">queue</a> or
<a href="object_info">object_info</a>.
"""
ENTRY = "index.html"
NO_TUTORIAL = {"Comfy.TutorialCompleted": True}
"""The page opens with a workflow. Else it would open with its templates, of which there are none."""
NOT_LISTED = ("configs", "custom_nodes")
EXTENSIONS = [".bin", ".ckpt", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".sft"]


class EditorRoutes:
    """What the page needs besides prompts. `frontend` is the folder with its files; without one there is no editor."""

    def __init__(self, engine: SimulatedEngine, frontend: Path | None) -> None:
        if frontend is not None and not (frontend / ENTRY).is_file():
            raise ValueError(f"{frontend} has no {ENTRY}: give the folder static of a comfyui-frontend-package")
        self._engine = engine
        self._frontend = frontend
        self._started = time.time()
        self._user = UserRoutes(engine.dialect, NO_TUTORIAL if frontend else {})

    def table(self) -> list[web.RouteDef]:
        """The routes that exist below `/api`, too."""
        table = [
            *self._user.table(),
            web.get("/", self.page),
            web.get("/extensions", self.extensions),
            web.get("/i18n", _nothing),
            web.get("/global_subgraphs", _nothing),
            web.get("/global_subgraphs/{id}", _no_subgraph),
            web.get("/workflow_templates", _nothing),
            web.get("/experiment/models", self.model_folders),
            web.get("/experiment/models/{folder}", self.models),
            web.get("/experiment/models/preview/{folder}/{number}/{file:.*}", self.model_preview),
        ]
        if self._engine.dialect.node_replacements:
            table.append(web.get("/node_replacements", _nothing))
        return table

    def add_others(self, app: web.Application) -> None:
        """Routes without a twin. The last one takes what no other has: a file of the page, or nothing."""
        app.router.add_routes(
            [
                web.get("/internal/logs", self.log),
                web.get("/internal/logs/raw", self.raw_log),
                web.patch("/internal/logs/subscribe", _subscribe),
                web.get("/internal/folder_paths", self.folder_paths),
                web.get("/internal/files/{kind}", self.files),
                web.get("/templates/index.json", _no_templates),
            ]
        )
        if self._frontend is None:
            app.router.add_get("/{path:.*}", _no_such_file)
        else:
            app.router.add_static("/", self._frontend)

    async def page(self, _: web.Request) -> web.StreamResponse:
        if self._frontend is None:
            return web.Response(text=PAGE, content_type="text/html")
        return web.FileResponse(self._frontend / ENTRY, headers={"Cache-Control": "no-cache"})

    async def extensions(self, _: web.Request) -> web.Response:
        root = self._frontend
        found = root.glob("extensions/**/*.js") if root else ()
        return web.json_response([f"/{path.relative_to(root).as_posix()}" for path in found if root])

    async def model_folders(self, _: web.Request) -> web.Response:
        more = {"extensions": EXTENSIONS} if self._engine.dialect.model_extensions_listed else {}
        folders = self._folder_paths().items()
        return web.json_response(
            [{"name": name, "folders": paths, **more} for name, paths in folders if name not in NOT_LISTED]
        )

    async def models(self, request: web.Request) -> web.Response:
        names = self._engine.definitions.offered_models().get(request.match_info["folder"])
        if names is None:
            return web.Response(status=404)
        facts = {"pathIndex": 0, "modified": self._started, "created": self._started, "size": MODEL_BYTES}
        return web.json_response([{"name": name, **facts} for name in names])

    async def model_preview(self, request: web.Request) -> web.Response:
        """The picture that lies beside a model in the simulator's folder. The model itself need not be there."""
        kind, number, name = (request.match_info[key] for key in ("folder", "number", "file"))
        is_bounded = self._engine.dialect.model_previews_bounded
        if is_bounded and not (name and number.lstrip("-").isdecimal()):
            return web.Response(status=400)
        at = int(number)
        folders = self._folder_paths().get(kind)
        if folders is None or (is_bounded and not 0 <= at < len(folders)):
            return web.Response(status=404)
        folder = folders[at]
        model = Path(os.path.normpath(Path(folder, name)))
        if not model.is_relative_to(folder):
            return web.Response(status=403 if is_bounded else 404)
        found = [path for path in sorted(model.parent.glob("*")) if path.stem in (model.stem, f"{model.stem}.preview")]
        for picture in (path for path in found if path.suffix.lower() in PICTURES):
            try:
                with Image.open(picture) as image, io.BytesIO() as data:
                    image.save(data, "WEBP")
                    return web.Response(body=data.getvalue(), content_type="image/webp")
            except (OSError, ValueError, UnidentifiedImageError):
                break
        return web.Response(status=404)

    async def folder_paths(self, _: web.Request) -> web.Response:
        return web.json_response(self._folder_paths())

    async def files(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        root = self._engine.folders.roots.get(kind)
        if root is None:
            return web.json_response({"error": "Invalid directory type"}, status=400)
        found = [path for path in root.iterdir() if path.is_file() and not path.name.startswith(".")]
        found.sort(key=lambda path: -path.stat().st_mtime)
        ending = f" [{kind}]" if self._engine.dialect.listed_files_name_their_folder else ""
        return web.json_response([f"{path.name}{ending}" for path in found])

    async def log(self, _: web.Request) -> web.Response:
        return web.json_response("".join(f"{entry['t']} - {entry['m']}" for entry in self._log()))

    async def raw_log(self, _: web.Request) -> web.Response:
        return web.json_response({"entries": self._log(), "size": {"cols": 80, "rows": 24}})

    def _folder_paths(self) -> dict[str, list[str]]:
        models = self._engine.folders.input.parent / "models"
        return {name: [str(models / name)] for name in self._engine.definitions.offered_models()}

    def _log(self) -> list[Json]:
        started = datetime.fromtimestamp(self._started).isoformat()
        return [{"t": started, "m": f"E3 simulator of ComfyUI {self._engine.dialect.version}\n"}]


async def _nothing(_: web.Request) -> web.Response:
    return web.json_response({})


async def _no_subgraph(_: web.Request) -> web.Response:
    return web.json_response(None)


async def _no_templates(_: web.Request) -> web.Response:
    return web.json_response([])


async def _subscribe(request: web.Request) -> web.Response:
    """Nothing is ever logged, so that nobody needs to be remembered."""
    body = await request.json()
    _ = body["clientId"], body["enabled"]
    return web.Response()


async def _no_such_file(_: web.Request) -> web.StreamResponse:
    """A path without a route may be a file of the page: GET finds none, other methods are not allowed."""
    return web.StreamResponse(status=404)
