"""Assets of Comfy API v2: uploads, kept once as input files, and results of jobs."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError
from blake3 import blake3

from comfyui_agent.comfy.content import ATTACHMENT, HEAD, media_type_of
from comfyui_agent.domain.events import EventName
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.v2.errors import ApiError, invalid, not_found
from comfyui_agent.gateway.v2.outputs import JobOutput, find_output
from comfyui_agent.gateway.v2.requests import (
    LONGEST_PATH,
    LONGEST_TYPE,
    check_tags,
    check_unused,
    claim_of,
    json_object,
    key_reuse,
    seconds_of,
    text_of,
)
from comfyui_agent.gateway.v2.views import asset_view, output_asset_view
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset, NewAsset
from comfyui_agent.store.idempotency import KeyClaim, KeyUsed
from comfyui_agent.usecases.uploads import PIECE, kept_name
from comfyui_agent.wire.application import MAX_UPLOAD_BYTES
from comfyui_agent.wire.prompts import Json

HASH = re.compile(r"blake3:([0-9a-f]{64})")
FIELDS = ("content_type", "file_path", "expected_hash", "expires_in", "tags")
LONGEST_FIELD, MOST_FIELDS = 4_096, 100
DAY = 86_400.0
INLINE = ("image/", "video/", "audio/")


@dataclass
class Received:
    """A file that was sent, by what it has: bytes, and digests of them."""

    file: IO[bytes]
    size: int = 0

    def __post_init__(self) -> None:
        self.sha256, self.blake3 = hashlib.sha256(), blake3()

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > MAX_UPLOAD_BYTES:
            raise ApiError(413, "too_large", f"a file may have {MAX_UPLOAD_BYTES // 1024**2} MB")
        for taker in (self.file.write, self.sha256.update, self.blake3.update):
            taker(piece)


async def upload(caller: GatewayBackend, request: web.Request) -> web.Response:
    """Keep a file under its digest, and make an asset of it."""
    claim = claim_of(request, caller, "asset")
    await check_unused(caller, claim, "asset")
    with caller.gateway.uploads.receiving() as file:
        received = Received(file)
        fields = await _receive(request, received)
        content_type = text_of(fields, "content_type", LONGEST_TYPE)
        path = text_of(fields, "file_path", LONGEST_PATH)
        if content_type is None or path is None:
            raise invalid("file, content_type and file_path are needed")
        check_tags(fields.get("tags", []))
        digest, expected = received.blake3.hexdigest(), fields.get("expected_hash")
        if expected is not None and expected != f"blake3:{digest}":
            raise ApiError(409, "hash_mismatch", f"these bytes have the hash blake3:{digest}")
        seconds = seconds_of(fields, _usual_seconds(caller))
        is_known = bool(await _of_hash(caller, digest))
        kept = kept_name(received.sha256.hexdigest(), path)
        await OBJECTS.run(caller.gateway.uploads.keep, file, kept)
        new = NewAsset(
            str(uuid.uuid4()), digest, kept, received.size, content_type, path or None, caller.actor.token_id
        )
        asset, _ = await _mint(caller, new, seconds, claim)
    await caller.actor.audit(caller.gateway.store, EventName.AUDIT_INPUT_UPLOAD, message=f"{path}, {new.bytes:,} bytes")
    return web.json_response(asset_view(request, asset, not is_known), status=200 if is_known else 201)


async def from_hash(caller: GatewayBackend, request: web.Request) -> web.Response:
    """Another asset of bytes that the caller has uploaded before."""
    body = await json_object(request)
    check_tags(body.get("tags", []))
    digest, path = HASH.fullmatch(str(body.get("hash"))), text_of(body, "file_path", LONGEST_PATH)
    if not isinstance(body.get("hash"), str):
        raise invalid("hash takes blake3: and 64 hexadecimal digits", field="hash")
    seconds = seconds_of(body, _usual_seconds(caller))
    known = await _of_hash(caller, digest[1]) if digest else []
    if not known:
        raise ApiError(404, "blob_not_found", "you have uploaded no bytes with this hash")
    source = next((each for each in known if each.file_path == path or not path), known[0])
    facts = {name: getattr(source, name) for name in ("hash", "kept", "bytes", "content_type")}
    new = NewAsset(str(uuid.uuid4()), **facts, file_path=path or source.file_path, created_by=caller.actor.token_id)
    asset, is_new = await _mint(caller, new, seconds, None)
    return web.json_response(asset_view(request, asset, False), status=201 if is_new else 200)


async def by_hash(caller: GatewayBackend, request: web.Request) -> web.Response:
    found = HASH.fullmatch(request.match_info["hash"])
    return web.Response(status=200 if found and await _of_hash(caller, found[1]) else 404)


async def show(caller: GatewayBackend, request: web.Request) -> Json:
    found = await _find(caller, request)
    view = asset_view(request, found) if isinstance(found, Asset) else await output_asset_view(caller, request, found)
    if view is None:
        raise not_found("asset")
    return view


async def remove(caller: GatewayBackend, request: web.Request) -> web.Response:
    """Results belong to their jobs, and what an open job uses stays."""
    found = await _find(caller, request)
    if isinstance(found, JobOutput) or not await caller.gateway.store.run(ops.remove_asset, found.id, caller.owner):
        raise ApiError(409, "asset_in_use", "this asset is in use")
    return web.Response(status=204)


async def content(caller: GatewayBackend, request: web.Request) -> web.StreamResponse:
    """The bytes. What is no picture, film or sound is only ever saved by a browser, never shown."""
    found = await _find(caller, request)
    try:
        source: Path | bytes | None
        if isinstance(found, Asset):
            source, name = await caller.gateway.uploads.local(found.kept), found.file_path or found.id
        else:
            source, name = await found.content(caller), found.name
        head = source[:HEAD] if isinstance(source, bytes) else await OBJECTS.run(_head, source) if source else b""
    except (FileNotFoundError, ValueError):
        source = None
    if source is None:
        raise not_found("asset")
    kind = media_type_of(head)
    how = "inline" if kind.startswith(INLINE) else "attachment"
    plain = re.sub(r"[^\w.-]", "_", Path(name).name, flags=re.ASCII)
    headers = {
        "Content-Type": kind if how == "inline" else ATTACHMENT,
        "Content-Disposition": f'{how}; filename="{plain}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    if isinstance(source, bytes):
        return web.Response(body=source, headers=headers)
    return web.FileResponse(source, headers=headers)


async def _find(caller: GatewayBackend, request: web.Request) -> Asset | JobOutput:
    asset_id = request.match_info["id"]
    found = await caller.gateway.store.run(ops.find_asset, asset_id, caller.owner)
    result = found or await find_output(caller, asset_id)
    if result is None or (isinstance(result, JobOutput) and "rejected" in result.prompt.entry):
        raise not_found("asset")
    return result


async def _of_hash(caller: GatewayBackend, digest: str) -> list[Asset]:
    """The caller's assets with these bytes, which are there."""
    found = await caller.gateway.store.run(ops.assets_of_hash, digest, caller.owner)
    return [each for each in found if await caller.gateway.uploads.local(each.kept) is not None]


