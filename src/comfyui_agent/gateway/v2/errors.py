"""Errors of Comfy API v2: one envelope with a code, whatever refuses a request."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from comfyui_agent.files.port import FilesAway
from comfyui_agent.wire.application import Handler

log = logging.getLogger(__name__)

PREFIX = "/api/v2"
OURS = tuple(f"{PREFIX}/{name}" for name in ("jobs", "assets", "health"))
"""Everything else below the prefix is of ComfyUI itself and its custom nodes."""
CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    429: "rate_limited",
}
FAILED = "this could not be done: the log of e3 says more"


class ApiError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] = {}, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
        self.headers = headers

    def response(self) -> web.Response:
        error: dict[str, Any] = {"code": self.code, "message": str(self)}
        if self.details:
            error["details"] = self.details
        return web.json_response({"error": error}, status=self.status, headers=self.headers)


def not_found(what: str) -> ApiError:
    return ApiError(404, "not_found", f"there is no such {what}, or it is not yours")


def invalid(message: str, **details: Any) -> ApiError:
    return ApiError(422, "invalid_request", message, **details)


def is_ours(path: str) -> bool:
    return path.startswith(OURS) and (path in OURS or path.startswith(tuple(f"{each}/" for each in OURS)))


def enveloped() -> Middleware:
    """The outermost layer: what refuses a request further in, or fails, is told as this contract has it."""

    @web.middleware
    async def envelop(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_ours(request.path):
            return await handler(request)
        try:
            response = await handler(request)
            if response.status < 400 or response.content_type == "application/json" or response.prepared:
                return response
            text = response.text if isinstance(response, web.Response) else None
            return _told(request, response.status, text or "", response.headers).response()
        except ApiError as error:
            return error.response()
        except web.HTTPException as error:
            return _told(request, error.status, error.text or "", error.headers).response()
        except FilesAway as error:
            log.info("files cannot be reached: %s", error.strerror)
            return _told(request, 503, "files cannot be reached at the moment", {"Retry-After": "5"}).response()
        except (ConnectionError, TimeoutError):  # the client left
            raise
        except Exception:
            log.exception("a request of Comfy API v2 failed")
            return ApiError(500, "upstream_error", FAILED).response()

    return envelop


def _told(request: web.Request, status: int, text: str, headers: Mapping[str, str]) -> ApiError:
    """What another layer has refused. Who would queue a job and may not at the moment finds the queue full."""
    code = CODES.get(status, "upstream_error")
    if status == 429 and request.path == OURS[0] and request.method == hdrs.METH_POST:
        code = "queue_full"
    kept = {name: headers[name] for name in ("Retry-After", "WWW-Authenticate", "Allow") if name in headers}
    message = text.removeprefix("E3: ") or f"{request.method} {request.path} is refused"
    return ApiError(status, code, message, kept)
