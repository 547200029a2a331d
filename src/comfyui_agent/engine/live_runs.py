"""What agents on this machine have at work now, read from the files that they write.

This module is quick to import: every look at the queue uses it.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.comfy.frames import LARGEST_PREVIEW
from comfyui_agent.store.agent_lock import living

LIVE = ".live.json"
PREVIEW = ".preview"
PREVIEWS_WANTED = "previews.wanted"
WANTED_SECONDS = 10.0
LARGEST = 1024 * 1024


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


def read_live(folder: Path) -> list[LiveRun]:
    """What all living agents on this machine have at work."""
    found = []
    for worker in living(folder):
        path = folder / f"{worker}{LIVE}"
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            if path.stat().st_size <= LARGEST:
                # An agent of another version may have written it: keys that are missing have their defaults.
                for facts in json.loads(path.read_text(encoding="utf-8")):
                    found.append(LiveRun(**{key: facts[key] for key in LiveRun.__dataclass_fields__ if key in facts}))
    return found


def want_previews(folder: Path) -> None:
    """Ask all agents on this machine for previews, for the next ten seconds."""
    with contextlib.suppress(OSError):
        folder.mkdir(0o700, parents=True, exist_ok=True)
        (folder / PREVIEWS_WANTED).touch(0o600)


def are_previews_wanted(folder: Path) -> bool:
    """Whether someone looks at running work now."""
    try:
        touched = (folder / PREVIEWS_WANTED).stat().st_mtime
    except OSError:
        return False
    return abs(time.time() - touched) < WANTED_SECONDS


def read_preview(folder: Path, job_id: int) -> bytes | None:
    """The newest picture of a job that a living agent on this machine renders; None if there is none now.

    It begins as a JPEG, PNG or WebP does. The rest is as the server sent it.
    """
    for worker in living(folder):
        with contextlib.suppress(OSError), (folder / preview_name(worker, job_id)).open("rb") as file:
            picture = file.read(LARGEST_PREVIEW + 1)
            return picture if len(picture) <= LARGEST_PREVIEW else None
    return None


def preview_name(worker: str, job_id: int) -> str:
    return f"{worker}.{job_id:d}{PREVIEW}"
