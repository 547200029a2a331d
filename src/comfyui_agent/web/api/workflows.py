"""/api/v1/workflows: what can be asked for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from comfyui_agent.config.workflows import describe
from comfyui_agent.web.api.models import WorkflowList, WorkflowWhole
from comfyui_agent.web.api.parameters import PREFIX, Here, User
from comfyui_agent.web.openapi import problems

router = APIRouter(prefix=f"{PREFIX}/workflows", tags=["workflows"])


@router.get("", response_model=WorkflowList, responses=problems(409))
async def list_workflows(context: Here, _: User) -> Any:
    """Every workflow that `workflows.yaml` names, and every template in the folder of workflows."""
    return {"workflows": await context.submissions.workflows()}


@router.get("/{workflow_id}", response_model=WorkflowWhole, responses=problems(404, 409))
async def show(context: Here, _: User, workflow_id: Annotated[str, Path(min_length=1, max_length=200)]) -> Any:
    """Every place of a workflow that a value can go to, and the names that lead there."""
    found = describe(await context.submissions.workflow(workflow_id))
    return found | {"template_path": context.workspace.without_root(found["template_path"])}
