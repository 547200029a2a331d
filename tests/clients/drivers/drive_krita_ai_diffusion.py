"""Plays a scenario with the client of krita-ai-diffusion, in Qt's event loop and with the Krita of its own tests."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

wanted = json.load(sys.stdin)
sys.path[:0] = [f"{wanted['folder']}/checkout", f"{wanted['folder']}/checkout/tests/mock"]
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from PyQt5.QtCore import QCoreApplication  # noqa: E402

application = QCoreApplication([])
from ai_diffusion import eventloop  # noqa: E402 - it wants an application
from ai_diffusion.backend import api  # noqa: E402
from ai_diffusion.backend.client import ClientEvent  # noqa: E402
from ai_diffusion.backend.comfy_client import ComfyClient  # noqa: E402
from ai_diffusion.image import Bounds, Extent, Image  # noqa: E402
from ai_diffusion.settings import settings  # noqa: E402

settings.check_server_resources = False
eventloop.setup()
client = ComfyClient(wanted["url"])
Reaction = Callable[[str, list[str]], Awaitable[None]]


def work() -> api.WorkflowInput:
    extent = Extent(16, 16)
    images = api.ImageInput.from_extent(extent)
    images.initial_image = Image.create(extent, 0xFF000000 | wanted["canvas"])
    return api.WorkflowInput(
        api.WorkflowKind.custom,
        images=images,
        sampling=api.SamplingInput("euler", "normal", 7.0, 1),
        inpaint=api.InpaintParams(api.InpaintMode.automatic, Bounds(0, 0, 16, 16)),
        custom_workflow=api.CustomWorkflowInput(wanted["graph"], {}),
    )


async def played(react: Reaction) -> dict[str, Any]:
    """How a job ends that is queued when the websocket is there, and all that the client tells of it."""
    await client.connect()
    async for _ in client.discover_models(refresh=False):
        pass
    job, told = "", []
    async for message in client.listen():
        if not job:
            job = await client.enqueue(work())
        elif message.job_id == job:
            told.append(message.event.name)
            if message.event in (ClientEvent.finished, ClientEvent.interrupted, ClientEvent.error):
                break
        await react(job, told)
    images = [b64encode(bytes(image.to_bytes())).decode() for image in message.images or []]
    facts = {"prompt_id": job, "device": client.device_info.name, "is_idle": not client.is_executing}
    await client.disconnect()
    return {**facts, "told": told, "images": images, "error": message.error}


async def nothing(job: str, told: list[str]) -> None:
    pass


async def interrupt(job: str, told: list[str]) -> None:
    if "progress" in told and "asked" not in told:
        told.append("asked")
        await client.interrupt()


async def cancel(job: str, told: list[str]) -> None:
    if job in [item[1] for item in (await client._get("queue"))["queue_pending"]]:
        await client.cancel([job])


playing = eventloop.run(played(globals()[sys.argv[1]]))
while not playing.done():
    application.processEvents()
Path(sys.argv[2]).write_text(json.dumps(playing.result()), encoding="utf-8")
os._exit(0)  # Qt's objects need not be taken apart
