"""What requests of Comfy API v2 say."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web

from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import ApiError, invalid
from comfyui_agent.pools import PARSING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import KeyClaim

LONGEST_KEY = 255
MOST_BYTES = 32 * 1024**2
LEAST_SECONDS, MOST_SECONDS = 60, 604_800
LONGEST_PATH, LONGEST_TYPE = 1_000, 200
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


async def json_object(request: web.Request) -> dict[str, Any]:
    if (request.content_length or 0) > MOST_BYTES or len(data := await request.read()) > MOST_BYTES:
        raise ApiError(413, "too_large", f"a request may have {MOST_BYTES // 1024**2} MB of JSON")
    body = await PARSING.run(_parsed, data)
    if not isinstance(body, dict):
        raise invalid("the body is not a JSON object")
    return body


def _parsed(data: bytes) -> Any:
    try:
        body = json.loads(data)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # no JSON, or what only Python takes for it
        raise invalid("the body is not JSON") from None
    return body


def claim_of(request: web.Request, caller: Caller, what: str) -> KeyClaim | None:
    """The key of a request, which counts once for what one token makes."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise invalid(f"Idempotency-Key takes 1 to {LONGEST_KEY} printable ASCII characters")
    return KeyClaim(key, f"v2 {what} {caller.actor.token_id or ''}")


async def check_unused(caller: Caller, claim: KeyClaim | None, what: str) -> None:
    """422 if a key has made something. It is asked again when something is made."""
    made = await caller.gateway.store.run(ops.made_under_key, claim.key, claim.scope) if claim is not None else ()
    if made:
        raise key_reuse(made[0], what)


def key_reuse(made: str, what: str) -> ApiError:
    details: dict[str, Any] = {f"{what}_id": made}
    return ApiError(422, "idempotency_key_reuse", f"this Idempotency-Key was used for the {what} {made}", **details)


def text_of(fields: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = fields.get(name)
    if value is not None and not (isinstance(value, str) and len(value) <= longest and not CONTROL.search(value)):
        raise invalid(f"{name} takes at most {longest:,} characters, without control characters", field=name)
    return value


def seconds_of(fields: Mapping[str, Any], usual: float | None) -> float | None:
    """How long an asset is wanted."""
    value = fields.get("expires_in")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if value is None:
        return usual
    if type(value) is not int or not LEAST_SECONDS <= value <= MOST_SECONDS:
        raise invalid(f"expires_in takes {LEAST_SECONDS} to {MOST_SECONDS:,} seconds", field="expires_in")
    return float(value)


def check_tags(tags: Any) -> None:
    """Tags are taken and not kept."""
    if not (
        isinstance(tags, Collection) and not isinstance(tags, (str, dict)) and all(isinstance(tag, str) for tag in tags)
    ):
        raise invalid("tags takes a list of texts", field="tags")
