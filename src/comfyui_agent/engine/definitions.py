"""What servers say about node classes, asked before anything is queued."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits

QUICK = Limits(connect_seconds=2.0, answer_seconds=10.0, retries=0)


async def ask_definitions(
    urls: Sequence[str], classes: Collection[str]
) -> tuple[dict[str, list[Mapping[str, Any]]], list[str]]:
    """Definitions of node classes, of every server that has them, and the servers that did not answer."""
    answers = await asyncio.gather(*(ask_server(url, classes, QUICK) for url in urls))
    found: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        for name, definition in (answer or {}).items():
            found.setdefault(name, []).append(definition)
    return found, [url for url, answer in zip(urls, answers, strict=True) if answer is None]


async def ask_server(url: str, classes: Collection[str], limits: Limits) -> dict[str, Mapping[str, Any]] | None:
    """Definitions of the node classes that a server has; None if it does not answer."""
    try:
        async with ComfyClient(url, limits=limits, listen=False) as client:
            found = {name: await client.definitions.of(name) for name in sorted(classes) if name}
    except (ComfyError, ValueError):  # silent, or no address at all
        return None
    return {name: definition for name, definition in found.items() if definition is not None}
