"""Who may use a route."""

from __future__ import annotations

from fastapi import Request

from comfyui_agent.access.gate import READING, Caller, Gate, check_role
from comfyui_agent.domain.tokens import Role


async def scraper(request: Request) -> Caller:
    """Dependency of routes that every role may use."""
    context = request.app.state.context
    gate: Gate = context.gate
    found = await gate.admit(request)
    if request.method in READING:  # the guard has counted changes already
        context.limits.count("reads", found)
    return found


async def caller(request: Request) -> Caller:
    """Dependency of routes for readers; for changes, of routes for users."""
    found = await scraper(request)
    check_role(found, Role.READ if request.method in READING else Role.USER)
    return found


async def admin(request: Request) -> Caller:
    """Dependency of routes for admins."""
    found = await scraper(request)
    check_role(found, Role.ADMIN)
    return found
