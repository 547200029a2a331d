"""The grid of a batch: what is in each cell, and the child process that draws it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.batches.batch_layout import BadLayout, layout_of
from comfyui_agent.batches.batch_writer import THREADS
from comfyui_agent.batches.members import label_of, settings_of
from comfyui_agent.batches.sweeps import MOST_CELLS, GridWish
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, slug
from comfyui_agent.domain.grid_layout import GridLayout, picture_paths, sheet_place
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import FOLDERS
from comfyui_agent.domain.processes import module_command
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention
from comfyui_agent.store import operations as ops
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
    jobs = [job async for job in ops.batch_members(store, batch.id)]
    if not jobs:
        raise NoGrid(f"the batch {batch.id} has no results")
    if len(jobs) > MOST_CELLS:
        raise NoGrid(f"{len(jobs):,} results are too many for a grid: at most {MOST_CELLS:,}")
    for picture in _places(workspace, batch, jobs, options):
        spec = await THREADS.run(_spec, workspace, batch, jobs, options, picture)
        paths = [*picture_paths(picture, len(spec["pages"])), Path(spec["page"])]
        shown = [workspace.shown(path) for path in paths]
        existing = [name for name, path in zip(shown, paths, strict=True) if os.path.lexists(path)]
        output = workspace.shown(picture) if options.output else ""
        trouble = await store.run(ops.claim_grid_files, batch.id, shown, existing, output)
        if not trouble:
            break
    else:
        raise NoGrid(f"{trouble}: name another --output")
    if options.output is None:
        _make_folder(picture.parent)
    made = await _compose(spec)
    strays = await store.run(ops.keep_grid_files, batch.id, shown, output)
    await store.run(ops.with_unowned, strays, lambda path: _unlink(workspace.root / path))
    return made


def _make_folder(folder: Path) -> None:
    """The folder of the results: there is none yet if all of them failed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoGrid(f"the folder {folder} cannot be made: {error.strerror}") from None


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _places(workspace: Workspace, batch: Batch, jobs: Sequence[Job], options: GridOptions) -> Iterator[Path]:
    """Where the first picture may go: where people say; else beside the results or, if others are there, below."""
    if options.output is not None:
        yield options.output
        return
    name = f"grid.{'jpg' if options.format == 'jpeg' else 'png'}"
    try:
        folder = _folder(workspace, batch, jobs)
        for inner in ("", "grid", f"grid-{secrets.token_hex(4)}"):
            path = workspace.inside(str(folder / inner / name))
            workspace.check_result(path)
            yield path
    except ValueError as error:
        raise NoGrid(str(error)) from None


def _folder(workspace: Workspace, batch: Batch, jobs: Sequence[Job]) -> Path:
    """The folder of a batch: of its own, so that no other result lies there."""
    said = batch.metadata.get("folder")
    if isinstance(said, str):
        return workspace.inside(said)
    kind = FOLDERS.get(str(jobs[0].job_type).upper(), "image")
    is_name = batch.id and batch.id.isprintable() and not batch.id.startswith(".") and not {"/", "\\"} & set(batch.id)
    return workspace.finished(kind) / (batch.id if is_name else slug(batch.id) or "batch")


def _spec(
    workspace: Workspace, batch: Batch, jobs: Sequence[Job], options: GridOptions, picture: Path
) -> dict[str, Any]:
    """What the child is told."""
    layout = _layout(batch, options.wish)
    pages: dict[int, dict[str, Any]] = {}
    for number, job in enumerate(jobs):
        cell = _cell(workspace, batch, job, picture.parent)
        if layout is None:
            page = pages.setdefault(0, {"title": "", "rows": [], "columns": [], "cells": [], "corner": ""})
            _, row, column = sheet_place(number, len(jobs))
            page["cells"].append(cell | {"row": row, "column": column})
            continue
        if not layout.has(job.batch_index or 0):
            continue  # someone has put it in by hand
        at, row, column = layout.place(job.batch_index or 0)
        if at not in pages:
            pages[at] = _page(layout, at)
        pages[at]["cells"].append(cell | {"row": row, "column": column})
    needy = f", {attention(batch.attention)}" if batch.attention else ""
    return {
        "title": batch.name if batch.name and batch.name in batch.id else f"{batch.name} ({batch.id})",
        "subtitle": f"{batch.done} of {batch.total} done{needy}",
        "pages": [pages[at] for at in sorted(pages)],
        "sheet": layout is None,
        "cell_pixels": options.cell_pixels,
        "format": options.format,
        "picture": str(picture),
        "page": str(picture.with_suffix(".html")),
    }


def _layout(batch: Batch, wish: GridWish) -> GridLayout | None:
    try:
        return layout_of(batch, wish)
    except BadLayout as error:
        raise NoGrid(str(error)) from None


def _page(layout: GridLayout, at: int) -> dict[str, Any]:
    return {
        "title": layout.title(at),
        "rows": layout.rows,
        "columns": layout.columns,
        "corner": layout.corner,
        "cells": [],
    }


def _cell(workspace: Workspace, batch: Batch, job: Job, folder: Path) -> dict[str, Any]:
    file, href = None, ""
    if job.outputs:
        try:
            path = workspace.inside(job.outputs[0])
            file, href = str(path), Path(os.path.relpath(path, folder)).as_posix()
        except ValueError:
            pass
    return {
        "file": file if job.status is JobStatus.DONE else None,
        "href": href if job.status is JobStatus.DONE else "",
        "label": label_of(job, batch),
        "settings": settings_of(job, batch),
        "state": job.state,
        "reason": (job.error_trace or "").partition("\n")[0][:LONGEST_REASON] if job.status is JobStatus.FAILED else "",
    }


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
