"""/api/v1/notify: seeing that notifications arrive."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from comfyui_agent.usecases.notifications import send_test
from comfyui_agent.web.api.models import TestSent
from comfyui_agent.web.api.parameters import PREFIX, ByAdmin, Here
from comfyui_agent.web.openapi import problems

router = APIRouter(prefix=f"{PREFIX}/notify", tags=["notifications"])


@router.post("/test", response_model=TestSent, responses=problems(409))
async def test(context: Here, by: ByAdmin) -> Any:
    """Send a test message to every address of `notify.urls`. For admins."""
    return {"sent": await send_test(context.store, context.workspace, by)}
