"""/api/v1/workflows: what can be asked for, and taking in a file that carries a workflow."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from comfyui_agent.config.workflows import describe, usual_classes
from comfyui_agent.pools import REQUESTS
from comfyui_agent.usecases.workflow_import import import_upload
from comfyui_agent.web.api.models import WorkflowImported, WorkflowList, WorkflowWhole
from comfyui_agent.web.api.parameters import PREFIX, ByAdmin, Here, User
from comfyui_agent.web.openapi import UPLOAD, problems

router = APIRouter(prefix=f"{PREFIX}/workflows", tags=["workflows"])


@router.get("", response_model=WorkflowList, responses=problems(409))
async def list_workflows(context: Here, _: User) -> Any:
    """Every workflow that `workflows.yaml` names, and every template in the folder of workflows."""
    return {"workflows": await context.submissions.workflows()}


@router.get("/{workflow_id}", response_model=WorkflowWhole, responses=problems(404, 409))
async def show(context: Here, _: User, workflow_id: Annotated[str, Path(min_length=1, max_length=200)]) -> Any:
    """Every place of a workflow that a value can go to, and the names that lead there."""
    workflow = await context.submissions.workflow(workflow_id)
    offers = await context.submissions.intake.offers(usual_classes(workflow))
    found = await REQUESTS.run(describe, workflow, list(offers.values()))
    return found | {"template_path": context.workspace.without_root(found["template_path"])}


@router.post("", response_model=WorkflowImported, **UPLOAD)
async def import_file(
    context: Here,
    by: ByAdmin,
    request: Request,
    name: Annotated[str, Query(max_length=200, description="Its id. 409 if it is taken.")] = "",
    file: Annotated[str, Query(max_length=300, description="Without a name it is called as this file.")] = "",
) -> Any:
    """Make a workflow of the workspace out of a file that carries one, as `e3 workflow import` does. For admins.

    The body is the file itself: a workflow in API or UI format, or a picture, film or sound with one in it.
    """
    data = await request.body()
    found = (await import_upload(context.store, context.workspace, by, data, name, file)).as_json()
    return found | {"recipes": context.workspace.without_root(found["recipes"])}
