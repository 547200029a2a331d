"""Routes that serve and take files."""

from __future__ import annotations

import io
import json
import mimetypes
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.places import Upload, place_to_read, place_to_write

Found = Path | bytes
Content = Callable[[bytes, str], Awaitable[bytes | None]]
TYPES = mimetypes.MimeTypes()
TYPES.add_type("application/javascript; charset=utf-8", ".js")
TYPES.add_type("image/webp", ".webp")
NEVER_SHOWN = ("text/html", "text/html-sandboxed", "application/xhtml+xml", "text/javascript", "text/css")
SCRIPTS = ("application/javascript", "application/x-javascript", "application/ecmascript")
ACTIVE = (*NEVER_SHOWN, *SCRIPTS, "message/rfc822")
"""What a browser may run."""


async def view(dialect: Dialect, backend: Backend, request: web.Request) -> web.StreamResponse:
    query = request.rel_url.query
    if "filename" not in query:
        return web.Response(status=404)
    place = place_to_read(backend.roots, query["filename"], query.get("type", "output"), query.get("subfolder"))
    if isinstance(place, int):
        return web.Response(status=place)
    found = await backend.find_file(place)
    if found is None:
        return web.Response(status=404)
    headers = {"Content-Disposition": f'filename="{place.name}"'}
    channel = query.get("channel", "")
    if "preview" in query:
        return _preview(found, query["preview"].split(";"), channel, headers)
    if channel in ("rgb", "a"):
        return _channel(found, channel, headers)
    content_type = TYPES.guess_type(place.name)[0] or "application/octet-stream"
    headers["Content-Type"] = "application/octet-stream" if content_type in NEVER_SHOWN else content_type
    if dialect.active_content_downloaded:
        headers["X-Content-Type-Options"] = "nosniff"
        if _is_active(content_type):
            headers |= _download(place.name, content_type, request.headers.get("Sec-Fetch-Dest"))
    if isinstance(found, Path):
        return web.FileResponse(found, headers=headers)
    return web.Response(body=found, headers=headers)


async def upload_image(backend: Backend, request: web.Request) -> web.Response:
    return await _upload(backend, await request.post())


async def upload_mask(backend: Backend, request: web.Request) -> web.Response:
    post = await request.post()

    async def content(sent: bytes, name: str) -> bytes | None:
        named = json.loads(str(post.get("original_ref")))
        kind, subfolder = named.get("type", "output"), named.get("subfolder", "")
        original = place_to_read(backend.roots, named["filename"], kind, subfolder)
        found = None if isinstance(original, int) else await backend.find_file(original)
        return None if found is None else _with_alpha(found, sent, name)

    return await _upload(backend, post, content)


async def _upload(backend: Backend, post: Any, content: Content | None = None) -> web.Response:
    image, kind, subfolder = post.get("image"), post.get("type", "input"), post.get("subfolder", "")
    if kind not in backend.roots:
        raise ValueError(f"no folder of type {kind}")
    if not image:
        return web.Response(status=400)
    place = place_to_write(backend.roots, image.filename, kind, subfolder)
    if place is None:
        return web.Response(status=400)
    sent, overwrite = image.file.read(), post.get("overwrite") in ("true", "1")
    upload = Upload(place, sent, overwrite, content and partial(content, sent, place.name))
    name = await backend.save_upload(upload)
    return web.json_response({"name": name, "subfolder": subfolder, "type": kind})


def _is_active(content_type: str) -> bool:
    bare = content_type.split(";")[0].strip().lower()
    return bare in ACTIVE or bare.endswith(("+xml", "/xml"))


def _download(name: str, content_type: str, destination: str | None) -> dict[str, str]:
    """The headers of what must not run in the page of the server. A picture in SVG may be shown as a picture."""
    headers = {"Vary": "Sec-Fetch-Dest", "Cache-Control": "no-store"}
    if destination == "image" and content_type == "image/svg+xml":
        return {**headers, "Content-Type": content_type}
    attachment = f'attachment; filename="{name}"'
    return {**headers, "Content-Type": "application/octet-stream", "Content-Disposition": attachment}


def _preview(found: Found, options: list[str], channel: str, headers: dict[str, str]) -> web.Response:
    form = options[0] if options[0] in ("webp", "jpeg") and "a" not in channel else "webp"
    quality = int(options[-1]) if options[-1].isdigit() else 90
    with _opened(found) as image:
        picture = image.convert("RGB") if form == "jpeg" or channel == "rgb" else image
        return _picture(picture, form, headers, quality=quality)


def _channel(found: Found, channel: str, headers: dict[str, str]) -> web.Response:
    with _opened(found) as image:
        if channel == "rgb":
            return _picture(image.convert("RGB"), "png", headers)
        alpha = image.getchannel("A") if image.mode == "RGBA" else Image.new("L", image.size, 255)
        picture = Image.new("RGBA", image.size)
        picture.putalpha(alpha)
        return _picture(picture, "png", headers)


def _picture(picture: Image.Image, form: str, headers: dict[str, str], **options: int) -> web.Response:
    buffer = io.BytesIO()
    picture.save(buffer, format=form, **options)
    return web.Response(body=buffer.getvalue(), content_type=f"image/{form}", headers=headers)


def _with_alpha(original: Found, mask: bytes, name: str) -> bytes:
    """The original with the alpha channel of a mask and with its own texts, in the format that the name says."""
    buffer, metadata = io.BytesIO(), PngInfo()
    buffer.name = name
    with _opened(original) as image, _opened(mask) as drawn:
        picture = image.convert("RGBA")
        picture.putalpha(drawn.convert("RGBA").getchannel("A"))
        for key, value in getattr(image, "text", {}).items():
            metadata.add_text(key, value)
    picture.save(buffer, pnginfo=metadata, compress_level=4)
    return buffer.getvalue()


def _opened(found: Found) -> Image.Image:
    return Image.open(io.BytesIO(found) if isinstance(found, bytes) else found)
