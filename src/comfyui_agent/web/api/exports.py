"""/api/v1/results/export: results as a zip, or as one picture."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from pydantic import ConfigDict, Field, model_validator

from comfyui_agent.domain.jobs import Job
from comfyui_agent.pools import FILES
from comfyui_agent.usecases.errors import NotFound
from comfyui_agent.usecases.exports import AT_ONCE, chosen_results, contact_sheet, to_export, zip_parts
from comfyui_agent.web.api.jobs import named_jobs
from comfyui_agent.web.api.parameters import PREFIX, Here, Said, User, batch_of
from comfyui_agent.web.openapi import file_answer, problems

MOST_RESULTS = 2_000
router = APIRouter(prefix=f"{PREFIX}/results", tags=["jobs"])


class ExportSaid(Said):
    """Which results: by the names of their jobs, or those that are starred, of a batch, or both."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["names"],
                    "properties": {"names": {"minItems": 1}, "starred": {"const": False}, "batch": {"type": "null"}},
                },
                {
                    "properties": {"names": {"maxItems": 0}},
                    "anyOf": [
                        {"required": ["starred"], "properties": {"starred": {"const": True}}},
                        {"required": ["batch"], "properties": {"batch": {"type": "string"}}},
                    ],
                },
            ]
        }
    )

    names: list[Annotated[str, Field(min_length=1, max_length=300)]] = Field(default=[], max_length=MOST_RESULTS)
    starred: bool = False
    batch: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    form: Literal["zip", "sheet"] = Field(default="zip", alias="as", description="sheet: one PNG, with labels.")

    @model_validator(mode="after")
    def _some(self) -> ExportSaid:
        if bool(self.names) == (self.starred or self.batch is not None):
            raise ValueError("give names, or starred, or batch")
        return self


@router.post(
    "/export",
    response_class=StreamingResponse,
    responses={200: file_answer("application/zip", "image/png"), **problems(404, 409, sends=True)},
)
async def export(context: Here, caller: User, said: ExportSaid) -> Response:
    """The files of up to 2,000 jobs in a zip, with a table of prompts, seeds and models; or a labelled picture.

    A caller has one export at a time; another waits for its turn.
    """
    results = await to_export(context.store, context.prompts, await _chosen(context, said))
    turn = context.exports.turn(caller.scope)

    if said.form == "zip":
        return StreamingResponse(
            _sent(zip_parts(results, context.outputs.file), turn), 200, _named("results.zip"), "application/zip"
        )
    async with turn:
        picture = await contact_sheet(results, context.outputs.file)
    return StreamingResponse(_sent(_read(picture)), 200, _named("sheet.png"), "image/png")


async def _chosen(context: Here, said: ExportSaid) -> list[Job]:
    if not said.names:
        batch_id = (await batch_of(context, said.batch)).id if said.batch else None
        return await chosen_results(context.store, MOST_RESULTS, starred=said.starred, batch_id=batch_id)
    jobs, unknown = await named_jobs(context, said.names)
    if unknown:
        raise NotFound(f"there is no job {unknown[0]!r}", f"See {PREFIX}/jobs.")
    return jobs


def _named(file: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{file}"'}


def _read(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(AT_ONCE):
            yield part


async def _sent(parts: Iterator[bytes], turn: AbstractAsyncContextManager[Any] | None = None) -> AsyncIterator[bytes]:
    """The parts in turn, each made in a thread when the one before it is on its way."""
    async with turn or nullcontext():
        while (part := await FILES.run(next, parts, None)) is not None:
            yield part
