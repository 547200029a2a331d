"""Progress events of the running prompt, and where an engine sends events."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, Protocol

from PIL import Image

from comfyui_agent.sim.engine.pace import Draw
from comfyui_agent.wire.frames import Preview
from comfyui_agent.wire.prompts import Json

PREVIEWS_WANTED = ("auto", "latent2rgb", "taesd")


class Audience(Protocol):
    """The clients. Callable from any thread; never blocks. A `client_id` of None means all of them."""

    def send(self, event: str, data: Json | Preview, client_id: str | None) -> None: ...

    def wants_preview_metadata(self, client_id: str | None) -> bool: ...


@dataclass
class Progress:
    """The progress of one prompt. Without a client id the events go to everyone, as in the real server."""

    audience: Audience
    prompt_id: str
    client_id: str | None
    preview_method: Any
    _states: dict[str, Json] = field(default_factory=dict)

    def start(self, node_id: str) -> None:
        self._set(node_id, "running", 0.0, 1.0)

    def step(self, node_id: str, value: int, most: int, draw: Draw | None) -> None:
        """A step of a sampler, with a preview if the prompt wants some."""
        wants_preview = draw is not None and self.preview_method in PREVIEWS_WANTED
        self.show(node_id, value, most, draw(value) if draw and wants_preview else None, "JPEG", quality=95)

    def show(self, node_id: str, value: int, most: int, picture: Image.Image | None, form: str, **options: int) -> None:
        """A step with a picture. Clients that want metadata get the picture before the step, others after it."""
        self._set(node_id, "running", value, most)
        data = {"value": value, "max": most, "prompt_id": self.prompt_id, "node": node_id}
        events: list[tuple[str, Json | Preview]] = [("progress", data)]
        preview_at = 0 if self.audience.wants_preview_metadata(self.client_id) else 1
        if picture is not None:
            buffer = io.BytesIO()
            picture.save(buffer, form, **options)
            image_type = f"image/{form.lower()}"
            events.insert(preview_at, ("", Preview(buffer.getvalue(), self._place(node_id), image_type)))
        for event, content in events:
            self.audience.send(event, content, self.client_id)

    def finish(self, node_id: str) -> None:
        most = self._states.get(node_id, {}).get("max", 1)
        self._set(node_id, "finished", most, most)

    def _set(self, node_id: str, state: str, value: float, most: float) -> None:
        self._states[node_id] = {"value": value, "max": most, "state": state, **self._place(node_id)}
        nodes = {"prompt_id": self.prompt_id, "nodes": dict(self._states)}
        self.audience.send("progress_state", nodes, self.client_id)

    def _place(self, node_id: str) -> Json:
        return {
            "node_id": node_id,
            "prompt_id": self.prompt_id,
            "display_node_id": node_id,
            "parent_node_id": None,
            "real_node_id": node_id,
        }
