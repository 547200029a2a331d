"""The model files of a server, as it lists them: name, size and time tell one from another of its name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.transport import Transport

PATH = "experiment/models"
FACTS = ("pathIndex", "size", "modified")


async def model_files(transport: Transport) -> Mapping[str, str]:
    """What is known of each model file, by name. Files of one name in several folders count together."""
    most = transport.limits.definitions_bytes
    folders = await transport.get_json(PATH, _folders, most=most)
    asked = (transport.get_json(f"{PATH}/{quote(each, safe='')}", _files, most=most) for each in folders)
    found: dict[str, list[str]] = defaultdict(list)
    for folder, files in zip(folders, await asyncio.gather(*asked), strict=True):
        for name, facts in files:
            found[name].append(f"{folder} {facts}")
    return {name: "; ".join(facts) for name, facts in found.items()}


def _folders(document: Any) -> list[str]:
    names = [shapes.optional_object(each).get("name") for each in shapes.expect(list, document, "the model folders")]
    return [name for name in names if isinstance(name, str) and name]


def _files(document: Any) -> list[tuple[str, str]]:
    listed = [shapes.optional_object(each) for each in shapes.expect(list, document, "the model files")]
    return [(shapes.optional_text(file.get("name")), " ".join(str(file.get(key)) for key in FACTS)) for file in listed]
