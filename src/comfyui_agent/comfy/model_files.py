"""Model files as a server's model library lists them, and the picture that lies beside one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import NoSuchRoute, ProtocolError
from comfyui_agent.comfy.transport import Transport

ROUTE = "experiment/models"
MOST_PREVIEW_BYTES = 8 * 1024 * 1024
MOST_LISTING_BYTES = 8 * 1024 * 1024


class ModelFile(NamedTuple):
    """A model file: in which of the folders of its kind it lies, when it was changed, and its size."""

    folder_number: int
    modified: float
    size: float


async def list_models(transport: Transport, folder: str) -> Mapping[str, ModelFile]:
    """The files of a kind by name. Empty if the server has no such folder, or no model library."""
    try:
        return await transport.get_json(f"{ROUTE}/{quote(folder, safe='')}", _read, most=MOST_LISTING_BYTES)
    except NoSuchRoute:
        return {}


async def model_facts(transport: Transport) -> Mapping[str, str]:
    """What tells each model file from another of its name. Files of one name in several folders count together."""
    folders = await transport.get_json(ROUTE, _folders, most=MOST_LISTING_BYTES)
    listings = await asyncio.gather(*(list_models(transport, folder) for folder in folders))
    found: dict[str, list[str]] = defaultdict(list)
    for folder, files in zip(folders, listings, strict=True):
        for name, file in files.items():
            found[name].append(f"{folder} {file.folder_number} {file.size} {file.modified}")
    return {name: "; ".join(facts) for name, facts in found.items()}


async def read_preview(transport: Transport, folder: str, name: str, number: int) -> bytes | None:
    """The picture beside a model, a WebP as ComfyUI sends it. None if there is none."""
    path = f"{ROUTE}/preview/{quote(folder, safe='')}/{number}/{quote(name)}"
    answer = await transport.ask("GET", path, most=MOST_PREVIEW_BYTES)
    is_picture = answer.body[:4] == b"RIFF" and answer.body[8:12] == b"WEBP"
    return answer.body if answer.status == 200 and is_picture else None


def _folders(document: Any) -> list[str]:
    names = [shapes.optional_object(each).get("name") for each in shapes.expect(list, document, "the model folders")]
    return [name for name in names if isinstance(name, str) and name]


def _read(document: Any) -> dict[str, ModelFile]:
    entries = [shapes.expect(dict, entry, "a model") for entry in shapes.expect(list, document, "the models")]
    return {shapes.expect(str, entry.get("name"), "a model's name"): _file(entry) for entry in entries}


def _file(entry: Mapping[str, Any]) -> ModelFile:
    number = shapes.number(entry.get("pathIndex"), "a model's pathIndex")
    if number < 0 or number != int(number):
        raise ProtocolError("a model's pathIndex should be a whole number")
    more = (shapes.optional_number(entry.get(key)) or 0.0 for key in ("modified", "size"))
    return ModelFile(int(number), *more)
