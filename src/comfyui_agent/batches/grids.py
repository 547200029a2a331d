"""The grid of a batch: which result goes to which cell, and the child process that draws it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from comfyui_agent.batches.sweeps import MOST_CELLS, GridWish
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.processes import module_command
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.port import parsed_object
from comfyui_agent.store.store import Store

LONGEST_REASON = 400
COMPOSER = "comfyui_agent.pictures.compose"


class NoGrid(Exception):
    """A grid that cannot be made: why, and what to do."""


@dataclass(frozen=True)
class GridOptions:
    """How people want it."""

    wish: GridWish = field(default_factory=GridWish)
    cell_pixels: int | None = None
    format: str = "png"
    output: Path | None = None


@dataclass(frozen=True)
class Made:
    """The files of a grid."""

    pictures: tuple[Path, ...]
    page: Path


async def make_grid(store: Store, workspace: Workspace, batch: Batch, options: GridOptions | None = None) -> Made:
    """Draw the grid of a batch in a process of its own. NoGrid if that cannot be."""
    options = options or GridOptions()
    jobs = [job async for job in store.members(batch.id)]
    if not jobs:
        raise NoGrid(f"the batch {batch.id} has no results")
    if len(jobs) > MOST_CELLS:
        raise NoGrid(f"{len(jobs):,} results are too many for a grid: at most {MOST_CELLS:,}")
    picture = options.output or _folder(workspace, batch, jobs) / f"grid.{'jpg' if options.format == 'jpeg' else 'png'}"
    if options.output is None:
        _make_folder(picture.parent)
    spec = await asyncio.to_thread(_spec, workspace, batch, jobs, options, picture)
    return await _compose(spec)


def _make_folder(folder: Path) -> None:
    """The folder of the results: there is none yet if all of them failed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoGrid(f"the folder {folder} cannot be made: {error.strerror}") from None


def _folder(workspace: Workspace, batch: Batch, jobs: Sequence[Job]) -> Path:
    """Where the results of a batch are."""
    said = batch.metadata.get("folder")
    try:
        if isinstance(said, str):
            return workspace.inside(said)
        paths = [job.outputs[0] if job.outputs else job.file_path for job in jobs]
        first = next((path for path in paths if path), None)
        if first is not None:
            return workspace.inside(first).parent
    except ValueError as error:
        raise NoGrid(str(error)) from None
    raise NoGrid(f"the batch {batch.id} has no results yet")


