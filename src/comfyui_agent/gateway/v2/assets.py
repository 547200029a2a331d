"""Assets of Comfy API v2: uploads, kept once as input files, and results of jobs."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import IO

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from blake3 import blake3

from comfyui_agent.comfy.content import ATTACHMENT, HEAD, media_type_of
from comfyui_agent.domain.events import EventName
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.v2.errors import ApiError, invalid, not_found
from comfyui_agent.gateway.v2.outputs import JobOutput, content_of, find_asset
from comfyui_agent.gateway.v2.requests import FromHash, UploadForm, json_object, key_used_once, parsed
from comfyui_agent.gateway.v2.views import asset_view, output_view
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset
from comfyui_agent.usecases.uploads import PIECE
from comfyui_agent.wire.prompts import Json

HASH = re.compile(r"blake3:([0-9a-f]{64})")
DAY = 86_400.0
INLINE = ("image/", "video/", "audio/")


async def upload(caller: GatewayBackend, request: web.Request) -> web.Response:
    """Keep a file under its digest, and make an asset of it."""
    async with key_used_once(caller, request, "asset") as claim:
        try:
            form = await request.post()  # files go to disk as they come
        except (ValueError, LookupError, AssertionError, HttpProcessingError):
            raise invalid("the body is no multipart/form-data") from None
        file = form.get("file")
        if not isinstance(file, web.FileField):
            raise invalid("file: a part with a filename is needed", field="file")
        said = parsed(UploadForm, {**form, "tags": form.getall("tags", [])})
        digest, size = await OBJECTS.run(_digest, file.file)
        if said.expected_hash not in (None, f"blake3:{digest}"):
            raise ApiError(409, "hash_mismatch", f"these bytes have the hash blake3:{digest}")
        is_new = not await _of_hash(caller, f"blake3:{digest}")
        kept = await OBJECTS.run(caller.gateway.uploads.keep, file.file, said.file_path)
        token_id, path = caller.actor.token_id, said.file_path or None
        new = Asset(str(uuid.uuid4()), digest, kept, size, said.content_type, path, token_id)
        asset, _ = await caller.gateway.store.run(ops.mint_asset, new, _seconds(caller, said), claim)
    await caller.actor.audit(caller.gateway.store, EventName.AUDIT_INPUT_UPLOAD, message=f"{path}, {size:,} bytes")
    return web.json_response(asset_view(request, asset, created_new=is_new), status=201 if is_new else 200)


async def from_hash(caller: GatewayBackend, request: web.Request) -> web.Response:
    """Another asset of bytes that the caller has uploaded before."""
    said = parsed(FromHash, await json_object(request))
    known = await _of_hash(caller, said.hash)
    if not known:
        raise ApiError(404, "blob_not_found", "you have uploaded no bytes with this hash")
    source = next((each for each in known if each.file_path == said.file_path), known[0])
    facts = {name: getattr(source, name) for name in ("hash", "kept", "bytes", "content_type")}
    path = said.file_path or source.file_path
    new = Asset(str(uuid.uuid4()), **facts, file_path=path, created_by=caller.actor.token_id)
    asset, is_new = await caller.gateway.store.run(ops.mint_asset, new, _seconds(caller, said))
    return web.json_response(asset_view(request, asset, created_new=False), status=201 if is_new else 200)


async def by_hash(caller: GatewayBackend, _: web.Request, said: str) -> web.Response:
    return web.Response() if await _of_hash(caller, said) else not_found("asset").response()


async def show(caller: GatewayBackend, request: web.Request, asset_id: str) -> Json:
    found = await find_asset(caller, asset_id)
    try:
        return asset_view(request, found) if isinstance(found, Asset) else await output_view(caller, request, found)
    except FileNotFoundError:
        raise not_found("asset") from None


async def remove(caller: GatewayBackend, _: web.Request, asset_id: str) -> web.Response:
    """Results belong to their jobs, and what an open job uses stays."""
    found = await find_asset(caller, asset_id)
    if isinstance(found, JobOutput) or not await caller.gateway.store.run(ops.remove_asset, found.id, caller.owner):
        raise ApiError(409, "asset_in_use", "this asset is in use")
    return web.Response(status=204)


async def content(caller: GatewayBackend, _: web.Request, asset_id: str) -> web.StreamResponse:
    """The bytes. What is no picture, film or sound is only ever saved by a browser, never shown."""
    found = await find_asset(caller, asset_id)
    try:
        source = await content_of(caller, found)
        kind = media_type_of(source[:HEAD] if isinstance(source, bytes) else await OBJECTS.run(_head, source))
    except FileNotFoundError:
        raise not_found("asset") from None
    is_media = kind.startswith(INLINE)
    name = found.name if isinstance(found, JobOutput) else found.file_path or found.id
    plain = re.sub(r"[^\w.-]", "_", name.rpartition("/")[2], flags=re.ASCII)
    headers = {
        "Content-Type": kind if is_media else ATTACHMENT,
        "Content-Disposition": f'{"inline" if is_media else "attachment"}; filename="{plain}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    if isinstance(source, bytes):
        return web.Response(body=source, headers=headers)
    return web.FileResponse(source, headers=headers)


async def _of_hash(caller: GatewayBackend, said: str) -> list[Asset]:
    """The caller's assets with these bytes, which are there."""
    found = HASH.fullmatch(said)
    known = await caller.gateway.store.run(ops.assets_of_hash, found[1], caller.owner) if found else []
    return [each for each in known if await caller.gateway.uploads.local(each.kept) is not None]


def _seconds(caller: GatewayBackend, said: FromHash) -> float | None:
    """How long an asset lasts."""
    days = caller.gateway.workspace.settings.retention.inputs_days
    return said.expires_in or (days * DAY if days else None)


def _digest(file: IO[bytes]) -> tuple[str, int]:
    digest = blake3()
    while piece := file.read(PIECE):
        digest.update(piece)
    return digest.hexdigest(), file.tell()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)
