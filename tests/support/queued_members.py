"""The pack in the stand-in for ComfyUI, and what it queues there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.core.batch_state import BatchState
from support.comfyui_inside import comfyui_inside
from support.node_pack import Graph
from support.packs import Pack, until

SECRET = "token-that-nobody-sees"
GRID = {"filename": "grid_00001_.png", "subfolder": "E3", "type": "output"}
VERSIONS = pytest.mark.parametrize("is_old", [False, True], ids=["0.7.0", "0.3.44"])


class Feeding(Pack):
    """The pack in an imitated ComfyUI of some version, and what was queued there."""

    def __init__(self, folder: Path, **version: Any) -> None:
        self._context = comfyui_inside(folder, **version)
        super().__init__(self._context.__enter__())
        self.items: list[tuple[Any, ...]] = []
        """What was queued, in order."""
        self.watch_puts(lambda _: None)

    def watch_puts(self, before: Callable[[tuple[Any, ...]], None]) -> None:
        put = type(self.inside.queue).put

        def watched(item: tuple[Any, ...]) -> None:
            before(item)
            self.items.append(item)
            put(self.inside.queue, item)

        self.inside.queue.put = watched  # type: ignore[method-assign]

    def close(self) -> None:
        super().close()
        self._context.__exit__(None, None, None)

    def batch(self, prompt: Graph, **body: Any) -> BatchState:
        known = {each["batch_id"] for each in self.manager.summaries()}
        self.post(prompt, **body)
        (batch_id,) = {each["batch_id"] for each in self.manager.summaries()} - known
        batch = self.manager.find(batch_id)
        assert batch is not None
        return batch

    def fed(self, prompt: Graph, **body: Any) -> BatchState:
        """A batch all of whose members are in the queue."""
        batch = self.batch(prompt, **body)
        until(lambda: batch.queued == batch.total, "all are queued")
        return batch

    def ended(self, batch: BatchState) -> BatchState:
        until(lambda: batch.ended_as, f"the batch ends, which is {batch.summary()}")
        assert not self.manager.is_active(batch.batch_id)
        return batch

    def numbers(self, batch: BatchState) -> list[float]:
        return [next(item[0] for item in self.items if item[1] == prompt_id) for prompt_id in batch.prompt_ids]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
