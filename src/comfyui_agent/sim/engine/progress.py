"""Progress events of the running prompt, and where an engine sends events."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyui_agent.sim.engine.pace import Draw
from comfyui_agent.sim.prompt_queue import Json

PREVIEWS_WANTED = ("auto", "latent2rgb", "taesd")


@dataclass(frozen=True)
class Preview:
    """A picture of unfinished work, as JPEG."""

    image: bytes
    metadata: Json


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
        """Clients that want metadata get the preview before the step, others after it."""
        self._set(node_id, "running", value, most)
        data = {"value": value, "max": most, "prompt_id": self.prompt_id, "node": node_id}
        events: list[tuple[str, Json | Preview]] = [("progress", data)]
        preview_at = 0 if self.audience.wants_preview_metadata(self.client_id) else 1
        if draw is not None and self.preview_method in PREVIEWS_WANTED:
            buffer = io.BytesIO()
            draw(value).save(buffer, "JPEG", quality=95)
            events.insert(preview_at, ("", Preview(buffer.getvalue(), self._place(node_id))))
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
