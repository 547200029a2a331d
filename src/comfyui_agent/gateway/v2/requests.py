"""What requests of Comfy API v2 say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import ApiError, invalid
from comfyui_agent.pools import PARSING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import KeyClaim, KeyUsed

M = TypeVar("M", bound=BaseModel)
LONGEST_KEY = 255
MOST_BYTES = 32 * 1024**2
FilePath = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]*$")]


class ExtraData(BaseModel):
    model_config = ConfigDict(extra="forbid")
    api_key_comfy_org: str | None = None


class JobRequest(BaseModel):
    workflow: dict[str, Any]
    extra_data: ExtraData = ExtraData()


class FromHash(BaseModel):
    hash: str
    file_path: FilePath | None = None
    expires_in: Annotated[int, Field(ge=60, le=604_800)] | None = None
    tags: list[str] = []
    """They are taken, and not kept."""


class UploadForm(FromHash):
    hash: str = ""
    file_path: FilePath
    content_type: Annotated[str, Field(max_length=200, pattern=r"^[ -~]*$")]
    expected_hash: str | None = None


def parsed(model: type[M], data: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        code = "invalid_workflow" if where == "workflow" else "invalid_request"
        raise ApiError(422, code, f"{where}: {first['msg']}", field=where) from None


async def json_object(request: web.Request) -> dict[str, Any]:
    if (request.content_length or 0) > MOST_BYTES or len(data := await request.read()) > MOST_BYTES:
        raise ApiError(413, "too_large", f"a request may have {MOST_BYTES // 1024**2} MB of JSON")
    body = await PARSING.run(_parsed, data)
    if not isinstance(body, dict):
        raise invalid("the body is no JSON object")
    return body


def _parsed(data: bytes) -> Any:
    """None for what is no JSON, and for what only Python takes for it."""
    try:
        body = json.loads(data)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return body


@asynccontextmanager
async def key_used_once(caller: Caller, request: web.Request, what: str) -> AsyncIterator[KeyClaim | None]:
    """The key of a request. 422 that names what was made with it, if it was used before, or is meanwhile."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise invalid(f"Idempotency-Key takes 1 to {LONGEST_KEY} printable ASCII characters")
    claim = None if key is None else KeyClaim(key, f"v2 {what} {caller.actor.token_id or ''}")
    try:
        if claim and (made := await caller.gateway.store.run(ops.made_under_key, claim.key, claim.scope)):
            raise KeyUsed(made[0])
        yield claim
    except KeyUsed as used:
        details: dict[str, Any] = {f"{what}_id": used.made}
        raise ApiError(422, "idempotency_key_reuse", f"this key was used for {what} {used.made}", **details) from None
