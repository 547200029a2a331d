"""Errors of Comfy API v2: one envelope with a code, whatever refuses a request."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyui_agent.files.port import FilesAway
from comfyui_agent.wire.application import Handler

log = logging.getLogger(__name__)

PREFIX = "/api/v2"
OURS = tuple(f"{PREFIX}/{name}" for name in ("jobs", "assets", "health"))
"""Everything else below the prefix is of ComfyUI itself and its custom nodes."""
CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
KEPT = ("Retry-After", "WWW-Authenticate", "Allow")


class ApiError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] = {}, **details: Any) -> None:
        super().__init__(message)
        error: dict[str, Any] = {"code": code, "message": message, **({"details": details} if details else {})}
        self.answer: dict[str, Any] = {"data": {"error": error}, "status": status, "headers": headers}

    def response(self) -> web.Response:
        return web.json_response(**self.answer)


def not_found(what: str) -> ApiError:
    return ApiError(404, "not_found", f"there is no such {what}, or it is not yours")


def invalid(message: str, **details: Any) -> ApiError:
    return ApiError(422, "invalid_request", message, **details)


def enveloped() -> Middleware:
    """The outermost layer: what refuses a request further in, or fails, is told as this contract has it."""

    @web.middleware
    async def envelop(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not f"{request.path}/".startswith(tuple(f"{each}/" for each in OURS)):
            return await handler(request)
        try:
            response = await handler(request)
        except ApiError as error:
            return error.response()
        except web.HTTPException as error:
            return _told(request, error).response()
        except FilesAway:
            message = "files cannot be reached at the moment"
            return ApiError(503, "upstream_error", message, {"Retry-After": "5"}).response()
        except ConnectionError:  # the client left
            raise
        except Exception:
            log.exception("a request of Comfy API v2 failed")
            return ApiError(500, "upstream_error", "this could not be done: the log of e3 says more").response()
        is_refusal = isinstance(response, web.Response) and response.status >= 400
        return _told(request, response).response() if is_refusal else response  # type: ignore[arg-type]

    return envelop


def _told(request: web.Request, refusal: web.Response | web.HTTPException) -> ApiError:
    """What another layer has refused. Who would queue a job and may not at the moment finds the queue full."""
    too_many = "queue_full" if request.method == "POST" and request.path == OURS[0] else "rate_limited"
    code = too_many if refusal.status == 429 else CODES.get(refusal.status, "upstream_error")
    headers = {name: refusal.headers[name] for name in KEPT if name in refusal.headers}
    return ApiError(refusal.status, code, (refusal.text or f"{request.path} is refused").removeprefix("E3: "), headers)
