"""Plays a scenario with open-webui's functions for ComfyUI, as its router for images calls them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

wanted = json.load(sys.stdin)
sys.path.insert(0, f"{wanted['folder']}/checkout/backend")
os.environ |= {"DATA_DIR": str(Path.cwd()), "WEBUI_SECRET_KEY": "any"}
from open_webui.utils.images import comfyui  # noqa: E402


async def images_of(answer: dict[str, Any] | None) -> dict[str, Any]:
    if answer is None:
        return {"images": None}
    found = []
    for image in answer["data"]:
        query = parse_qs(urlsplit(image["url"]).query, keep_blank_values=True)
        place = (query[key][0] for key in ("filename", "subfolder", "type"))
        found.append(b64encode(await comfyui.get_image(*place, wanted["url"], "")).decode())
    return {"images": found}


def form(model: Any, **fields: Any) -> Any:
    nodes = [{"type": kind, "node_ids": [node], "key": key} for kind, node, key in wanted["nodes"]]
    workflow = comfyui.ComfyUIWorkflow(workflow=json.dumps(wanted["graph"]), nodes=nodes)
    return model(workflow=workflow, prompt=wanted.get("prompt", ""), width=48, height=32, n=2, **fields)


async def create() -> dict[str, Any]:
    payload = form(comfyui.ComfyUICreateImageForm)
    return await images_of(await comfyui.comfyui_create_image("", payload, "me", wanted["url"], ""))


async def edit() -> dict[str, Any]:
    file = ("image", ("mine.png", Path(wanted["upload"]).read_bytes(), "image/png"))
    name = (await comfyui.comfyui_upload_image(file, wanted["url"], ""))["name"]
    payload = form(comfyui.ComfyUIEditImageForm, image=[name])
    return await images_of(await comfyui.comfyui_edit_image("", payload, "me", wanted["url"], ""))


found = asyncio.run(globals()[sys.argv[1]]())
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
