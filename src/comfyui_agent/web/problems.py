"""Errors as answers: `application/problem+json` for programs, a page for people."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from comfyui_agent.access.problem import (
    BAD_CURSOR,
    BAD_VALUES,
    EXTERNAL_ID_TAKEN,
    MOST_ERRORS,
    NAME_TAKEN,
    TOO_MUCH,
    Problem,
)
from comfyui_agent.domain.texts import is_whole
from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, StoreClosed, StoreError
from comfyui_agent.store.job_orders import BadCursor
from comfyui_agent.store.records import Holder
from comfyui_agent.usecases.errors import (
    ExternalIdTaken,
    Invalid,
    NameTaken,
    NotAllowed,
    NotFound,
    TooLarge,
    UseCaseError,
)
from comfyui_agent.web.screens import NoScreen

if TYPE_CHECKING:
    from comfyui_agent.web.context import Context

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

AGAIN = "Change what is named here, and send it again."


class JsonAnswer(JSONResponse):
    """Valid JSON, even if rows hold NaN, bytes or lone surrogates."""

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (ValueError, TypeError):
            return self.render(_plain(content))
        return text.encode("utf-8") if is_whole(text) else json.dumps(content, separators=(",", ":")).encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer to GET has an ETag of its body, and is 304 for a client that has it."""
        if scope["method"] == "GET" and self.status_code == 200:
            tag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
            self.headers.setdefault("ETag", tag)
            if is_known(scope, tag):
                await not_modified(self.headers)(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def is_known(scope: Scope, tag: str) -> bool:
    """Whether If-None-Match has this ETag."""
    said = [each.strip().removeprefix("W/") for each in Headers(scope=scope).get("if-none-match", "").split(",")]
    return bool(tag) and (tag in said or "*" in said)


def not_modified(headers: Mapping[str, str]) -> Response:
    kept = ("etag", "cache-control")
    return Response(status_code=304, headers={name: headers[name] for name in kept if name in headers})


def _plain(value: Any) -> Any:
    """The value with null in place of NaN, and text in place of bytes and other types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, (str, int)) else str(value)


def not_found(what: str, name: str, where: str) -> Problem:
    """404 with the address of the list to look in."""
    return Problem(404, f"there is no {what} {name[:200]!r}", f"See {where}.")


def made_by(holder: Holder) -> dict[str, str]:
    """What has a caller's own key, and where it is shown."""
    noun = "batches" if holder.kind == "batch" else f"{holder.kind}s"
    return {"kind": holder.kind, "id": holder.id, "url": f"/api/v1/{noun}/{quote(holder.id, safe='')}"}


KINDS = {TooLarge: TOO_MUCH, Invalid: BAD_VALUES, NameTaken: NAME_TAKEN, ExternalIdTaken: EXTERNAL_ID_TAKEN}


def from_use_case(error: UseCaseError) -> Problem:
    """Why a use case was refused, key by key where it was the request."""
    status = 404 if isinstance(error, NotFound) else 403 if isinstance(error, NotAllowed) else 409
    again = "Queue it with e3 sweep, or in parts." if isinstance(error, TooLarge) else AGAIN
    found = [(each.key, each.message) for each in error.found] if isinstance(error, Invalid) else []
    made = made_by(error.holder) if isinstance(error, ExternalIdTaken) else None
    kind = KINDS.get(type(error), "")
    return Problem(status, error.message, error.remedy or again, errors=found, kind=kind, made=made)


def add_handlers(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        return shown(request, problem_of(error, request))

    for kind in (Problem, HTTPException, RequestValidationError, UseCaseError, StoreError, BadCursor, NoScreen):
        app.add_exception_handler(kind, answer)


def problem_of(error: Exception, request: Request) -> Problem:
    """What an error becomes for the client."""
    match error:
        case Problem():
            return error
        case HTTPException():
            path = request.scope["path"][:200]  # request.url would trust the Host header
            found = {404: f"there is nothing at {path}", 405: f"{request.method[:20]} is not possible at {path}"}
            headers = dict(error.headers or {}) | _allowed(request, error.status_code)
            return Problem(error.status_code, found.get(error.status_code, str(error.detail)), headers=headers)
        case RequestValidationError():
            errors = [(_key(each["loc"]), str(each["msg"])) for each in error.errors()[:MOST_ERRORS]]
            detail = "; ".join(f"{key}: {message}" if key else message for key, message in errors[:3])
            return Problem(422, detail, "See /docs for what may be sent.", errors=errors)
        case UseCaseError():
            return from_use_case(error)
        case BadCursor():
            return Problem(404, str(error), "Begin without a cursor.", kind=BAD_CURSOR)
        case NoScreen():
            return Problem(404, str(error), "Begin at the overview.")
        case StoreError():  # 503; with Retry-After if that passes by itself
            is_passing = isinstance(error, (DatabaseAway, DatabaseFull, StoreClosed))
            remedy = "Try again in a moment." if is_passing else "See e3 doctor."
            return Problem(503, str(error), remedy, headers={"Retry-After": "2"} if is_passing else {})
        case _:
            log.error("%s %.200s failed", request.method, request.scope["path"], exc_info=error)
            return Problem(500, f"{type(error).__name__} while answering")


def _allowed(request: Request, status: int) -> dict[str, str]:
    """The Allow header with the methods of all routes of a path. Starlette names those of the first route only."""
    path = getattr(request.scope.get("route"), "path_format", "")
    described = request.app.openapi()["paths"].get(path) if status == 405 else None
    return {"Allow": ", ".join(method.upper() for method in described)} if described else {}


def _key(loc: Sequence[Any]) -> str:
    """The place of an error in the request, without the leading `body` or `query`."""
    return ".".join(str(part) for part in loc[1:]) if loc and loc[0] in ("body", "query", "path", "header") else ""


def wants_page(request: Request) -> bool:
    """Whether a person looks at this with a browser."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")


def without_paths(request: Request, problem: Problem) -> Problem:
    """The problem, without the path of the workspace."""
    context: Context | None = getattr(request.app.state, "context", None) if "app" in request.scope else None
    if context is not None:
        shorten = context.workspace.without_root
        errors = [(key, shorten(message)) for key, message in problem.errors]
        problem = replace(problem, detail=shorten(problem.detail), remedy=shorten(problem.remedy), errors=errors)
    return problem


def shown(request: Request, problem: Problem) -> Response:
    problem = without_paths(request, problem)
    if not wants_page(request):
        return JsonAnswer(problem.as_json(), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)
    from comfyui_agent.web.html import environment

    values = {"problem": problem, "title": problem.title, "is_login": problem.status == 401}
    page = environment().get_template("problem.html").render(values)
    return HTMLResponse(in_bytes(page), problem.status, headers=problem.headers)


def in_bytes(page: str) -> bytes:
    """A page in UTF-8; lone surrogates become visible escapes."""
    return page.encode("utf-8", "backslashreplace")
