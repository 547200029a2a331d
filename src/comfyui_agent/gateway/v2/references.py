"""Assets in workflows: `core/ASSET` references, and names under which assets were uploaded, become input files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.domain.prompts import Graph
from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import ApiError
from comfyui_agent.gateway.v2.outputs import content_of, find_asset
from comfyui_agent.gateway.validation import named_files, upload_path
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset

REFERENCE = "core/ASSET"
NAMED = re.compile(r"assets/([0-9a-f-]{36})\.[a-z0-9]+")


async def resolve_assets(caller: Caller, graph: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A graph with names in place of references to assets, and the kept files by the paths of these names."""
    found = await caller.gateway.store.run(ops.assets_named, list(set(named_files(graph).values())), caller.owner)
    files = {upload_path(asset.file_path or ""): asset.kept for asset in found}
    resolved = {}
    for node_id, node in graph.items():
        inputs = dict(node["inputs"])
        for name, value in inputs.items():
            if _holds_reference(value):
                kept = await _kept_file(caller, value, node_id, name)
                inputs[name] = f"assets/{value['info']['id']}{PurePosixPath(kept).suffix}"
                files[upload_path(inputs[name])] = kept
        resolved[node_id] = {**node, "inputs": inputs}
    return resolved, files


def with_references(graph: Graph) -> dict[str, Any]:
    """A graph as its client posted it, with references to its assets."""
    shown = {}
    for node_id, node in graph.items():
        named = {name: NAMED.fullmatch(value) for name, value in node["inputs"].items() if isinstance(value, str)}
        references = {name: {"__type": REFERENCE, "info": {"id": each[1]}} for name, each in named.items() if each}
        shown[node_id] = {**node, "inputs": {**node["inputs"], **references}}
    return shown


async def _kept_file(caller: Caller, reference: Any, node_id: str, name: str) -> str:
    """The kept file of an asset, which a result of a job becomes. 422 if it is not there."""
    try:
        found = await find_asset(caller, str(reference["info"]["id"]))
        path = await content_of(caller, found)
        if isinstance(found, Asset):
            return found.kept
        if isinstance(path, Path):
            return await OBJECTS.run(caller.gateway.uploads.keep_copy, path, found.name)
    except (ApiError, FileNotFoundError, LookupError, TypeError):  # not the caller's, gone, or no reference at all
        pass
    message = f"{node_id}.{name} refers to no asset of yours that is there"
    raise ApiError(422, "missing_asset", message, node_id=node_id, field=name)


def _holds_reference(value: Any) -> bool:
    """Whether there is a reference in a value. Only one that is the value itself can be followed."""
    if isinstance(value, dict):
        return value.get("__type") == REFERENCE or any(map(_holds_reference, value.values()))
    return isinstance(value, list) and any(map(_holds_reference, value))
