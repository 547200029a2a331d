"""Routes for the user of ComfyUI's page: settings and files."""

from __future__ import annotations

import json
import mimetypes
import posixpath
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from comfyui_agent.sim.user_files import TooManyUserFiles, UserFile, UserFiles, user_path
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.file_routes import NEVER_SHOWN
from comfyui_agent.wire.prompts import Json

SETTINGS = "comfy.settings.json"
STYLE = "user.css"
BAD_NAME = 'Invalid filename. Please avoid special characters like :\\/*?"<>|'


class UserRoutes:
    """There is one user. Asking for a file makes the folder around it, as in the real server."""

    def __init__(self, dialect: Dialect, settings: Json) -> None:
        self._dialect = dialect
        self._kept = UserFiles()
        if settings:
            self._save_settings(settings)

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/users", self.users),
            web.get("/settings", self.settings),
            web.post("/settings", self.change_settings),
            web.get("/settings/{id}", self.setting),
            web.post("/settings/{id}", self.change_setting),
            web.get("/userdata", self.listing),
            web.get("/v2/userdata", self.tree),
            web.get("/userdata/{file}", self.read),
            web.post("/userdata/{file}", self.write),
            web.delete("/userdata/{file}", self.delete),
            web.post("/userdata/{file}/move/{dest}", self.move),
        ]

    async def users(self, _: web.Request) -> web.Response:
        return web.json_response({"storage": "server", "migrated": "" in self._kept.folders})

    async def settings(self, _: web.Request) -> web.Response:
        return web.json_response(self._settings())

    async def setting(self, request: web.Request) -> web.Response:
        return web.json_response(self._settings().get(request.match_info["id"]))

    async def change_settings(self, request: web.Request) -> web.Response:
        return self._save_settings({**self._settings(), **await request.json()})

    async def change_setting(self, request: web.Request) -> web.Response:
        return self._save_settings({**self._settings(), request.match_info["id"]: await request.json()})

    def _settings(self) -> Json:
        self._kept.make_folder("")
        try:
            found: Json = json.loads(self._kept.files[SETTINGS].content)
        except (KeyError, ValueError):
            return {}
        return found

    def _save_settings(self, settings: Json) -> web.Response:
        self._write(SETTINGS, json.dumps(settings, indent=4).encode())
        return web.Response()

    async def listing(self, request: web.Request) -> web.Response:
        query = request.rel_url.query
        recurse, full_info, split = (
            query.get(name, "").lower() == "true" for name in ("recurse", "full_info", "split")
        )
        if not query.get("dir"):
            return web.Response(status=400, text="Directory not provided")
        folder = user_path(query["dir"])
        if folder is None:
            return web.Response(status=403, text="Invalid directory")
        self._kept.make_folder(posixpath.dirname(folder))
        if not self._kept.exists(folder):
            return web.Response(status=404, text="Directory not found")
        found: list[Any] = []
        for path, file in self._kept.below(folder):
            name = posixpath.relpath(path, folder or ".")
            is_hidden = any(part.startswith(".") for part in name.split("/"))
            if file is not None and not is_hidden and (recurse or "/" not in name):
                shown = [name, *name.split("/")] if split else name
                found.append(self._info(name, file) if full_info else shown)
        return web.json_response(found)

    async def tree(self, request: web.Request) -> web.Response:
        folder = user_path(unquote(request.rel_url.query.get("path", "")))
        if folder is None:
            return web.Response(status=400, text="Invalid path requested")
        if folder and not self._kept.exists(folder):
            return web.Response(status=404, text="Requested path not found")
        if folder in self._kept.files:
            return web.Response(status=400, text="Requested path is not a directory")
        found: list[Json] = []
        for path, file in self._kept.below(folder):
            entry = {"name": posixpath.basename(path), "path": path, "type": "file" if file else "directory"}
            found.append(entry | ({"size": len(file.content), "modified": file.modified} if file else {}))
        return web.json_response(sorted(found, key=lambda entry: (entry["type"] == "file", entry["name"].lower())))

    async def read(self, request: web.Request) -> web.Response:
        path = self._path(request, "file", must_exist=True)
        if path not in self._kept.files:
            return web.Response(status=403)
        content_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        headers = {"Content-Type": content_type}
        if self._dialect.user_files_are_downloads:
            is_style = path == STYLE
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Content-Disposition"] = "inline" if is_style else "attachment"
            if content_type in NEVER_SHOWN and not is_style:
                headers["Content-Type"] = "application/octet-stream"
        return web.Response(body=self._kept.files[path].content, headers=headers)

    async def write(self, request: web.Request) -> web.Response:
        path = self._path(request, "file")
        if self._may_not_replace(request, path):
            return web.Response(status=409, text="File already exists")
        try:
            self._write(path, await request.read())
        except OSError:
            return web.Response(status=400, reason=BAD_NAME)
        return self._told(request, path)

    async def delete(self, request: web.Request) -> web.Response:
        del self._kept.files[self._path(request, "file", must_exist=True)]
        return web.Response(status=204)

    async def move(self, request: web.Request) -> web.Response:
        source, target = self._path(request, "file", must_exist=True), self._path(request, "dest")
        if self._may_not_replace(request, target):
            return web.Response(status=409, text="File already exists")
        self._kept.move(source, target)
        return self._told(request, target)

    def _path(self, request: web.Request, parameter: str, must_exist: bool = False) -> str:
        path = user_path(request.match_info[parameter])
        if path is None:
            raise _refusal(web.HTTPForbidden())
        self._kept.make_folder(posixpath.dirname(path))
        if must_exist and not self._kept.exists(path):
            raise _refusal(web.HTTPNotFound())
        return path

    def _may_not_replace(self, request: web.Request, path: str) -> bool:
        return request.query.get("overwrite") == "false" and self._kept.exists(path)

    def _write(self, path: str, content: bytes) -> None:
        try:
            self._kept.write(path, content)
        except TooManyUserFiles:
            raise web.HTTPInsufficientStorage(text="the simulator keeps no more files") from None

    def _told(self, request: web.Request, path: str) -> web.Response:
        full_info = request.query.get("full_info", "").lower() == "true"
        return web.json_response(self._info(path, self._kept.files[path]) if full_info else path)

    def _info(self, name: str, file: UserFile) -> Json:
        times: Json = {"modified": file.modified, "created": file.created}
        if self._dialect.user_files_in_milliseconds:
            times = {key: int(value * 1000) for key, value in times.items()}
        return {"path": name, "size": len(file.content), **times}


def _refusal(error: web.HTTPError) -> web.HTTPError:
    """An answer with a status and nothing else."""
    error.body = None
    del error.headers["Content-Type"]
    return error
