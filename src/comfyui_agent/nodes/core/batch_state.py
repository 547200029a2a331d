"""What is known of a batch inside ComfyUI and of its members. Runs on Python 3.9."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

LOG = logging.getLogger("e3_iterator")
ImageFile = Mapping[str, str]
"""A reference to a file, as ComfyUI gives it: `filename`, `subfolder`, `type`."""


class NoGrid(ValueError):
    """A grid that cannot be made. The message says why, and what to do."""


@dataclass(frozen=True)
class GridOptions:
    """The inputs of a grid node."""

    columns: str = ""
    rows: str = ""
    cell_pixels: int = 0
    """The longest side of a cell; 0 is as large as the pictures are, and the grid can be."""
    title: str = ""
    filename_prefix: str = "E3/grid"

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> GridOptions:
        """The options among some inputs. A connected input has no value yet and is left out."""
        known = [each.name for each in fields(cls) if isinstance(inputs.get(each.name), type(each.default))]
        return cls(**{name: inputs[name] for name in known})


@dataclass(eq=False)
class BatchState:
    """One batch. Its results are references to files, never pictures. Members are known by their index."""

    batch_id: str
    total: int
    combinations: Any
    batch_name: str
    mode: str
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    completed_count: int = 0
    cancelled: bool = False
    created_at: float = field(default_factory=time.time)
    prompt_ids: list[str] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    """Why there is no result."""
    remarks: dict[int, str] = field(default_factory=dict)
    """What else went wrong in a prompt whose pictures are there."""
    reporters: frozenset[str] = frozenset()
    """Nodes that report pictures. A member has its result when all of them have reported."""
    pictures: dict[int, dict[str, list[Any]]] = field(default_factory=dict)
    seen_running: set[int] = field(default_factory=set)
    seen_ended: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    """Members that someone took out of the queue."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What goes into the file of a grid: the prompt and the workflow of the batch."""
    queued: int = 0
    """How many members were put into ComfyUI's queue: those with a lower index."""
    running: int | None = None
    last_sign_at: float = 0.0
    """When the last result came, or ComfyUI was last seen at work."""
    ended_as: str = ""
    reason: str = ""
    client_id: str | None = None
    grid_options: dict[str, GridOptions] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Grid node → the node whose pictures it shows."""
    grids: dict[str, Sequence[ImageFile]] = field(default_factory=dict)
    """By grid node; empty where a grid could not be made."""
    claimed: set[str] = field(default_factory=set)
    """Grid nodes whose grid is being made, or was made."""
    notified: dict[str, Any] = field(default_factory=dict)
    queueing: threading.Lock = field(default_factory=threading.Lock)
    """Held while a member is put into the queue, and while the batch is marked as cancelled."""

    @property
    def is_whole(self) -> bool:
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

    def snapshot(self) -> BatchState:
        """A copy whose results, failures and grids do not change any more."""
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
        """The entry of the batch in lists and in the page."""
        grids = [dict(image) for images in self.grids.values() for image in images]
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
            "grid": grids[0] if grids else None,
            "grids": grids,
            "compositor": next(iter(self.grid_options), None),
        }

    def as_json(self) -> dict[str, Any]:
        """The summary, with every member and result."""
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


def files_in(images: Any) -> list[Any]:
    """The names of files among images. Pictures themselves would fill the memory."""
    given = images if isinstance(images, (list, tuple)) else []
    files: list[Any] = []
    for image in given:
        if isinstance(image, str):
            files.append(image)
        elif isinstance(image, Mapping) and isinstance(image.get("filename"), str):
            files.append({key: str(image.get(key, "")) for key in ("filename", "subfolder", "type")})
    if len(files) < len(given) or (images is not None and given is not images):
        LOG.warning("A result holds something else than names of files: it is not kept")
    return files


def plain_metadata(metadata: Any) -> dict[str, Any]:
    """Metadata as JSON; empty if it cannot be written as JSON."""
    try:
        plain = json.loads(json.dumps(metadata or {}))
    except Exception:  # noqa: BLE001 - it may be anything
        return {}
    return plain if isinstance(plain, dict) else {}
