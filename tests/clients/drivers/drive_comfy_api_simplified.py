"""Plays a scenario with comfy_api_simplified."""

from __future__ import annotations

import json
import sys
import threading
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from comfy_api_simplified import ComfyApiWrapper, ComfyWorkflowWrapper

wanted = json.load(sys.stdin)
api = ComfyApiWrapper(wanted["url"])


def render() -> dict[str, Any]:
    try:
        if "upload" in wanted:
            api.upload_image(wanted["upload"], "of_clients")
        nodes = {name: {**node, "_meta": {"title": name}} for name, node in wanted["graph"].items()}
        images = api.queue_and_wait_images(ComfyWorkflowWrapper(nodes), wanted["output"])
        return {"images": [b64encode(content).decode() for content in images.values()]}
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return {"error": f"{type(error).__name__}: {error}"}


def interrupt() -> dict[str, Any]:
    """What `render` says when what runs is interrupted meanwhile."""
    found: dict[str, Any] = {}
    rendering = threading.Thread(target=lambda: found.update(render()))
    rendering.start()
    while not (running := api.get_queue()["queue_running"]):
        time.sleep(0.02)
    found["prompt_id"] = running[0][1]
    assert api.get_queue_size_before(found["prompt_id"]) == 0
    api.interrupt()
    rendering.join()
    return found


Path(sys.argv[2]).write_text(json.dumps(globals()[sys.argv[1]]()), encoding="utf-8")
