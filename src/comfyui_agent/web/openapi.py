"""The OpenAPI document, the page that shows it, and the answers that routes declare for it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, Response
from pydantic import BeforeValidator

from comfyui_agent import __version__
from comfyui_agent.access.problem import KINDS, OWN_KINDS, TITLES
from comfyui_agent.web.api.models import ProblemShown
from comfyui_agent.web.html import environment
from comfyui_agent.web.problems import MEDIA_TYPE, JsonAnswer

DESCRIPTION = """Everything that the command line can do with the queue, over HTTP.

Without tokens E3 answers on this machine only, and whoever asks is an admin. With tokens (`e3 token create`) send
`Authorization: Bearer TOKEN`. Whatever cannot be done is answered as `application/problem+json`, with a remedy.
Every request that makes something takes an `Idempotency-Key`: sent again after a lost answer, nothing is made twice."""
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Pydantic writes bounds of a number with a BeforeValidator under its own names. These are those of JSON Schema."""

PROBLEM = {"schema": {"$ref": "#/components/schemas/ProblemShown"}}
ALWAYS = (401, 403, 422, 429, 503)
SENDING = (400, 408, 413, 415)

router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
async def docs() -> Response:
    page = environment().get_template("docs.html").render(title="API")
    return HTMLResponse(page, headers={"Content-Security-Policy": DOCS_POLICY})


@router.get("/docs/problems", response_class=HTMLResponse)
async def problem_types() -> Response:
    """What each type of a problem means."""
    known = {kind: TITLES[status] for status, kind in KINDS.items()} | OWN_KINDS
    rows = "".join(f'<dt id="{kind}">{kind}</dt><dd>{said}</dd>' for kind, said in known.items())
    return HTMLResponse(
        f'<!doctype html><html lang="en"><title>Problems</title><h1>Problems</h1><dl>{rows}</dl></html>'
    )


@router.get("/openapi.json")
async def document(request: Request) -> Response:
    """Encoded once, because everyone may ask for it any number of times."""
    state = request.app.state
    if not hasattr(state, "openapi"):
        state.openapi = JsonAnswer(request.app.openapi()).body
    return Response(state.openapi, media_type="application/json")


def describe(app: FastAPI) -> None:
    """Replace the generated document: with the schema of problems, and with optional tokens."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title="E3, the ComfyUI Agent", version=__version__, description=DESCRIPTION, routes=app.routes
            )
            parts = made.setdefault("components", {})
            parts.setdefault("schemas", {})["ProblemShown"] = ProblemShown.model_json_schema()
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path in made["paths"].values():
                for operation in path.values():
                    operation["security"] = [{}, {"token": []}]
            app.openapi_schema = json.loads(json.dumps(made), object_hook=_name_bounds)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _name_bounds(part: dict[str, Any]) -> dict[str, Any]:
    is_number = part.get("type") in ("integer", "number")
    return {BOUNDS.get(key, key): value for key, value in part.items()} if is_number else part


def problems(*statuses: int, sends: bool = False) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, with those that every route may."""
    found = sorted({*ALWAYS, *statuses, *(SENDING if sends else ())})
    return {status: {"description": TITLES[status], "content": {MEDIA_TYPE: PROBLEM}} for status in found}


BODY_IS_A_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def file_answer(*kinds: str) -> dict[str, Any]:
    """An answer that is a file."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "The file", "content": dict.fromkeys(kinds, schema)}


def file_answers(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that serves a file, whole or in ranges."""
    whole = file_answer(*kinds)
    return {200: whole, 206: whole | {"description": "A part of the file"}, **problems(400, 404, 416)}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


AsInteger = BeforeValidator(_whole)
"""For strict models: a whole number in JSON is 3 or 3.0, but not "3" or true."""
