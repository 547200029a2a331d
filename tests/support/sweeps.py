"""Sweeps on a workspace: queued and steered as people do, and what must be true of them and of their grids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from comfyui_agent.batches import grids
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.pictures.grid import lay_out
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.agents import AgentWorkspace, colour_of, server_queue, sized_picture
from support.workspaces import call_e3, run_e3

EDGE = 64
"""Pictures of this size are not enlarged in a grid: a cell can be compared with its file, pixel by pixel."""
WHITE = (255, 255, 255)
COLOURS, WIDTHS = tuple(range(20, 200, 20)), tuple(range(EDGE, EDGE + 10))
NINETY = {"1.color": COLOURS, "1.width": WIDTHS}
"""A matrix of 9 rows and 10 columns, every cell unlike all others."""

Axes = Mapping[str, Sequence[Any]]


def sleepy_picture() -> dict[str, Any]:
    """EmptyImage "1", which sleeps in "3", saved by SaveImage "2"."""
    graph = sized_picture(EDGE)
    graph["3"] = {"class_type": "Sleep", "inputs": {"value": ["1", 0], "seconds": 0.1}}
    graph["2"]["inputs"]["images"] = ["3", 0]
    return graph


def prepared(workspace: AgentWorkspace) -> AgentWorkspace:
    """The same workspace as `e3 init` leaves it, with the workflows `picture` and `sleepy`."""
    list(start_workspace(workspace.root, workspace.servers[0]))
    for name, graph in (("picture", sized_picture(EDGE)), ("sleepy", sleepy_picture())):
        (workspace.root / "workflows" / f"{name}.json").write_text(json.dumps(graph), encoding="utf-8")
    return workspace


def sets(axes: Axes) -> list[str]:
    """The flags of `e3 sweep` for some axes."""
    return [part for name, values in axes.items() for part in ("--set", f"{name}={','.join(map(str, values))}")]


def slowly(seconds: float) -> list[str]:
    """Flags for the workflow `sleepy`: every picture takes so long."""
    return ["--input", f"3.seconds={seconds}"]


def queue(workspace: AgentWorkspace, axes: Axes, *flags: str, workflow: str = "picture") -> str:
    """`e3 sweep`; the id of the batch."""
    answer = call_e3("sweep", workflow, *sets(axes), *flags, "-C", str(workspace.root))
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def e3(workspace: AgentWorkspace, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """A command on the workspace, to its end, in a process of its own."""
    return run_e3(*arguments, cwd=workspace.root, timeout=timeout, **workspace.environment)


def steer(workspace: AgentWorkspace, *arguments: str) -> str:
    """A command on the workspace that does not work itself; what it said."""
    answer = call_e3(*arguments, "-C", str(workspace.root))
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def waiting_sweep(
    workspace: AgentWorkspace, axes: Axes, *flags: str, workflow: str = "picture", **environment: str
) -> subprocess.Popen[bytes]:
    """`e3 sweep --wait` in the background; what it says is in the log of the workspace."""
    arguments = ["sweep", workflow, *sets(axes), *flags, "--wait"]
    return in_background(workspace, *arguments, **environment)


def in_background(workspace: AgentWorkspace, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    quick = {"E3_RETRY_BACKOFF_SECONDS": "0.2", "E3_POLL_INTERVAL_MS": "250"}
    with workspace.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "comfyui_agent", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **quick, **workspace.environment, **environment},
            cwd=workspace.root,
            start_new_session=True,
        )
    workspace.processes.append(process)
    return process


# What is known.


def batches(workspace: AgentWorkspace) -> list[Batch]:
    return workspace.store(lambda store: store.run(ops.newest_batches, limit=1_000))


def batch_of(workspace: AgentWorkspace, batch_id: str) -> Batch:
    found = workspace.store(lambda store: store.run(ops.find_batch, batch_id))
    assert found is not None
    return found


def only_batch(workspace: AgentWorkspace) -> str:
    """The id of the one batch that is there, as soon as it is whole."""

    def is_there() -> bool:
        return workspace.database.exists() and any(
            batch.status is not BatchStatus.PENDING for batch in batches(workspace)
        )

    wait_for(is_there, "a batch", workspace)
    (batch,) = batches(workspace)
    return batch.id


def members(workspace: AgentWorkspace, batch_id: str) -> list[Job]:
    async def all_of(store: Store) -> list[Job]:
        return [job async for job in ops.batch_members(store, batch_id)]

    return workspace.store(all_of)


def wait_for(condition: Callable[[], Any], what: str, workspace: AgentWorkspace, timeout: float = 30) -> float:
    """Wait; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + timeout, f"waited {timeout} s for {what}\n{workspace.tail()}"
        time.sleep(0.05)
    return time.monotonic() - began


