"""Uploading input files to a server. The name in its answer is the one to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import UploadRefused
from comfyui_agent.comfy.transport import Transport


@dataclass(frozen=True)
class Uploaded:
    """A file in the server's input folder."""

    name: str
    subfolder: str

    @property
    def reference(self) -> str:
        """The value for a LoadImage node."""
        return f"{self.subfolder}/{self.name}" if self.subfolder else self.name


async def upload(
    transport: Transport, source: Path | str | bytes, name: str, subfolder: str, overwrite: bool
) -> Uploaded:
    """Upload a file. The same bytes get the same name, so that a broken connection can be retried."""
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    name = "".join(c if c.isprintable() else "_" for c in name)  # file names may hold what headers must not
    seconds = transport.limits.answer_seconds + size / transport.limits.upload_bytes_per_second

    def form() -> aiohttp.FormData:
        fields = aiohttp.FormData(quote_fields=False)
        data = source if isinstance(source, bytes) else Path(source).open("rb")  # noqa: SIM115 - closed once it is sent
        fields.add_field("image", data, filename=name, content_type="application/octet-stream")
        fields.add_field("type", "input")
        fields.add_field("subfolder", subfolder)
        fields.add_field("overwrite", "true" if overwrite else "false")
        return fields

    answer = await transport.ask_again(
        "POST", "upload/image", most=transport.limits.small_answer_bytes, form=form, seconds=seconds
    )
    if answer.status == 413:
        raise UploadRefused(f"{transport.address} refused the upload: it is larger than the server takes (413)")
    if answer.status != 200:
        raise UploadRefused(
            f"{transport.address} refused the upload with {answer.status}: {transport.excerpt(answer)!r}"
        )
    return await transport.parse(answer, "upload/image", _read_reply)


def _read_reply(document: Any) -> Uploaded:
    reply = shapes.expect(dict, document, "the answer to an upload")
    name = shapes.expect(str, reply.get("name"), "name")
    return Uploaded(name, shapes.optional_text(reply.get("subfolder")))
