"""Bringing input pictures to a server. The name that comes back is the one to use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import ProtocolError
from comfyui_agent.comfy.transport import Answer, Transport


@dataclass(frozen=True)
class Uploaded:
    """A file in the server's input folder."""

    name: str
    subfolder: str
    folder_type: str

    @property
    def reference(self) -> str:
        """What a LoadImage node takes."""
        return f"{self.subfolder}/{self.name}" if self.subfolder else self.name


async def upload(transport: Transport, source: Path | bytes, name: str, subfolder: str, overwrite: bool) -> Uploaded:
    """Send a file. Sending the same bytes twice gives the same name, so a broken connection is simply tried again."""
    data = source if isinstance(source, bytes) else await asyncio.to_thread(source.read_bytes)

    def form() -> aiohttp.FormData:
        fields = aiohttp.FormData(quote_fields=False)
        fields.add_field("image", data, filename=name, content_type="application/octet-stream")
        fields.add_field("type", "input")
        fields.add_field("subfolder", subfolder)
        fields.add_field("overwrite", "true" if overwrite else "false")
        return fields

    answer = await transport.ask_again("POST", "upload/image", most=transport.limits.small_answer_bytes, form=form)
    return await _read(transport, answer)


async def _read(transport: Transport, answer: Answer) -> Uploaded:
    if answer.status == 413:
        raise ProtocolError(f"{transport.address} refused the upload: it is larger than the server takes (413)")
    if answer.status != 200:
        raise ProtocolError(f"{transport.address} refused the upload with {answer.status}: {answer.excerpt()!r}")
    reply = shapes.mapping(await transport.parse(answer, "upload/image"), "the answer to an upload")
    return Uploaded(
        name=shapes.text(reply.get("name"), "name"),
        subfolder=shapes.optional_text(reply.get("subfolder")),
        folder_type=shapes.optional_text(reply.get("type")),
    )
