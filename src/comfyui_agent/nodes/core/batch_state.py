"""A batch inside ComfyUI: what is known of its members. Runs on Python 3.9."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

Image = Mapping[str, str]
"""A reference to a file, as ComfyUI gives it: `filename`, `subfolder`, `type`."""


@dataclass(frozen=True)
class GridWish:
    """What a grid node asks for."""

    columns: str = ""
    rows: str = ""
    cell_pixels: int = 0
    title: str = ""
    filename_prefix: str = "E3/grid"


class BatchState:
    """Results by index are references to files, never pictures."""

    def __init__(self, batch_id: str, total: int, combinations: Any, batch_name: str, mode: str) -> None:
        self.batch_id = batch_id
        self.total = total
        self.combinations = combinations
        """By number; `values_at(index)` gives name → value."""
        self.batch_name = batch_name
        self.mode = mode
        self.results: dict[int, dict[str, Any]] = {}
        self.completed_count = 0
        self.cancelled = False
        self.created_at = time.time()
        self.prompt_ids: list[str] = []
        """By index: all of them, from the beginning."""

        self.failed: dict[int, str] = {}
        """Index → why there is no result."""
        self.remarks: dict[int, str] = {}
        """Index → what else went wrong in a prompt whose pictures are there."""
        self.reporters: frozenset[str] = frozenset()
        """Nodes that report pictures: a member has its result when all of them have."""
        self.pictures: dict[int, dict[str, list[Any]]] = {}
        """Index → node → what it reported."""
        self.sources: dict[str, str] = {}
        """Grid node → the node whose pictures it shows."""
        self.seen_running: set[int] = set()
        self.seen_ended: set[int] = set()
        """Members that were seen to run, and whose end was seen."""
        self.removed: set[int] = set()
        """Members that someone took out of the queue."""
        self.texts: Mapping[str, Any] = {}
        """What goes into the file of a grid: the prompt and the workflow that made the batch."""
        self.queued = 0
        """So many members have been put into ComfyUI's queue: those with a lower index."""
        self.running: int | None = None
        self.last_sign_at = 0.0
        """When the last result landed, or ComfyUI was last seen at work on what leads to one."""
        self.ended_as = ""
        self.reason = ""
        self.client_id: str | None = None
        self.wishes: dict[str, GridWish] = {}
        """Grid nodes by id."""
        self.grids: dict[str, Sequence[Image]] = {}
        """What became of them; empty where a grid could not be made."""
        self.claimed: set[str] = set()
        """Grid nodes whose grid someone makes, or has made."""
        self.queueing = threading.Lock()
        """Held by whoever puts a member into the queue, or wants none to be put there any more."""

    @property
    def is_whole(self) -> bool:
        """Whether every member has ended."""
        return len(self.results) + len(self.failed) >= self.total

    @property
    def state(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.ended_as:
            return self.ended_as
        if self.results or self.failed:
            return "collecting"
        return "active" if self.queued else "pending"

    @property
    def unseen_indices(self) -> list[int]:
        """Members that were put into ComfyUI's hands, and whose end was not seen."""
        return [index for index in range(self.queued) if index not in self.seen_ended and index not in self.failed]

    @property
    def open_indices(self) -> list[int]:
        """Members that are in ComfyUI's hands and have not ended."""
        return [index for index in range(self.queued) if index not in self.results and index not in self.failed]

    def as_it_stands(self) -> BatchState:
        """A copy that does not change any more, quickly made."""
        seen = copy(self)
        seen.results, seen.failed, seen.grids = dict(self.results), dict(self.failed), dict(self.grids)
        seen.prompt_ids = list(self.prompt_ids)
        return seen

    def values_at(self, index: int) -> dict[str, Any]:
        values_at = getattr(self.combinations, "values_at", None)
        return dict(values_at(index)) if values_at is not None else {}

    def member_state(self, index: int) -> str:
        if index in self.results:
            return "done"
        if index in self.failed:
            return "failed"
        if self.cancelled or self.ended_as:
            return "cancelled"
        return "running" if index == self.running else "pending"

    def summary(self) -> dict[str, Any]:
        """In short, for lists and for the page."""
        grids = [image for images in self.grids.values() for image in images]
        return {
            "batch_id": self.batch_id,
            "batch_name": self.batch_name,
            "mode": self.mode,
            "state": self.state,
            "total": self.total,
            "completed_count": self.completed_count,
            "failed": len(self.failed),
            "cancelled": self.cancelled,
            "created_at": self.created_at,
            "reason": self.reason,
            "running": self.running,
            "grid": dict(grids[0]) if grids else None,
            "grids": [dict(image) for image in grids],
            "compositor": next(iter(self.wishes), None),
        }

    def as_json(self) -> dict[str, Any]:
        """All that there is to say."""
        return {
            **self.summary(),
            "prompt_ids": list(self.prompt_ids),
            "results": {str(index): self.results[index] for index in sorted(self.results)},
            "members": [
                {
                    "index": index,
                    "prompt_id": prompt_id,
                    "state": self.member_state(index),
                    "values": self.values_at(index),
                    "reason": self.failed.get(index) or self.remarks.get(index, ""),
                }
                for index, prompt_id in enumerate(self.prompt_ids)
            ],
        }
