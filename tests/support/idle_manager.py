"""A manager of batches without a ComfyUI: it registers batches and queues nothing."""

from __future__ import annotations

import json
import time
import types
from collections.abc import Callable
from typing import Any

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.feeder import Feeding
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.host import ComfyUI, Ending, QueueSnapshot
from support.node_pack import iterating, parameter
from support.packs import owner_of

IMAGE = {"filename": "a_00001_.png", "subfolder": "E3/run", "type": "output"}
GRID = {"filename": "grid_00001_.png", "subfolder": "E3", "type": "output"}


class Quiet(ComfyUI):
    """A ComfyUI whose queue is empty and which nobody listens to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def check(self) -> None:
        pass

    def next_number(self) -> float:
        return 7.0

    def queue(self) -> QueueSnapshot:
        return QueueSnapshot()

    def ending(self, prompt_id: str) -> Ending | None:  # noqa: ARG002
        return None

    def interrupt(self, prompt_ids: Any) -> list[str]:  # noqa: ARG002
        return []

    def input_folder(self) -> None:
        return None

    def send(self, event: str, data: Any, client_id: str | None = None) -> None:  # noqa: ARG002
        self.sent.append((event, json.loads(json.dumps(data))))


class Clock:
    def __init__(self) -> None:
        self.now = time.time() + 10.0

    def __call__(self) -> float:
        return self.now


class Unfed(IterationStateManager):
    """Registers batches and has none of them queued."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.quiet = Quiet()
        super().__init__(self.quiet, now)
        self.feedings: list[Feeding] = []
        self._feeder = types.SimpleNamespace(begin=self.feedings.append)  # type: ignore[assignment]

    def batch(self, total: int, name: str = "run", **prompt: Any) -> BatchState:
        """A batch of so many members, by way of a prompt."""
        body = request(f"1..{total}", name=name, **prompt)
        self.handle_prompt(body)
        found = self.find(self.of(body["prompt_id"])[0])
        assert found is not None
        return found

    def of(self, prompt_id: str) -> tuple[str, int]:
        owner = owner_of(self, prompt_id)
        assert owner is not None
        return owner

    @property
    def is_clean(self) -> bool:
        return not self._active_batches


def request(values: str = "1..3", **prompt: Any) -> dict[str, Any]:
    painter = {"class_type": "Colour", "inputs": {"colour": 0, "width": 4, "height": 4}}
    return {"prompt": iterating(parameter(values, "1.colour", "colour"), **{"grid": False, "n1": painter, **prompt})}
