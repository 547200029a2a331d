"""/api/v1/models/…: pictures of the model files that servers offer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import FileResponse, Response

from comfyui_agent.web.api.parameters import PREFIX, Here, User
from comfyui_agent.web.api.responses import FileAnswer
from comfyui_agent.web.openapi import file_answers

router = APIRouter(prefix=f"{PREFIX}/models", tags=["workflows"])
KEPT_SECONDS, MISSING_SECONDS = 3600, 60


@router.get(
    "/{folder}/preview",
    response_class=FileResponse,
    responses={**file_answers("image/webp"), 204: {"description": "No server has a picture of it"}},
)
async def preview(
    context: Here,
    _: User,
    folder: Annotated[str, Path(pattern=r"^[A-Za-z0-9_]{1,64}$", description="A kind, such as checkpoints or loras.")],
    name: Annotated[str, Query(min_length=1, max_length=500, description="The file, as servers offer it.")],
) -> Response:
    """A small picture of a model: the one beside its file at a server, which ComfyUI's model library shows."""
    found = await context.model_previews.get(folder, name)
    if found is None:
        return Response(status_code=204, headers={"Cache-Control": f"private, max-age={MISSING_SECONDS}"})
    return FileAnswer(found, media_type="image/webp", headers={"Cache-Control": f"private, max-age={KEPT_SECONDS}"})
