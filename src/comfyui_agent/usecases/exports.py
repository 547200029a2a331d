"""Taking results out: a zip of their files with a table of what made them, or one labelled picture of them."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from zipfile import ZipFile, ZipInfo

from comfyui_agent.batches.grids import NoGrid, compose
from comfyui_agent.domain.grid_layout import sheet_place
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.needs import AUTO, ModelInput, model_names
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, printable, whole
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.pictures.grid import Cell, Grid, pages_of
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter, Rated
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.errors import NotPossible, TooLarge
from comfyui_agent.usecases.prompts import Made, Prompts

Find = Callable[[Job, int], Path]
"""The file of a job's result by its number from 1, on this machine. OSError or ValueError if it cannot be had."""

COLUMNS = ("name", "prompt", "seed", "model", "path")
AT_ONCE = 1024 * 1024
JOBS_AT_ONCE = 500
SHEET_CELL = 512
LONGEST_LABEL = 120
UNKNOWN = Made()


@dataclass(frozen=True)
class Exported:
    """A job with results, and what made them."""

    job: Job
    made: Made
    models: str


async def chosen_results(store: Store, most: int, *, starred: bool, batch_id: str | None) -> list[Job]:
    """Jobs with results, starred ones or those of a batch. TooLarge if there are more than `most`."""
    wanted = JobFilter(status=JobStatus.DONE, rated=Rated.STARRED if starred else None, batch_id=batch_id)
    found: list[Job] = []
    cursor: str | None = None
    while True:
        page = await store.run(ops.job_page, wanted, cursor, JOBS_AT_ONCE)
        found += page.jobs
        if len(found) > most:
            remedy = "Name fewer, or take them out with e3 export."
            raise TooLarge(f"these are more than {most:,} results, which is the most at once", remedy)
        if (cursor := page.cursor) is None:
            return found


async def to_export(store: Store, prompts: Prompts, jobs: Sequence[Job]) -> list[Exported]:
    """What is told of results along with them. NotPossible if none of the jobs has any."""
    done = [job for job in jobs if job.status is JobStatus.DONE and job.outputs]
    if not done:
        raise NotPossible("none of these has a result", "Choose jobs that are done.")
    keys = {job.needs for job in done if job.needs}
    needs = {each.key: each.models for each in await store.run(ops.find_needs, keys)}
    found: list[Exported] = []
    for start in range(0, len(done), JOBS_AT_ONCE):
        part = done[start : start + JOBS_AT_ONCE]
        made = await prompts.made([job.id for job in part])
        sent = await store.run(ops.sent_values, [job.id for job in part])
        for job in part:
            models = _as_sent(needs.get(job.needs or "", ()), sent.get(job.id, {}))
            found.append(Exported(job, made.get(job.id, UNKNOWN), model_names(models) if models else ""))
    return found


def _as_sent(models: Sequence[ModelInput], sent: Mapping[str, Any]) -> list[ModelInput]:
    """With the files that `auto` stood for."""
    files = {place.rpartition(".")[2]: value for place, value in sent.items()}
    return [each._replace(value=str(files.get(each.name, AUTO))) if each.value == AUTO else each for each in models]


def zip_parts(results: Sequence[Exported], find: Find) -> Iterator[bytes]:
    """A zip of all files, as they are, and `results.csv`, in parts: no more than one is in memory.

    A file that cannot be had is left out; its row in the table has no path.
    """
    parts, taken, table = _Parts(), {"results.csv"}, io.StringIO()
    rows = csv.writer(table)
    rows.writerow(COLUMNS)
    with ZipFile(parts, "w") as archive:
        for each in results:
            for number, recorded in enumerate(each.job.outputs, 1):
                name = _free_name(printable(PurePath(recorded).name), taken)
                try:
                    path = find(each.job, number)
                    info = ZipInfo.from_file(path, name, strict_timestamps=False)
                    source = path.open("rb")
                except (OSError, ValueError):
                    name = ""
                else:
                    taken.add(name.lower())
                    with source, archive.open(info, "w") as target:
                        while data := source.read(AT_ONCE):
                            target.write(data)
                            yield parts.take()
                made = each.made
                rows.writerow([each.job.config_name, made.prompt, made.seed, each.models, name])
        archive.writestr("results.csv", table.getvalue().encode("utf-8", "backslashreplace"))
    yield parts.take()


async def contact_sheet(results: Sequence[Exported], find: Find) -> io.BufferedReader:
    """One PNG with the first result of each job, open for reading. NotPossible if it cannot be drawn."""
    cells = [await FILES.run(_cell, each, number, len(results), find) for number, each in enumerate(results)]
    grid = Grid(pages_of(None, {0: cells}), title=counted(len(cells), "result"), is_sheet=True, cell_pixels=SHEET_CELL)
    with tempfile.TemporaryDirectory(prefix="e3-export-", ignore_cleanup_errors=True) as folder:
        picture = Path(folder) / "sheet.png"
        try:
            await compose(Spec(grid, "png", picture, picture.with_suffix(".html")))
        except NoGrid as error:
            raise NotPossible(str(error), "Choose fewer results, or take them as a zip.") from None
        return picture.open("rb")  # it is read after it has no name any more


def _cell(each: Exported, number: int, count: int, find: Find) -> Cell:
    place = sheet_place(number, count)
    try:
        file, reason = find(each.job, 1), ""
    except (OSError, ValueError) as error:
        file, reason = None, whole(printable(str(error)), LONGEST_LABEL)
    label = whole(each.made.prompt or each.job.config_name, LONGEST_LABEL)
    return Cell(place.row, place.column, file, label=label, state=each.job.state, reason=reason)


def _free_name(name: str, taken: set[str]) -> str:
    """A name that no other file in the zip has, on systems that take small and large letters for the same either."""
    path, number = PurePath(name or "result"), 2
    while name.lower() in taken or not name:
        name, number = f"{path.stem}_{number}{path.suffix}", number + 1
    return name


class _Parts(io.RawIOBase):
    """A file that is handed on as it is written."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # ZipFile writes bytes
        self._written.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._written = self._written, []
        return b"".join(parts)
