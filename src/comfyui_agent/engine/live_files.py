"""What is at work now, for other processes to see: small files per agent, never a transaction.

Pictures of unfinished work are written only while someone wants to see them.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.content import HEAD, recognise
from comfyui_agent.comfy.frames import LARGEST_PREVIEW, Preview
from comfyui_agent.comfy.watch import Progress, Stage
from comfyui_agent.engine.run import Run
from comfyui_agent.engine.thread_pools import RECORDING
from comfyui_agent.fleet.server import Health
from comfyui_agent.store.agent_lock import living

SUFFIX = ".live.json"
LARGEST = 1024 * 1024
PREVIEW = ".preview"
UNNAMED = ".new"
WANTED = "previews.wanted"
WANTED_SECONDS = 10.0
PICTURES = frozenset({"jpg", "png", "webp"})


@dataclass(frozen=True)
class LiveRun:
    """One prompt at work. `stage` is sending, waiting, rendering or fetching, or away while its server does not answer.

    `preview` is empty, or changes with every picture that `read_preview` gives for the job.
    """

    job_id: int
    config_name: str
    batch_id: str | None
    server: str
    stage: str
    node_type: str = ""
    step: int = 0
    steps: int = 0
    prompt_id: str = ""
    node_id: str = ""
    nodes_done: int = 0
    nodes_total: int = 0
    preview: str = ""


def live_run(run: Run) -> LiveRun:
    leased, progress = run.leased, run.progress or Progress()
    stage = "rendering" if progress.stage is Stage.RUNNING else "waiting" if run.progress else "sending"
    stage = "fetching" if run.is_collecting else stage
    return LiveRun(
        leased.lease.job_id,
        leased.config_name,
        leased.batch_id,
        run.server.name,
        "away" if run.server.health is Health.DOWN else stage,
        progress.node_type,
        progress.step,
        progress.steps,
        leased.prompt_id,
        progress.node_id,
        progress.nodes_done,
        progress.nodes_total,
    )


def preview_of(run: Run) -> Preview | None:
    """The newest picture of unfinished work."""
    return run.progress.preview if run.progress else None


class LiveFile:
    """Tells what this agent has at work. It is gone when the agent is; one of a dead agent is not believed."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._path = folder / f"{worker}{SUFFIX}"
        self._said = ""
        self._previews = _Previews(folder, worker)
        self._writing = threading.Lock()
        self._is_over = False

    async def show(self, runs: Sequence[Run]) -> None:
        await RECORDING.run(self.write, [(live_run(run), preview_of(run)) for run in runs])

    def write(self, runs: Sequence[tuple[LiveRun, Preview | None]]) -> None:
        """Write which runs are at work, with the newest preview of each."""
        with self._writing:
            if not self._is_over:
                versions = self._previews.show(runs)
                self._say([replace(run, preview=versions.get(run.job_id, "")) for run, _ in runs])

    def _say(self, runs: Sequence[LiveRun]) -> None:
        text = json.dumps([asdict(run) for run in runs])
        if text != self._said and _write(self._path, text.encode("ascii")):
            self._said = text

    def remove(self) -> None:
        """The end: nothing is written afterwards, by whatever thread is still at it."""
        with self._writing:
            self._is_over = True
            self._previews.remove()
            _remove(self._path)


@dataclass(frozen=True)
class _Shown:
    prompt_id: str
    picture: Preview
    version: str


class _Previews:
    """The newest preview of each run as a file of its own, from the first one until the run ends or nobody looks."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._folder = folder
        self._worker = worker
        self._mark = uuid.uuid4().hex[:6]
        self._count = 0
        self._shown: dict[int, _Shown] = {}

    def show(self, runs: Sequence[tuple[LiveRun, Preview | None]]) -> dict[int, str]:
        """Bring the files up to date; the version of each by the id of its job."""
        if not _is_wanted(self._folder):
            self.remove()
            return {}
        at_work = {run.job_id: run.prompt_id for run, _ in runs}
        for job_id, shown in list(self._shown.items()):
            if at_work.get(job_id) != shown.prompt_id:
                self._drop(job_id)
        for run, preview in runs:
            if preview is not None:
                self._show(run, preview)
        return {job_id: shown.version for job_id, shown in self._shown.items()}

    def _show(self, run: LiveRun, preview: Preview) -> None:
        shown = self._shown.get(run.job_id)
        is_news = shown is None or shown.picture is not preview
        if is_news and _is_picture(preview.image) and _write(self._path(run.job_id), preview.image):
            self._count += 1
            self._shown[run.job_id] = _Shown(run.prompt_id, preview, f"{self._mark}-{self._count}")

    def remove(self) -> None:
        for job_id in list(self._shown):
            self._drop(job_id)

    def _drop(self, job_id: int) -> None:
        del self._shown[job_id]
        _remove(self._path(job_id))

    def _path(self, job_id: int) -> Path:
        return self._folder / _preview_name(self._worker, job_id)


def read_live(folder: Path) -> list[LiveRun]:
    """What all living agents on this machine have at work."""
    found = []
    for worker in living(folder):
        path = folder / f"{worker}{SUFFIX}"
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            if path.stat().st_size <= LARGEST:
                found += [_read(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    return found


def want_previews(folder: Path) -> None:
    """Ask all agents on this machine for previews, for the next ten seconds."""
    with contextlib.suppress(OSError):
        folder.mkdir(0o700, parents=True, exist_ok=True)
        (folder / WANTED).touch(0o600)


def read_preview(folder: Path, job_id: int) -> bytes | None:
    """The newest picture of a job that a living agent on this machine renders; None if there is none now.

    It begins as a JPEG, PNG or WebP does. The rest is as the server sent it.
    """
    for worker in living(folder):
        with contextlib.suppress(OSError), (folder / _preview_name(worker, job_id)).open("rb") as file:
            picture = file.read(LARGEST_PREVIEW + 1)
            return picture if len(picture) <= LARGEST_PREVIEW else None
    return None


def remove_stale(folder: Path, worker: str) -> None:
    """The files of an agent that is gone."""
    name = glob.escape(worker)
    for pattern in (f"{name}.live.*", f"{name}.*{PREVIEW}", f"{name}.*{PREVIEW}{UNNAMED}"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _read(facts: Mapping[str, Any]) -> LiveRun:
    """A run as an agent of this or another version wrote it; keys that are missing have their defaults."""
    return LiveRun(**{key: facts[key] for key in LiveRun.__dataclass_fields__ if key in facts})


def _is_wanted(folder: Path) -> bool:
    try:
        touched = (folder / WANTED).stat().st_mtime
    except OSError:
        return False
    return abs(time.time() - touched) < WANTED_SECONDS


def _is_picture(image: bytes) -> bool:
    return recognise(image[:HEAD], "").extension in PICTURES


def _preview_name(worker: str, job_id: int) -> str:
    return f"{worker}.{job_id:d}{PREVIEW}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(path: Path, data: bytes) -> bool:
    """Replace a file as a whole; whether that was possible. Nobody loses anything if it was not."""
    fresh = path.with_name(path.name + UNNAMED)
    with contextlib.suppress(OSError):
        with open(fresh, "wb", opener=_private) as file:
            file.write(data)
        os.replace(fresh, path)  # noqa: PTH105 - as everywhere
        return True
    _remove(fresh)
    return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
