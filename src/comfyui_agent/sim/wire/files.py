"""Routes that serve and take files."""

from __future__ import annotations

import io
import json
import mimetypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyui_agent.sim.settings import Folders

Save = Callable[[bytes, Path], object]
TYPES = mimetypes.MimeTypes()
TYPES.add_type("application/javascript; charset=utf-8", ".js")
TYPES.add_type("image/webp", ".webp")
NEVER_SHOWN = ("text/html", "text/html-sandboxed", "application/xhtml+xml", "text/javascript", "text/css")


class FileRoutes:
    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    async def view(self, request: web.Request) -> web.StreamResponse:
        query = request.rel_url.query
        if "filename" not in query:
            return web.Response(status=404)
        found = self._locate(query["filename"], query.get("type", "output"), query.get("subfolder"))
        if isinstance(found, int):
            return web.Response(status=found)
        if not os.path.isfile(found):  # noqa: PTH113 - a name too long for the file system is not there either
            return web.Response(status=404)
        channel = query.get("channel", "")
        if "preview" in query:
            return _preview(found, query["preview"].split(";"), channel)
        if channel in ("rgb", "a"):
            return _channel(found, channel)
        content_type = TYPES.guess_type(found.name)[0] or "application/octet-stream"
        if content_type in NEVER_SHOWN:
            content_type = "application/octet-stream"
        headers = {"Content-Disposition": f'filename="{found.name}"', "Content-Type": content_type}
        return web.FileResponse(found, headers=headers)

    async def upload_image(self, request: web.Request) -> web.Response:
        return self._upload(await request.post(), lambda data, path: path.write_bytes(data))

    async def upload_mask(self, request: web.Request) -> web.Response:
        post = await request.post()

        def save(data: bytes, path: Path) -> None:
            original = json.loads(str(post.get("original_ref")))
            found = self._locate(original["filename"], original.get("type", "output"), original.get("subfolder", ""))
            if isinstance(found, Path) and found.is_file():
                _save_with_alpha(found, data, path)

        return self._upload(post, save)

    def _locate(self, filename: str, kind: str, subfolder: str | None) -> Path | int:
        """The file a client names, or the status code that refuses it."""
        filename, folder = self._folders.annotated(filename)
        if not filename or filename.startswith("/") or ".." in filename:
            return 400
        folder = folder or self._folders.of_type(kind)
        if folder is None:
            return 400
        if subfolder:
            inside = Path(os.path.abspath(folder / subfolder))
            if not inside.is_relative_to(folder):
                return 403
            folder = inside
        return folder / Path(filename).name

    def _upload(self, post: Any, save: Save) -> web.Response:
        image = post.get("image")
        kind = post.get("type", "input")
        root = self._folders.of_type(kind)
        if root is None:
            raise ValueError(f"no folder of type {kind}")
        if not image:
            return web.Response(status=400)
        subfolder = post.get("subfolder", "")
        folder = Path(os.path.normpath(root / subfolder))
        target = Path(os.path.abspath(folder / image.filename))
        if not target.is_relative_to(root):
            return web.Response(status=400)
        folder.mkdir(parents=True, exist_ok=True)
        data = image.file.read()
        name, is_known = image.filename, False
        if post.get("overwrite") not in ("true", "1"):
            name, is_known = _free_name(folder, image.filename, data)
        if not is_known:
            save(data, folder / name)
        return web.json_response({"name": name, "subfolder": subfolder, "type": kind})


def _free_name(folder: Path, wanted: str, data: bytes) -> tuple[str, bool]:
    """A name that is free, or one of a file with the same bytes; the flag says which."""
    stem, extension = os.path.splitext(wanted)
    name, number = wanted, 0
    while (folder / name).exists():
        if (folder / name).read_bytes() == data:
            return name, True
        number += 1
        name = f"{stem} ({number}){extension}"
    return name, False


def _preview(path: Path, options: list[str], channel: str) -> web.Response:
    form = options[0] if options[0] in ("webp", "jpeg") and "a" not in channel else "webp"
    quality = int(options[-1]) if options[-1].isdigit() else 90
    with Image.open(path) as image:
        picture = image.convert("RGB") if form == "jpeg" or channel == "rgb" else image
        return _picture(path, picture, form, quality=quality)


def _channel(path: Path, channel: str) -> web.Response:
    with Image.open(path) as image:
        if channel == "rgb":
            return _picture(path, image.convert("RGB"), "png")
        alpha = image.getchannel("A") if image.mode == "RGBA" else Image.new("L", image.size, 255)
        picture = Image.new("RGBA", image.size)
        picture.putalpha(alpha)
        return _picture(path, picture, "png")


def _picture(path: Path, picture: Image.Image, form: str, **options: int) -> web.Response:
    buffer = io.BytesIO()
    picture.save(buffer, format=form, **options)
    headers = {"Content-Disposition": f'filename="{path.name}"'}
    return web.Response(body=buffer.getvalue(), content_type=f"image/{form}", headers=headers)


def _save_with_alpha(original: Path, mask: bytes, target: Path) -> None:
    """Save the original with the alpha channel of a mask, and with the texts of the original."""
    metadata = PngInfo()
    with Image.open(original) as image, Image.open(io.BytesIO(mask)) as drawn:
        picture = image.convert("RGBA")
        picture.putalpha(drawn.convert("RGBA").getchannel("A"))
        for key, value in getattr(image, "text", {}).items():
            metadata.add_text(key, value)
    picture.save(target, pnginfo=metadata, compress_level=4)
