"""The FastAPI application: every route, behind the guard."""

from __future__ import annotations

from fastapi import FastAPI

from comfyui_agent import __version__
from comfyui_agent.web import openapi, probes, site
from comfyui_agent.web.api import batches, books, event_routes, job_results, jobs, reports, servers, workflows
from comfyui_agent.web.context import Context
from comfyui_agent.web.guard import Guard
from comfyui_agent.web.problems import JsonAnswer, add_handlers


def create_app(context: Context) -> FastAPI:
    app = FastAPI(
        title="E3, the ComfyUI Agent",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        default_response_class=JsonAnswer,
    )
    app.state.context = context
    routes = (jobs, job_results, batches, books, servers, workflows, reports, event_routes)
    for module in (*routes, probes, openapi, site):
        app.include_router(module.router)
    add_handlers(app)
    openapi.describe(app)
    app.add_middleware(Guard, gate=context.gate, limits=context.limits)
    return app
