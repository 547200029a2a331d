"""/api/v1/inputs: pictures, films and sounds that jobs can load, uploaded once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import FileResponse, Response

from comfyui_agent.access.problem import Problem
from comfyui_agent.comfy.content import ATTACHMENT, HEAD, media_type_of
from comfyui_agent.engine.intake.input_files import KEPT_INPUT
from comfyui_agent.pictures.thumbnails import NoThumbnail
from comfyui_agent.pools import FILES
from comfyui_agent.usecases.uploads import Uploads, keep_input
from comfyui_agent.web.api.models import InputList, InputUploaded
from comfyui_agent.web.api.parameters import PREFIX, By, Here, User
from comfyui_agent.web.api.responses import FileAnswer
from comfyui_agent.web.context import Context
from comfyui_agent.web.openapi import UPLOAD, file_answers, problems
from comfyui_agent.web.outputs import WIDTHS

router = APIRouter(prefix=f"{PREFIX}/inputs", tags=["inputs"])
FOR_EVER = "private, max-age=31536000, immutable"
Kept = Annotated[str, Path(pattern=r"^[0-9a-f]{64}\.[a-z0-9]{1,8}$", description="The name of a kept file.")]


@router.post("", response_model=InputUploaded, **UPLOAD)
async def upload(
    context: Here,
    by: By,
    request: Request,
    name: Annotated[str, Query(max_length=300, description="What it is called, such as castle.png.")] = "",
) -> Any:
    """Keep a picture, film or sound for jobs. The body is the file itself; jobs name it by `value`.

    The same bytes are kept once. What no job uses is removed by `retention.inputs_days`, unless it was uploaded.
    """
    found = await keep_input(context.store, context.workspace, by, await request.body(), name)
    return _shown(found.name, found.kept)


@router.get("", response_model=InputList, responses=problems())
async def list_inputs(context: Here, _: User, limit: Annotated[int, Query(ge=1, le=200)] = 60) -> Any:
    """What was uploaded last, the newest first."""
    uploads = Uploads(context.store, context.workspace)
    names = await uploads.newest()
    kept = await uploads.find([f"input/{name}" for name in names])
    named = {kept[f"input/{name}"]: name for name in reversed(names) if f"input/{name}" in kept}
    return {"inputs": [_shown(name, each) for each, name in reversed(named.items())][:limit]}


@router.get("/{kept}", response_class=FileResponse, responses=file_answers("image/*", "video/*", "audio/*"))
async def content(context: Here, _: User, kept: Kept) -> Response:
    """A kept file."""
    path = await _local(context, kept)
    try:
        kind = media_type_of(await FILES.run(_head, path))
    except OSError:  # removed at this moment
        raise Problem(404, f"there is no input {kept}", f"See {PREFIX}/inputs.") from None
    headers = {"Cache-Control": FOR_EVER, "Content-Security-Policy": "sandbox; default-src 'none'"}
    how = "attachment" if kind == ATTACHMENT else "inline"
    return FileAnswer(path, media_type=kind, filename=kept, content_disposition_type=how, headers=headers)


@router.get("/{kept}/thumbnail", response_class=FileResponse, responses=file_answers("image/webp"))
async def thumbnail(
    context: Here, _: User, kept: Kept, width: Annotated[int, Query(ge=1, le=4096, description="In pixels.")] = 320
) -> Response:
    """A small picture of a kept picture, made once."""
    path = await _local(context, kept)
    try:
        allowed = next((each for each in WIDTHS if each >= width), WIDTHS[-1])
        small = await context.outputs.thumbnails.get(path, kept, allowed)
    except (NoThumbnail, OSError):
        raise Problem(404, f"{kept} is no picture that can be shown", f"See {PREFIX}/inputs/{kept}.") from None
    return FileAnswer(small, media_type="image/webp", headers={"Cache-Control": FOR_EVER})


async def _local(context: Context, kept: str) -> FilePath:
    """Where a kept file lies on this machine; 404 if there is none."""
    with suppress(OSError):
        if (path := await Uploads(context.store, context.workspace).local(kept)) is not None:
            return path
    raise Problem(404, f"there is no input {kept}", f"See {PREFIX}/inputs.")


def _head(path: FilePath) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _shown(name: str, kept: str) -> dict[str, Any]:
    url = f"{PREFIX}/inputs/{kept}"
    return {"name": name, "value": f"{KEPT_INPUT}{kept}", "url": url, "thumbnail": f"{url}/thumbnail?width=320"}
