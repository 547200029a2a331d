"""What machines ask: does the process answer, can it work, what does it count."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.web.metrics import CONTENT_TYPE
from comfyui_agent.web.problems import Problem

if TYPE_CHECKING:
    from comfyui_agent.store.store import Store
    from comfyui_agent.web.access import Gate
    from comfyui_agent.web.context import Context

PATIENCE = 1.5
"""A probe that takes longer than two seconds is taken for a failed one."""

router = APIRouter(tags=["operations"])
"""Open to everyone: whoever watches over processes has no token."""
metrics_router = APIRouter(tags=["operations"])
"""For every role."""


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    database: Literal["ok", "cannot be read", "does not answer"] | None = Field(
        None, description="Only for whoever has a token, once there are some, like `servers`."
    )
    servers: dict[str, str] | None = Field(
        None, description="The state of each server: up, down, stuck, paused, draining, drained."
    )

    @classmethod
    def of(cls, database: Literal["ok", "cannot be read", "does not answer"], servers: dict[str, str]) -> Readiness:
        """One that people have paused or drained is there, and will be given work again; `down` and `stuck` are not."""
        is_ready = database == "ok" and any(state not in ("down", "stuck") for state in servers.values())
        return cls(status="ready" if is_ready else "not ready", database=database, servers=servers)


@router.get("/healthz", summary="Does the process answer?")
async def healthz() -> Health:
    """Says nothing about the database or the servers: a restart would not help those."""
    return Health()


@router.get(
    "/readyz",
    summary="Can it work?",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "The database cannot be read, or no server answers"}},
)
async def readyz(request: Request) -> Response:
    """200 if the database can be read and at least one server answers; else 503. Within 2 s. What is missing is told
    to whoever may ask for more than this."""
    context: Context = request.app.state.context
    database, reports, is_admitted = await asyncio.gather(
        _look_at(context.store), context.metrics.servers(PATIENCE), _is_admitted(context.gate, request)
    )
    found = Readiness.of(database, {report.name: report.state for report in reports})
    shown = found.model_dump(include=None if is_admitted else {"status"})
    return JSONResponse(shown, 200 if found.status == "ready" else 503)


async def _is_admitted(gate: Gate, request: Request) -> bool:
    try:
        await asyncio.wait_for(gate.admit(request), PATIENCE)
    except (Problem, StoreError, asyncio.TimeoutError):
        return False
    return True


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """In the classic text format. Any token will do."""
    context: Context = request.app.state.context
    return Response(await context.metrics.exposition(), media_type=CONTENT_TYPE)


async def _look_at(store: Store) -> Literal["ok", "cannot be read", "does not answer"]:
    try:
        await asyncio.wait_for(store.run(ops.count_jobs), PATIENCE)
    except asyncio.TimeoutError:
        return "does not answer"
    except StoreError:
        return "cannot be read"
    return "ok"
