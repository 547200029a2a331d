"""A prompt that runs, as far as it was heard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.prompts import class_of
from comfyui_agent.engine.live_feed import NEWEST_ONLY
from comfyui_agent.gateway.presentation import RunNames
from comfyui_agent.wire.prompts import Json


@dataclass
class LivePrompt:
    """A prompt that runs, and what its client has to hear if it connects again."""

    job_id: JobId
    client_id: str
    names: RunNames
    frames: list[tuple[str, str]] = field(default_factory=list)
    started: int | None = None
    node_id: str = ""
    executed: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    """What its nodes showed, by the server's names."""
    is_over: bool = False

    def see(self, event: str, data: Json) -> None:
        """Take note of what a server said, in its own names."""
        if event == "execution_start":
            self.started, self.node_id, self.executed, self.outputs = data.get("timestamp"), "", [], {}
            self.is_over = False
        elif event == "executing" and data.get("node") is not None:
            self.executed += [self.node_id] if self.node_id else []
            self.node_id = str(data["node"])
        elif event == "executed":
            self.outputs[str(data.get("node"))] = data.get("output")

    def interrupted(self, timestamp: int) -> Json:
        """What the server's history will say if it is stopped now."""
        about = {"prompt_id": self.names.run_id, "timestamp": self.started}
        node = {"node_id": self.node_id, "node_type": class_of(self.names.graph, self.node_id)}
        ending = {**about, **node, "executed": self.executed, "timestamp": timestamp}
        messages = [["execution_start", about], ["execution_interrupted", ending]]
        status = {"status_str": "error", "completed": False, "messages": messages}
        return {"outputs": self.outputs, "status": status, "meta": {}}

    def note(self, event: str, frame: str) -> None:
        if event == "execution_start":
            self.frames.clear()
        if event in NEWEST_ONLY:
            self.frames = [each for each in self.frames if each[0] != event]
        self.frames.append((event, frame))
