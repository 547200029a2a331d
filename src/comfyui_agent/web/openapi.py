"""The OpenAPI document, and the page that shows it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, Response

from comfyui_agent import __version__
from comfyui_agent.web.api.models import ProblemShown
from comfyui_agent.web.html import environment
from comfyui_agent.web.problems import JsonAnswer

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

router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
async def docs() -> Response:
    page = environment().get_template("docs.html").render(title="API")
    return HTMLResponse(page, headers={"Content-Security-Policy": DOCS_POLICY})


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
            _name_bounds(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _name_bounds(part: Any) -> None:
    if isinstance(part, list):
        for each in part:
            _name_bounds(each)
    elif isinstance(part, dict):
        if part.get("type") in ("integer", "number"):
            for written in BOUNDS.keys() & part.keys():
                part[BOUNDS[written]] = part.pop(written)
        for each in part.values():
            _name_bounds(each)
