"""Batches: how long a large sweep takes to be queued and in how much memory, and what a large grid costs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bare import trivial
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.pictures.grid import Cell, Grid, Page
from comfyui_agent.pictures.painting import Recipe, paint
from report import Line, at_most
from sizes import size

SMALL, LARGE = size(1_000, 10), size(100_000, 100)
ROWS, COLUMNS, SIDE = size(25, 2), size(40, 3), size(1024, 64)
CELLS = ROWS * COLUMNS
PAINTED = size(20, 2)
MEGABYTE = 1024


@dataclass(frozen=True)
class Cost:
    """Of one process, from start to end."""

    seconds: float
    megabytes: float
    said: str


RUN = """
import atexit, pathlib, re, runpy, sys
def note_peak():
    status = pathlib.Path("/proc/self/status").read_text()
    pathlib.Path("peak").write_text(re.findall(r"VmHWM:\\s+(\\d+)", status)[0])
atexit.register(note_peak)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""The child notes its own peak: what the kernel tells of a child begins with the memory of whoever started it."""


def cost_of(*words: str, folder: Path, given: str = "") -> Cost:
    began = time.monotonic()
    command = [sys.executable, "-c", RUN, *words]
    ended = subprocess.run(command, input=given.encode(), stdout=subprocess.PIPE, cwd=folder, check=False)
    assert ended.returncode == 0, f"{words}: exit {ended.returncode}"
    peak = int((folder / "peak").read_text()) / MEGABYTE
    return Cost(time.monotonic() - began, peak, ended.stdout.decode())


def measure_queueing() -> list[Line]:
    """The same sweep with a thousand and with a hundred thousand combinations."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        (folder / "picture.json").write_text(json.dumps(trivial("picture")))
        [node] = [each for each, facts in trivial("picture").items() if facts["class_type"] == "EmptyImage"]

        def sweep(count: int) -> Cost:
            axes = [f"{node}.color=1..{count // 10}", f"{node}.width=8,16,..,80"]
            sets = [word for axis in axes for word in ("--set", axis)]
            return cost_of("comfyui_agent", "sweep", "picture.json", *sets, folder=folder)

        small, large = sweep(SMALL), sweep(LARGE)
    return [
        at_most(f"a sweep of {LARGE:,} combinations queued, to its id printed", 30, large.seconds, " s"),
        at_most(f"memory of it beyond that of {SMALL:,}", 30, max(0.0, large.megabytes - small.megabytes), " MB"),
    ]


def measure_grid() -> list[Line]:
    """A thousand cells; the paintings repeat, the files do not."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        cells = []
        for number in range(CELLS):
            file = folder / f"{number:04d}.png"
            if number < PAINTED:
                paint(Recipe(words=f"a knight {number}", seed=number), SIDE, SIDE).save(file, compress_level=1)
            else:
                file.write_bytes((folder / f"{number % PAINTED:04d}.png").read_bytes())
            row, column = divmod(number, COLUMNS)
            settings = {"seed": row, "cfg": column}
            cells.append(Cell(row, column, file, file.name, str(settings), settings, "done"))
        rows, columns = (f"seed = {n}" for n in range(ROWS)), (f"cfg = {n}" for n in range(COLUMNS))
        page = Page(tuple(rows), tuple(columns), tuple(cells), corner="seed \\ cfg")
        spec = Spec(Grid((page,), title="bench"), "png", folder / "grid.png", folder / "grid.html")
        cost = cost_of("comfyui_agent.pictures.compose", folder=folder, given=spec.as_json())
        Image.MAX_IMAGE_PIXELS = None
        with Image.open(folder / "grid.png") as picture:
            megapixels = picture.width * picture.height / 1e6
    what = f"a grid of {CELLS:,} pictures of {SIDE}×{SIDE}"  # noqa: RUF001
    return [
        at_most(f"{what}, peak memory of its process", 500, cost.megabytes, " MB"),
        at_most(f"{what}, the picture", 100, megapixels, " megapixels"),
        at_most(f"{what}, time", 120, cost.seconds, " s"),
    ]
