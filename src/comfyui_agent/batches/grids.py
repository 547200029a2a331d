"""The grid of a batch: its layout, the content of its cells, and the child process that draws it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from comfyui_agent.batches.members import effective_inputs, label_of, settings_of
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.batches.sweeps import MOST_CELLS
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, slug
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.grid_layout import CellPlace, GridLayout, layout_by_axes, sheet_place
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import FOLDERS
from comfyui_agent.domain.locations import Location
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.processes import module_command
from comfyui_agent.domain.prompts import NoSuchPlace, place
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention
from comfyui_agent.domain.usual_inputs import usual_values
from comfyui_agent.files.connect import existing_files, open_files
from comfyui_agent.files.port import Files
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.pictures.grid import Cell, Grid, pages_of
from comfyui_agent.pools import OBJECTS, PLANNING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

LONGEST_REASON = 400
COPIES_AT_ONCE = 4
ABOUT = ("prompt", "prompt_1", "checkpoint", "checkpoint_1")
COMPOSER = "comfyui_agent.pictures.compose"


class NoGrid(Exception):
    """A grid that cannot be made. The message says why and what to do."""


@dataclass(frozen=True)
class GridOptions:
    axes: GridAxes = field(default_factory=GridAxes)
    cell_pixels: int | None = None
    format: str = "png"
    output: Path | None = None


def layout_of(batch: Batch, axes: GridAxes) -> GridLayout | None:
    """A layout by axes, or None for a contact sheet. NoGrid if the chosen axes cannot be laid out."""
    combinations = combinations_of(batch)
    chosen = axes.chosen()
    if combinations is None:
        if chosen:
            raise NoGrid(f"the batch {batch.id} has no axes: leave out --x, --y and --pages")
        return None
    of_sweep = batch.metadata.get("grid")
    if not chosen and isinstance(of_sweep, Mapping):
        chosen = dict(of_sweep)
    known = [axis.name for axis in combinations.axes]
    for key, name in chosen.items():
        if name not in known:
            raise NoGrid(f"--{key} {name!r} is no axis of {batch.id}; there are {', '.join(known)}")
    if len(set(chosen.values())) < len(chosen):
        raise NoGrid("--x, --y and --pages need different axes")
    return layout_by_axes(combinations, chosen.get("x", ""), chosen.get("y", ""), chosen.get("pages", ""))


def combinations_of(batch: Batch) -> Combinations | None:
    """The recorded axes of a sweep. None for another batch."""
    axes = batch.metadata.get("axes")
    if not isinstance(axes, list):
        return None
    try:
        read = [Axis(str(each["name"]), tuple(each["places"]), tuple(each["values"])) for each in axes]
        return Combinations(read, Mode(batch.metadata.get("mode", Mode.MATRIX.value)))
    except (BadAxes, KeyError, TypeError, ValueError):
        return None


async def make_grid(store: Store, workspace: Workspace, batch: Batch, options: GridOptions | None = None) -> Spec:
    """Draw the grid of a batch in a child process. Returns what was drawn; NoGrid if it cannot be made, FilesAway if
    that is so only now."""
    options = options or GridOptions()
    jobs = [job async for job in ops.batch_members(store, batch.id)]
    if not jobs:
        raise NoGrid(f"the batch {batch.id} has no results")
    if len(jobs) > MOST_CELLS:
        raise NoGrid(f"{len(jobs):,} results are too many for a grid: at most {MOST_CELLS:,}")
    files = open_files(workspace.results, str(options.output or ""))
    mark = f".f{batch.generation}" if files.is_remote and await OBJECTS.run(files.is_fenced, 0) else ""
    copies = await _copies(workspace, jobs)
    about = await _about(store, batch, jobs[0], jobs[-1])
    for picture in _places(workspace, batch, jobs, options, mark):
        spec = await PLANNING.run(_spec, workspace, batch, jobs, options, picture, copies, about)
        shown = [workspace.shown(path) for path in spec.paths]
        existing = await OBJECTS.run(existing_files, files, shown)
        output = workspace.shown(picture) if options.output else ""
        trouble = await store.run(ops.claim_grid_files, batch.id, shown, existing, output)
        if not trouble:
            break
    else:
        raise NoGrid(f"{trouble}: name another --output")
    try:
        if files.is_remote:
            workspace.results.copies.mkdir(parents=True, exist_ok=True)
        elif options.output is None:  # there is no folder yet if all jobs failed
            picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoGrid(f"the folder {picture.parent} cannot be made: {error.strerror}") from None
    if files.is_remote:
        await _compose_objects(spec, files, shown, workspace.results.copies)
    else:
        await compose(spec)
    strays = await store.run(ops.keep_grid_files, batch.id, shown, output)
    await store.run(ops.with_unowned, strays, lambda name: _remove(workspace.results, name))
    return spec


async def _about(store: Store, batch: Batch, first: Job, last: Job) -> str:
    """The prompt and the model, where the first and the last member have the same."""
    one, other = await _usual(store, batch, first), await _usual(store, batch, last)
    return " · ".join(str(one[name]) for name in ABOUT if one.get(name, AUTO) == other.get(name) != AUTO)


async def _usual(store: Store, batch: Batch, job: Job) -> Mapping[str, Any]:
    template = await store.run(ops.find_template, job.template_hash) if job.template_hash else None
    if template is None or job.is_shortened:
        return {}
    try:
        return usual_values(place(template.graph(), effective_inputs(job, batch)))
    except NoSuchPlace:  # it was edited by hand
        return {}


def _remove(results: Location, name: str) -> bool:
    try:
        open_files(results, name).remove(name)
    except OSError:
        return False
    return True


async def _copies(workspace: Workspace, jobs: Sequence[Job]) -> dict[str, Path]:
    """The pictures that lie in an object store, on this machine. Those that are gone are left out."""
    files, copies = open_files(workspace.results), dict[str, Path]()
    names = [job.outputs[0] for job in jobs if job.outputs and workspace.results.has(job.outputs[0])]

    async def copy(name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            copies[name] = await OBJECTS.run(files.local, name)

    for start in range(0, len(names) if files.is_remote else 0, COPIES_AT_ONCE):  # results are published in between
        await asyncio.gather(*map(copy, names[start : start + COPIES_AT_ONCE]))
    return copies


def _places(workspace: Workspace, batch: Batch, jobs: Sequence[Job], options: GridOptions, mark: str) -> Iterator[Path]:
    """Paths for the first picture: the chosen one, else beside the results, else in a folder below them."""
    if options.output is not None:
        yield options.output
        return
    name = f"grid{mark}.{'jpg' if options.format == 'jpeg' else 'png'}"
    try:
        folder = _folder(workspace, batch, jobs)
        for inner in ("", "grid", f"grid-{secrets.token_hex(4)}"):
            path = workspace.inside(str(folder / inner / name))
            workspace.check_result(path)
            yield path
    except ValueError as error:
        raise NoGrid(str(error)) from None


def _folder(workspace: Workspace, batch: Batch, jobs: Sequence[Job]) -> Path:
    recorded = batch.metadata.get("folder")
    if isinstance(recorded, str):
        return workspace.inside(recorded)
    kind = FOLDERS.get(str(jobs[0].job_type).upper(), "image")
    is_name = batch.id and batch.id.isprintable() and not batch.id.startswith(".") and not {"/", "\\"} & set(batch.id)
    return workspace.finished(kind) / (batch.id if is_name else slug(batch.id) or "batch")


def _spec(
    workspace: Workspace,
    batch: Batch,
    jobs: Sequence[Job],
    options: GridOptions,
    picture: Path,
    copies: Mapping[str, Path],
    about: str,
) -> Spec:
    layout = layout_of(batch, options.axes)
    cells: dict[int, list[Cell]] = {}
    for number, job in enumerate(jobs):
        if layout is None:
            place = sheet_place(number, len(jobs))
        elif layout.has(job.batch_index or 0):
            place = layout.place(job.batch_index or 0)
        else:
            continue  # someone added the job by hand
        cells.setdefault(place.page, []).append(_cell(workspace, batch, job, place, picture.parent, copies))
    problems = f", {attention(batch.attention)}" if batch.attention else ""
    grid = Grid(
        pages_of(layout, cells),
        title=batch.name if batch.name and batch.name in batch.id else f"{batch.name} ({batch.id})",
        subtitle=f"{batch.done} of {batch.total} done{problems}",
        about=about,
        is_sheet=layout is None,
        cell_pixels=options.cell_pixels,
    )
    return Spec(grid, options.format, picture, picture.with_suffix(".html"))


def _cell(
    workspace: Workspace, batch: Batch, job: Job, place: CellPlace, folder: Path, copies: Mapping[str, Path]
) -> Cell:
    file, href, reason = None, "", ""
    if job.outputs and job.status is JobStatus.DONE:
        with contextlib.suppress(ValueError):  # outside the workspace
            file = workspace.inside(job.outputs[0])
            href = Path(os.path.relpath(file, folder)).as_posix()
            file = copies.get(job.outputs[0], file)
    if job.status is JobStatus.FAILED:
        reason = (job.error_trace or "").partition("\n")[0][:LONGEST_REASON]
    label, settings = label_of(job, batch), settings_of(job, batch)
    return Cell(place.row, place.column, file, href, label, settings, job.state, reason)


async def _compose_objects(spec: Spec, files: Files, names: Sequence[str], copies: Path) -> None:
    """Draw a grid on this machine and publish it. What a killed process leaves is pruned with the copies."""
    with tempfile.TemporaryDirectory(dir=copies) as folder:
        drawn = replace(spec, picture=Path(folder) / spec.picture.name, page=Path(folder) / spec.page.name)
        await compose(drawn)
        for path, name in zip(drawn.paths, names, strict=True):
            await OBJECTS.run(files.publish, path, name, replaces=True)


async def compose(spec: Spec) -> None:
    """Draw in a child process, which is killed if this is cancelled. NoGrid if it fails."""
    process = await asyncio.create_subprocess_exec(
        *module_command(COMPOSER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, err = await process.communicate(spec.as_json().encode("utf-8"))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        raise NoGrid(lines[-1] if lines else f"the process that draws it ended with {process.returncode}")
