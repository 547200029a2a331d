"""The node pack in an imitated ComfyUI, and prompts for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes import NODE_CLASS_MAPPINGS
from comfyui_agent.nodes.core import feeder, iteration_state
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.registration import join
from support.comfyui_inside import ComfyUIInside, comfyui_inside
from support.node_pack import Graph, iterating, parameter

PATIENCE_SECONDS = 15.0


def until(is_so: Callable[[], Any], what: str = "it is so", seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}, not within {seconds} s"
        time.sleep(0.001)


def painting(values: str = "1..3", painter: str = "Colour", grid: bool = False, **inputs: Any) -> Graph:
    """A picture for each of some colours."""
    node = {"class_type": painter, "inputs": {"colour": 0, "width": 4, "height": 4, **inputs}}
    return iterating(parameter(values, "1.colour", "colour"), name="run", grid=grid, n1=node)


def alone(colour: int = 1, painter: str = "Colour") -> Graph:
    """A prompt without an iterator."""
    node = {"class_type": painter, "inputs": {"colour": colour, "width": 4, "height": 4}}
    return {"1": node, "2": {"class_type": "Save", "inputs": {"images": ["1", 0], "filename_prefix": "own"}}}


def owner_of(manager: IterationStateManager, prompt_id: str) -> tuple[str, int] | None:
    """The batch under way that a prompt is of, and its index there."""
    for batch in list(manager._active_batches.values()):
        if prompt_id in batch.prompt_ids:
            return batch.batch_id, batch.prompt_ids.index(prompt_id)
    return None


class Pack:
    """The pack with a manager of its own."""

    def __init__(self, inside: ComfyUIInside) -> None:
        self.inside = inside
        self.manager = IterationStateManager()
        inside.classes.update(NODE_CLASS_MAPPINGS)
        inside.server.add_on_prompt_handler(self.manager.handle_prompt)

    @property
    def feeder(self) -> threading.Thread | None:
        return self.manager._feeder._thread

    def post(self, prompt: Graph, **body: Any) -> str:
        status, answer = self.inside.post({"prompt": prompt, **body})
        assert status == 200, answer
        return str(answer["prompt_id"])

    def close(self) -> None:
        for summary in self.manager.summaries():
            self.manager.cleanup_batch(summary["batch_id"])
        until(lambda: self.feeder is None, "the thread ends")


@contextlib.contextmanager
def joined(folder: Path, patches: pytest.MonkeyPatch) -> Iterator[ComfyUIInside]:
    """A ComfyUI whose queue is held, with the pack as ComfyUI has it: its nodes, its routes, the one manager."""
    patches.setattr(iteration_state, "_instance", None)
    patches.setattr(feeder, "TICK_SECONDS", 0.01)
    with comfyui_inside(folder, held=True) as comfyui:
        comfyui.classes.update(NODE_CLASS_MAPPINGS)
        assert join()
        yield comfyui
        manager = IterationStateManager.instance()
        for summary in manager.summaries():
            manager.end(summary["batch_id"], "cancelled")
        for thread in threading.enumerate():
            if thread.name == "e3-iterator":
                thread.join(PATIENCE_SECONDS)