def _spec(
    workspace: Workspace, batch: Batch, jobs: Sequence[Job], options: GridOptions, picture: Path
) -> dict[str, Any]:
    """What the child is told."""
    layout = _layout(batch, options.wish)
    pages: dict[int, dict[str, Any]] = {}
    columns = ceil(sqrt(len(jobs)))
    for number, job in enumerate(jobs):
        cell = _cell(workspace, job, picture.parent)
        if layout is None:
            page = pages.setdefault(0, {"title": "", "rows": [], "columns": [], "cells": [], "corner": ""})
            page["cells"].append(cell | {"row": number // columns, "column": number % columns})
            continue
        if not layout.has(job.batch_index or 0):
            continue  # someone has put it in by hand
        at, row, column = layout.place(job.batch_index or 0)
        page = pages.setdefault(at, layout.page(at))
        page["cells"].append(cell | {"row": row, "column": column})
    attention = f", {batch.failed} need{'s' if batch.failed == 1 else ''} attention" if batch.failed else ""
    return {
        "title": batch.name if batch.name and batch.name in batch.id else f"{batch.name} ({batch.id})",
        "subtitle": f"{batch.done} of {batch.total} done{attention}",
        "pages": [pages[at] for at in sorted(pages)],
        "sheet": layout is None,
        "cell_pixels": options.cell_pixels,
        "format": options.format,
        "picture": str(picture),
        "page": str(picture.with_suffix(".html")),
    }


def _cell(workspace: Workspace, job: Job, folder: Path) -> dict[str, Any]:
    settings = parsed_object(job.metadata).get("combination")
    if not isinstance(settings, dict):
        settings = parsed_object(job.metadata).get("inputs")
    settings = settings if isinstance(settings, dict) else {}
    file, href = None, ""
    if job.outputs:
        try:
            path = workspace.inside(job.outputs[0])
            file, href = str(path), Path(os.path.relpath(path, folder)).as_posix()
        except ValueError:
            pass
    is_cancelled = job.failure_class == FailureClass.CANCELLED.value and job.status is JobStatus.FAILED
    return {
        "file": file if job.status is JobStatus.DONE else None,
        "href": href if job.status is JobStatus.DONE else "",
        "label": ", ".join(f"{name} = {value}" for name, value in settings.items()) or job.config_name,
        "settings": settings,
        "state": "cancelled" if is_cancelled else job.status.value,
        "reason": (job.error_trace or "").partition("\n")[0][:LONGEST_REASON] if job.status is JobStatus.FAILED else "",
    }


class _Layout:
    """Pages, rows and columns by axes; a part of the axes may have one value only, and is left out."""

    def __init__(self, combinations: Combinations, x: str, y: str) -> None:
        self._combinations = combinations
        self._axes = {axis.name: (number, axis) for number, axis in enumerate(combinations.axes)}
        self._x, self._y = x, y
        self._others = [
            number for name, (number, axis) in self._axes.items() if name not in (x, y) and len(axis.values) > 1
        ]
        lengths = [range(len(combinations.axes[number].values)) for number in self._others]
        self._pages = {at: index for index, at in enumerate(product(*lengths))}

    def has(self, index: int) -> bool:
        return 0 <= index < len(self._combinations)

    def place(self, index: int) -> tuple[int, int, int]:
        at = self._combinations[index]
        page = self._pages[tuple(at[number] for number in self._others)]
        row = at[self._axes[self._y][0]] if self._y else 0
        return page, row, at[self._axes[self._x][0]]

    def page(self, at: int) -> dict[str, Any]:
        values = next(key for key, index in self._pages.items() if index == at)
        parts = [
            _label(self._combinations.axes[number], value) for number, value in zip(self._others, values, strict=True)
        ]
        return {
            "title": ", ".join(parts),
            "rows": self._labels(self._y) if self._y else [""],
            "columns": self._labels(self._x),
            "corner": f"{self._y} \\ {self._x}" if self._y else self._x,
            "cells": [],
        }

    def _labels(self, name: str) -> list[str]:
        axis = self._axes[name][1]
        return [_label(axis, index) for index in range(len(axis.values))]


def _label(axis: Axis, index: int) -> str:
    value = axis.values[index]
    return f"{axis.name} = {str(value).lower() if isinstance(value, bool) else value}"


def _layout(batch: Batch, wish: GridWish) -> _Layout | None:
    """By axes where there are two to lay out, or people named some; else a contact sheet."""
    combinations = _combinations(batch)
    if combinations is None:
        if wish != GridWish():
            raise NoGrid(f"the batch {batch.id} has no axes: leave out --x, --y and --pages")
        return None
    said = batch.metadata.get("grid")
    known = [axis.name for axis in combinations.axes]
    chosen = dict(said) if isinstance(said, Mapping) and wish == GridWish() else {}
    chosen |= {key: value for key, value in vars(wish).items() if value}
    for key, name in chosen.items():
        if name not in known:
            raise NoGrid(f"--{key} {name!r} is no axis of {batch.id}; there are {', '.join(known)}")
    if len(set(chosen.values())) < len(chosen):
        raise NoGrid("--x, --y and --pages need different axes")
    if combinations.mode is Mode.LINEAR:
        return None
    free = [axis.name for axis in combinations.axes if len(axis.values) > 1 and axis.name not in chosen.values()]
    x = chosen.get("x") or (free.pop() if free else "")
    y = chosen.get("y") or (free.pop() if free else "")
    if not x or (not y and "x" not in chosen and "pages" not in chosen):
        return None
    return _Layout(combinations, x, y)


def _combinations(batch: Batch) -> Combinations | None:
    """The axes of a sweep, as they were written down."""
    axes = batch.metadata.get("axes")
    if not isinstance(axes, list):
        return None
    try:
        read = [Axis(str(each["name"]), tuple(each["places"]), tuple(each["values"])) for each in axes]
        return Combinations(read, Mode(batch.metadata.get("mode", Mode.MATRIX.value)))
    except (BadAxes, KeyError, TypeError, ValueError):
        return None


async def _compose(spec: dict[str, Any]) -> Made:
    """Run the child; it is ended with us."""
    process = await asyncio.create_subprocess_exec(
        *module_command(COMPOSER, "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate(json.dumps(spec).encode("utf-8"))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        words = err.decode("utf-8", "replace").strip().splitlines()
        raise NoGrid(words[-1] if words else f"the process that draws it ended with {process.returncode}")
    answer = json.loads(out.decode("utf-8").strip().splitlines()[-1])
    return Made(tuple(Path(each) for each in answer["pictures"]), Path(answer["page"]))
