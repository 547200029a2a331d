"""Writing what an agent has at work, for other processes to see: small files, never a transaction.

Pictures of unfinished work are written only while someone wants to see them.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from comfyui_agent.comfy.content import HEAD, recognise
from comfyui_agent.comfy.frames import Preview
from comfyui_agent.comfy.watch import Progress, Stage
from comfyui_agent.engine.live_runs import LIVE, PREVIEW, LiveRun, are_previews_wanted, preview_name
from comfyui_agent.engine.run import Run
from comfyui_agent.fleet.server import Health
from comfyui_agent.pools import RECORDING

UNNAMED = ".new"
PICTURES = frozenset({"jpg", "png", "webp"})


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


class _Shown(NamedTuple):
    prompt_id: str
    version: str
    preview: Preview | None


NOTHING = _Shown("", "", None)


class LiveFile:
    """Tells what this agent has at work. It is gone when the agent is; one of a dead agent is not believed.

    The newest preview of each run is a file of its own, from the first one until the run ends or nobody looks.
    """

    def __init__(self, folder: Path, worker: str) -> None:
        self._folder = folder
        self._worker = worker
        self._path = folder / f"{worker}{LIVE}"
        self._text = ""
        self.is_watched = are_previews_wanted(folder)
        """Whether someone looks at running work, as of a moment ago."""
        self._previews: dict[int, _Shown] = {}
        """What is written, by the id of its job."""
        self._writing = threading.Lock()
        self._is_over = False

    async def show(self, runs: Sequence[Run]) -> None:
        await RECORDING.run(self.write, [(live_run(run), preview_of(run)) for run in runs])

    def write(self, runs: Sequence[tuple[LiveRun, Preview | None]]) -> None:
        """Write which runs are at work, with the newest preview of each."""
        with self._writing:
            if self._is_over:
                return
            self.is_watched = are_previews_wanted(self._folder)
            self._write_previews(runs if self.is_watched else ())
            shown = [replace(run, preview=self._previews.get(run.job_id, NOTHING).version) for run, _ in runs]
            text = json.dumps([asdict(run) for run in shown])
            if text != self._text and _write(self._path, text.encode("ascii")):
                self._text = text

    def remove(self) -> None:
        """The end: nothing is written afterwards, by whatever thread is still at it."""
        with self._writing:
            self._is_over = True
            self._write_previews(())
            _remove(self._path)

    def _write_previews(self, runs: Sequence[tuple[LiveRun, Preview | None]]) -> None:
        """Bring the files up to date. Those of other runs are removed."""
        at_work = {run.job_id: run.prompt_id for run, _ in runs}
        for job_id, shown in list(self._previews.items()):
            if at_work.get(job_id) != shown.prompt_id:
                del self._previews[job_id]
                _remove(self._folder / preview_name(self._worker, job_id))
        for run, preview in runs:
            if preview is None or preview is self._previews.get(run.job_id, NOTHING).preview:
                continue
            if recognise(preview.image[:HEAD], "").extension in PICTURES:
                version = hashlib.sha256(preview.image).hexdigest()[:12]
                if _write(self._folder / preview_name(self._worker, run.job_id), preview.image):
                    self._previews[run.job_id] = _Shown(run.prompt_id, version, preview)


def remove_stale(folder: Path, worker: str) -> None:
    """The files of an agent that is gone."""
    name = glob.escape(worker)
    for pattern in (f"{name}.live.*", f"{name}.feed.*", f"{name}.*{PREVIEW}", f"{name}.*{PREVIEW}{UNNAMED}"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


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
