"""What is at work now, for other processes to see: a small file per agent, never a transaction."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.watch import Stage
from comfyui_agent.engine.run import Run
from comfyui_agent.store.agent_lock import living

SUFFIX = ".live.json"
LARGEST = 1024 * 1024


@dataclass(frozen=True)
class LiveRun:
    """One prompt at work. `stage` is sending, waiting, rendering or fetching."""

    job_id: int
    config_name: str
    batch_id: str | None
    server: str
    stage: str
    node_type: str = ""
    step: int = 0
    steps: int = 0


def live_run(run: Run) -> LiveRun:
    leased, progress = run.leased, run.progress
    stage = "sending" if progress is None else "rendering" if progress.stage is Stage.RUNNING else "waiting"
    return LiveRun(
        leased.lease.job_id,
        leased.config_name,
        leased.batch_id,
        run.server.name,
        "fetching" if run.is_collecting else stage,
        progress.node_type if progress else "",
        progress.step if progress else 0,
        progress.steps if progress else 0,
    )


class LiveFile:
    """Tells what this agent has at work. It is gone when the agent is; one of a dead agent is not believed."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._path = folder / f"{worker}{SUFFIX}"
        self._said = ""

    def write(self, runs: Sequence[LiveRun]) -> None:
        text = json.dumps([asdict(run) for run in runs])
        if text == self._said:
            return
        fresh = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # nobody loses anything if it cannot be shown
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self._path)  # noqa: PTH105 - as everywhere
            self._said = text

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_live(folder: Path) -> list[LiveRun]:
    """What all living agents on this machine have at work."""
    found = []
    for worker in living(folder):
        path = folder / f"{worker}{SUFFIX}"
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            if path.stat().st_size <= LARGEST:
                found += [_read(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    return found


def remove_stale(folder: Path, worker: str) -> None:
    """The file of an agent that is gone."""
    (folder / f"{worker}{SUFFIX}").unlink(missing_ok=True)


def _read(facts: Mapping[str, Any]) -> LiveRun:
    return LiveRun(**{key: facts[key] for key in LiveRun.__dataclass_fields__})
