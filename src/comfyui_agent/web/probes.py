"""Probes for orchestrators and monitoring: /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from comfyui_agent.access.gate import Gate
from comfyui_agent.access.problem import Problem
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.access import scraper
from comfyui_agent.web.api.parameters import Here
from comfyui_agent.web.metrics import CONTENT_TYPE

PATIENCE = 1.5
"""Seconds. A probe that takes longer than two counts as failed."""

router = APIRouter(tags=["operations"])
"""Probes are open to everyone: an orchestrator has no token."""
Database: TypeAlias = Literal["ok", "cannot be read", "does not answer"]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ready", "not ready"]
    database: Database | None = Field(
        None, description="Only for whoever has a token, once there are some, like `servers`."
    )
    servers: dict[str, str] | None = Field(
        None, description="The state of each server: up, down, stuck, paused, draining, drained."
    )


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
async def readyz(context: Here, request: Request) -> Response:
    """200 if the database can be read and at least one server answers, else 503; within 2 s. Details are for callers
    with a token, once there are some."""
    database, reports, is_admitted = await asyncio.gather(
        _check_database(context.store), context.metrics.servers(PATIENCE), _is_admitted(context.gate, request)
    )
    servers = {report.name: report.state for report in reports}
    is_ready = database == "ok" and any(state not in ("down", "stuck") for state in servers.values())
    found = Readiness(status="ready" if is_ready else "not ready", database=database, servers=servers)
    return JSONResponse(found.model_dump(include=None if is_admitted else {"status"}), 200 if is_ready else 503)


async def _is_admitted(gate: Gate, request: Request) -> bool:
    try:
        await asyncio.wait_for(gate.admit(request), PATIENCE)
    except (Problem, StoreError, asyncio.TimeoutError):
        return False
    return True


@router.get(
    "/metrics",
    dependencies=[Depends(scraper)],
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)
async def metrics(context: Here) -> Response:
    """In the classic text format. Any token will do."""
    return Response(await context.metrics.exposition(), media_type=CONTENT_TYPE)


async def _check_database(store: Store) -> Database:
    try:
        await asyncio.wait_for(store.run(ops.count_jobs), PATIENCE)
    except asyncio.TimeoutError:
        return "does not answer"
    except StoreError:
        return "cannot be read"
    return "ok"
