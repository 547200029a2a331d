"""Plays a scenario with ComfyScript."""

from __future__ import annotations

import io
import json
import sys
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from comfy_script.runtime import Workflow, load, queue

wanted = json.load(sys.stdin)
load(wanted["url"])
from comfy_script.runtime import nodes  # noqa: E402 - there are none before


def queued(color: int, seconds: float) -> tuple[Any, Any]:
    """A task that is on its way, and the output that it has."""
    with Workflow() as workflow:
        image = nodes.Sleep(nodes.EmptyImage(16, 16, 1, color), seconds)
        saved = nodes.SaveImage(image, wanted["prefix"])
    return workflow.task, saved


def wait_for(task: Any, place: str) -> None:
    while True:
        with urllib.request.urlopen(f"{wanted['url']}/queue") as answer:
            if task.prompt_id in [item[1] for item in json.load(answer)[place]]:
                return
        time.sleep(0.02)


def render() -> dict[str, Any]:
    images = []
    for task, saved in [queued(color, 0.5) for color in wanted["colors"]]:
        for image in task.wait_result(saved).wait():
            content = io.BytesIO()
            image.save(content, "PNG")
            images.append(b64encode(content.getvalue()).decode())
    return {"prompt_id": task.prompt_id, "images": images}


def progress() -> dict[str, Any]:
    """Every step that a sampler reports."""
    steps: list[tuple[int, int]] = []
    with Workflow() as workflow:
        model, clip, vae = nodes.CheckpointLoaderSimple(wanted["checkpoint"])
        text = nodes.CLIPTextEncode("a lighthouse", clip)
        latent = nodes.VAEEncode(nodes.Sleep(nodes.EmptyImage(64, 64, 1, wanted["color"]), 1), vae)
        latent = nodes.KSampler(model, wanted["color"], 4, 7.0, "euler", "normal", text, text, latent, 1.0)
        nodes.SaveImage(nodes.VAEDecode(latent, vae), wanted["prefix"])
    workflow.task.add_progress_callback(lambda step: steps.append((step.value, step.max)))
    return {"outputs": len(workflow.task.wait()), "steps": steps}


def cancel_running() -> dict[str, Any]:
    task, _ = queued(wanted["color"], 600)
    wait_for(task, "queue_running")
    queue.cancel_current()
    return {"prompt_id": task.prompt_id, "outputs": task.wait()}


def cancel_waiting() -> dict[str, Any]:
    task, _ = queued(wanted["color"], 600)
    wait_for(task, "queue_pending")
    queue.cancel_remaining()
    return {"prompt_id": task.prompt_id}


Path(sys.argv[2]).write_text(json.dumps(globals()[sys.argv[1]]()), encoding="utf-8")
