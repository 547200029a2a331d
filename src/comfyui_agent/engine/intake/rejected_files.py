"""Job files that cannot be taken: renamed, with the reason on record."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.intake.folder_scan import REJECTED
from comfyui_agent.engine.result_names import keep_aside
from comfyui_agent.engine.thread_pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)


async def reject_file(store: OperationRunner, workspace: Workspace, path: Path, reason: str) -> None:
    """Rename a file and overwrite nothing. The reason is recorded first."""
    target = path.with_name(path.name + REJECTED)
    kept = await INTAKE.run(_make_room, path, target)
    kept_as = None if kept is None else workspace.job_file(kept)
    await store.run(ops.reject_file, workspace.job_file(target), reason, kept_as)
    log.warning("%s is now %s: %s", workspace.job_file(path), target.name, reason)
    await INTAKE.run(_set_aside, path, target)


def _make_room(path: Path, target: Path) -> Path | None:
    """Give a file that was rejected before another name; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return None if target.samefile(path) else keep_aside(target)
    return None


def _set_aside(path: Path, target: Path) -> None:
    """Rename a file and overwrite nothing; another monitor may be doing the same."""
    while path.exists():
        try:
            os.link(path, target)
            break
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if target.samefile(path):
                    break
                keep_aside(target)
        except FileNotFoundError:
            return
        except OSError:  # a drive that knows no second names
            path.rename(target)
            return
    path.unlink(missing_ok=True)
