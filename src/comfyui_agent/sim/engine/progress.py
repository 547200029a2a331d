"""Progress events of the running prompt, for the client that sent it."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from comfyui_agent.sim.ports import Audience, Preview
from comfyui_agent.sim.prompt_queue import Json

PREVIEWS_WANTED = ("auto", "latent2rgb", "taesd")


class Progress:
    """The progress of one prompt. Without a client id the events go to everyone, as in the real server."""

    def __init__(self, audience: Audience, prompt_id: str, client_id: str | None, preview_method: Any) -> None:
        self._audience = audience
        self._prompt_id = prompt_id
        self._client_id = client_id
        self._states: dict[str, Json] = {}
        self.wants_previews = preview_method in PREVIEWS_WANTED

    def start(self, node_id: str) -> None:
        self._set(node_id, "running", 0.0, 1.0)

    def step(self, node_id: str, value: int, most: int, picture: Image.Image | None) -> None:
        self._set(node_id, "running", value, most)
        preview = self._preview(node_id, picture) if picture is not None else None
        described = self._audience.wants_preview_metadata(self._client_id)
        if preview is not None and described:
            self._audience.show(preview, self._client_id)
        data = {"value": value, "max": most, "prompt_id": self._prompt_id, "node": node_id}
        self._audience.tell("progress", data, self._client_id)
        if preview is not None and not described:
            self._audience.show(preview, self._client_id)

    def finish(self, node_id: str) -> None:
        most = self._states.get(node_id, {}).get("max", 1)
        self._set(node_id, "finished", most, most)

    def _set(self, node_id: str, state: str, value: float, most: float) -> None:
        self._states[node_id] = {
            "value": value,
            "max": most,
            "state": state,
            "node_id": node_id,
            "prompt_id": self._prompt_id,
            **self._whereabouts(node_id),
        }
        self._audience.tell(
            "progress_state", {"prompt_id": self._prompt_id, "nodes": dict(self._states)}, self._client_id
        )

    def _preview(self, node_id: str, picture: Image.Image) -> Preview:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=95)
        metadata = {"node_id": node_id, "prompt_id": self._prompt_id, **self._whereabouts(node_id)}
        return Preview("image/jpeg", buffer.getvalue(), metadata)

    @staticmethod
    def _whereabouts(node_id: str) -> Json:
        return {"display_node_id": node_id, "parent_node_id": None, "real_node_id": node_id}