def wait_status(workspace: AgentWorkspace, batch_id: str, status: BatchStatus, timeout: float = 30) -> Batch:
    wait_for(lambda: batch_of(workspace, batch_id).status is status, f"{batch_id} {status}", workspace, timeout)
    return batch_of(workspace, batch_id)


def wait_landed(workspace: AgentWorkspace, batch_id: str, count: int, timeout: float = 30) -> None:
    wait_for(lambda: batch_of(workspace, batch_id).done >= count, f"{count} done", workspace, timeout)


def wait_grid(workspace: AgentWorkspace, batch_id: str, timeout: float = 30) -> Batch:
    """Until it is complete, and its grid is there for this generation."""

    def is_there() -> bool:
        batch = batch_of(workspace, batch_id)
        return batch.status is BatchStatus.COMPLETE and not batch.is_grid_due

    wait_for(is_there, f"the grid of {batch_id}", workspace, timeout)
    return batch_of(workspace, batch_id)


def told_of(workspace: AgentWorkspace, batch_id: str) -> list[str]:
    """What was told of a batch as a whole, in the database, in its order."""

    async def read(store: Store) -> list[str]:
        names, after = [], 0
        while events := await store.run(ops.events_after, after):
            names += [str(event.name) for event in events if event.batch_id == batch_id]
            after = events[-1].id
        return [name for name in names if name.startswith("batch.")]

    return workspace.store(read)


def logged_of(workspace: AgentWorkspace, batch_id: str) -> list[str]:
    """The same from the metrics log."""
    events = [event for event in workspace.events() if event.get("batch_id") == batch_id]
    return [event["event"] for event in events if event["event"].startswith("batch.")]


def prompts_of(workspace: AgentWorkspace, batch_id: str) -> set[str]:
    """Every prompt that was ever minted for a batch."""

    async def read(store: Store) -> set[str]:
        jobs = [job async for job in ops.batch_members(store, batch_id) if job.run_count]
        return {attempt.prompt_id or "" for job in jobs for attempt in await store.run(ops.list_attempts, job.id)}

    return workspace.store(read)


def at_server(workspace: AgentWorkspace, batch_id: str, url: str) -> set[str]:
    """The prompts of a batch that wait or run at a server."""
    return prompts_of(workspace, batch_id) & set(server_queue(url).all)


def rendered(workspace: AgentWorkspace, output_dir: Path) -> int:
    """How many pictures a server has saved for this workspace: each execution saves one, under a name of its own."""
    identity = workspace.store(_identity)
    return sum(1 for _ in (output_dir / f"e3_{identity}").rglob("*.png"))


async def _identity(store: Store) -> str:
    return store.identity


def files_of(workspace: AgentWorkspace) -> set[str]:
    """Every file below the folder of jobs."""
    found = (workspace.root / "jobs").rglob("*")
    return {path.relative_to(workspace.root).as_posix() for path in found if not path.is_dir()}


# What must be true.


def check_sweep(workspace: AgentWorkspace, batch_id: str, axes: Axes, *, generation: int = 1) -> Batch:
    """It ended once per generation, now complete; every combination done, its own picture; the grid; nothing else."""
    batch = batch_of(workspace, batch_id)
    jobs = members(workspace, batch_id)
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    assert (batch.status, batch.generation, batch.done) == (BatchStatus.COMPLETE, generation, len(combinations))
    assert [json.loads(job.metadata or "")["combination"] for job in jobs] == combinations
    for job, combination in zip(jobs, combinations, strict=True):
        assert (job.status, job.retries_attempted, len(job.outputs)) == (JobStatus.DONE, 0, 1), job.error_trace
        check_picture(workspace.root / job.outputs[0], combination)
    folder = f"jobs/finished/image/{batch_id}"
    expected = {path for job in jobs for path in job.outputs} | {f"{folder}/grid.png", f"{folder}/grid.html"}
    assert {path for path in files_of(workspace) if path.startswith(folder)} == expected
    assert batch.grid == f"{folder}/grid.png"
    ends = [name for name in told_of(workspace, batch_id) if name != "batch.created"]
    assert (len(ends), ends[-1]) == (generation, "batch.completed")
    assert not [
        each for each in workspace.store(lambda store: store.run(ops.open_attempts)) if each.batch_id == batch_id
    ]
    return batch