async def _mint(
    caller: GatewayBackend, new: NewAsset, seconds: float | None, claim: KeyClaim | None
) -> tuple[Asset, bool]:
    try:
        return await caller.gateway.store.run(ops.mint_asset, new, seconds, claim)
    except KeyUsed as used:
        raise key_reuse(used.made, "asset") from None


def _usual_seconds(caller: GatewayBackend) -> float | None:
    days = caller.gateway.workspace.settings.retention.inputs_days
    return days * DAY if days else None


async def _receive(request: web.Request, received: Received) -> dict[str, Any]:
    """Read a form: its file goes to disk piece by piece, its fields are returned."""
    if (request.content_length or 0) > MAX_UPLOAD_BYTES + MOST_FIELDS * LONGEST_FIELD:
        raise ApiError(413, "too_large", f"a file may have {MAX_UPLOAD_BYTES // 1024**2} MB")
    fields: dict[str, Any] = {}
    has_file = False
    try:
        form = await request.multipart()
        for _ in range(MOST_FIELDS):
            part = await form.next()
            if part is None:
                break
            if not isinstance(part, BodyPartReader):
                raise invalid("a part of the form is a form itself")
            if part.name == "file" and not has_file:
                has_file = True
                while piece := await part.read_chunk(PIECE):
                    await OBJECTS.run(received.take, piece)
            elif part.name in FIELDS:
                text = (await _read_field(part)).decode()
                fields[part.name] = [*fields.get("tags", []), text] if part.name == "tags" else text
            else:
                await part.release()
    except (ValueError, LookupError, AssertionError, HttpProcessingError) as error:
        raise invalid(f"this is no form as multipart/form-data has it: {type(error).__name__}") from None
    if not has_file:
        raise invalid("file, content_type and file_path are needed")
    return fields


async def _read_field(part: BodyPartReader) -> bytes:
    data = b""
    while piece := await part.read_chunk():
        data += piece
        if len(data) > LONGEST_FIELD:
            raise invalid(f"{part.name} has more than {LONGEST_FIELD:,} bytes")
    return data


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)
