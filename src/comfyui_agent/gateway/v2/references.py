"""Assets in workflows: `core/ASSET` references, and names under which assets were uploaded, become input files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.domain.prompts import Graph
from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import ApiError
from comfyui_agent.gateway.v2.outputs import find_output
from comfyui_agent.gateway.validation import takes_file, upload_path
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops

REFERENCE = "core/ASSET"
NAMED = re.compile(r"assets/([0-9a-f-]{36})\.[a-z0-9]+")


async def resolve_assets(caller: Caller, graph: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A graph with names in place of references to assets, and the kept files by these names' paths."""
    gateway = caller.gateway
    resolved = {node_id: {**node, "inputs": dict(node["inputs"])} for node_id, node in graph.items()}
    files: dict[str, str] = {}
    missing: list[dict[str, Any]] = []
    names: set[str] = set()
    gateway.definitions.use(await gateway.facts.object_info(None))
    for node_id, node in graph.items():
        for name, value in node["inputs"].items():
            if isinstance(value, str) and takes_file(gateway.definitions, node["class_type"], name):
                names.add(value)
            if not _holds_reference(value):
                continue
            kept = await _kept_file(caller, value) if _is_reference(value) else None
            if kept is None:
                missing.append({"node_id": node_id, "field": name, "asset": value})
                continue
            named = f"assets/{value['info']['id']}{PurePosixPath(kept).suffix}"
            resolved[node_id]["inputs"][name] = named
            files[upload_path(named)] = kept
    if missing:
        where = ", ".join(f"{each['node_id']}.{each['field']}" for each in missing)
        raise ApiError(422, "missing_asset", f"no asset of yours is what {where} refers to", assets=missing)
    if names:
        found = await gateway.store.run(ops.assets_named, list(names), caller.owner)
        files |= {upload_path(each.file_path): each.kept for each in found if each.file_path is not None}
    return resolved, files


def with_references(graph: Graph) -> dict[str, Any]:
    """A graph as its client posted it, with references to its assets."""
    return {node_id: {**node, "inputs": {**node["inputs"], **_references(node)}} for node_id, node in graph.items()}


def _references(node: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: NAMED.fullmatch(value) for name, value in node["inputs"].items() if isinstance(value, str)}
    return {name: {"__type": REFERENCE, "info": {"id": found[1]}} for name, found in named.items() if found}


async def _kept_file(caller: Caller, reference: Mapping[str, Any]) -> str | None:
    """The kept file of an asset. A result of a job becomes one."""
    uploads, asset_id = caller.gateway.uploads, reference["info"]["id"]
    asset = await caller.gateway.store.run(ops.find_asset, asset_id, caller.owner)
    if asset is not None:
        return asset.kept if await uploads.local(asset.kept) is not None else None
    output = await find_output(caller, asset_id)
    if output is None or not output.kept:
        return None
    try:
        found = await output.content(caller)
    except FileNotFoundError:
        return None
    return await OBJECTS.run(uploads.keep_copy, found) if isinstance(found, Path) else None


def _is_reference(value: Any) -> bool:
    info = value.get("info") if isinstance(value, dict) and value.get("__type") == REFERENCE else None
    return isinstance(info, dict) and isinstance(info.get("id"), str)


def _holds_reference(value: Any) -> bool:
    """Whether there is a reference in a value. Only one that is the value itself can be followed."""
    if isinstance(value, dict):
        return value.get("__type") == REFERENCE or any(map(_holds_reference, value.values()))
    return isinstance(value, list) and any(map(_holds_reference, value))