def check_ninety(workspace: AgentWorkspace, batch_id: str, output_dir: Path | None) -> None:
    """Every promise of ninety variations: each rendered once, its own picture, its own cell, all of it told once."""
    check_sweep(workspace, batch_id, NINETY)
    check_cells(workspace, batch_id, NINETY)
    if output_dir is not None:
        assert rendered(workspace, output_dir) == len(COLOURS) * len(WIDTHS)
    assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]
    wait_for(lambda: len(logged_of(workspace, batch_id)) >= 2, "the metrics log", workspace)
    assert logged_of(workspace, batch_id) == ["batch.created", "batch.completed"]


def check_picture(path: Path, combination: Mapping[str, Any]) -> None:
    """A result is the one of its combination, and says so to whoever drops it into ComfyUI."""
    with Image.open(path) as picture:
        picture.load()
        graph = json.loads(picture.info["prompt"])
        size = picture.size
    for place, value in combination.items():
        node, _, name = place.partition(".")
        assert graph[node]["inputs"][name] == value
    assert size == (combination.get("1.width", EDGE), EDGE)
    assert colour_of(path) == combination.get("1.color", 0)


def check_cells(workspace: AgentWorkspace, batch_id: str, axes: Axes) -> None:
    """Every cell of the grid shows its own result: rows are the first axis, columns the second."""
    (rows, columns), batch = axes.values(), batch_of(workspace, batch_id)
    jobs = {_combination(job): job for job in members(workspace, batch_id)}
    layout = lay_out(_spec(workspace, batch).grid)
    assert batch.grid is not None
    with Image.open(workspace.root / batch.grid) as grid:
        assert (grid.mode, grid.size) == ("RGB", layout.pages[0].size)
        for (row, first), (column, second) in product(enumerate(rows), enumerate(columns)):
            cell = grid.crop(layout.box(0, row, column))
            own = _centred(workspace.root / jobs[first, second].outputs[0], cell.size)
            assert ImageChops.difference(cell, own).getbbox() is None, (first, second)
    page = (workspace.root / batch.grid).with_suffix(".html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    for values in jobs:
        assert ", ".join(f"{name} = {value}" for name, value in zip(axes, values, strict=True)) in page


def _combination(job: Job) -> tuple[Any, ...]:
    return tuple(json.loads(job.metadata or "")["combination"].values())


def _centred(file: Path, size: tuple[int, int]) -> Image.Image:
    """A picture in the middle of a cell, not enlarged."""
    canvas = Image.new("RGB", size, WHITE)
    with Image.open(file) as picture:
        left, top = (size[0] - picture.width) // 2, (size[1] - picture.height) // 2
        canvas.paste(picture.convert("RGB"), (left, top))
    return canvas


def _spec(workspace: AgentWorkspace, batch: Batch) -> Spec:
    """What the composer was told: where the cells are depends on all the labels."""
    place = load_workspace(workspace.root, {}, None)
    jobs = members(workspace, batch.id)
    picture = workspace.root / (batch.grid or "")
    return grids._spec(place, batch, jobs, grids.GridOptions(), picture, {}, "")


# Grids that are being made.

HOLDING = """
import os, sys, time, uuid

if any("comfyui_agent.pictures.compose" in part for part in getattr(sys, "orig_argv", ())):
    folder = os.environ["COMPOSING"]
    with open(os.path.join(folder, uuid.uuid4().hex + ".begun"), "w") as note:
        note.write(str(os.getpid()))

    def hold():
        while os.path.exists(os.path.join(folder, "hold")):
            time.sleep(0.01)

    sync = os.fsync
    def written(handle):
        hold()
        sync(handle)
    if os.environ["COMPOSING_HELD"] == "written":
        os.fsync = written
    else:
        hold()
"""


@dataclass(frozen=True)
class Composing:
    """Sees every process that composes a grid, and holds it at its beginning or while it writes."""

    folder: Path
    held_when: str = "begun"

    def environment(self) -> dict[str, str]:
        """For the agents whose grids are to be seen."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "sitecustomize.py").write_text(HOLDING)
        path = os.pathsep.join(part for part in (str(self.folder), os.environ.get("PYTHONPATH")) if part)
        return {"PYTHONPATH": path, "COMPOSING": str(self.folder), "COMPOSING_HELD": self.held_when}

    @property
    def times(self) -> int:
        """How often a grid was begun."""
        return len(list(self.folder.glob("*.begun")))

    @property
    def living(self) -> list[int]:
        pids = [int(note.read_text() or 0) for note in self.folder.glob("*.begun")]
        return [pid for pid in pids if pid and _is_alive(pid)]

    def hold(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink()


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
