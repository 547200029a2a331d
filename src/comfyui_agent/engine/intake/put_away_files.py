"""Job files that are put away: moved to the finished ones when their job is done, renamed if they cannot be taken."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.kinds import folder_of
from comfyui_agent.engine.intake.folder_scan import REJECTED, Refused, Unsettled, digest_of, read_whole
from comfyui_agent.engine.intake.folder_watch import Troubles
from comfyui_agent.files.folder import keep_aside
from comfyui_agent.pools import INTAKE, PUBLISHING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.operation import OperationRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinishedFiles:
    """Moves job files. Doing it twice, or by two processes at once, does no harm."""

    store: OperationRunner
    workspace: Workspace
    _troubles: Troubles = field(default_factory=Troubles, init=False)

    async def put_away(self, job_id: JobId | None, source: str, digest: str | None, job_type: str) -> None:
        """Move the file of a job that is done. One that was changed while it ran stays, and is submitted again."""
        path = self.workspace.root / source
        try:
            kind = folder_of(job_type)
            target = self.workspace.finished_files(kind) / path.name
            if await PUBLISHING.run(_move, path, digest, target):
                if target.is_file():
                    put_away = self.workspace.finished_job_file(kind, path.name)
                    await self.store.run(ops.note_file_moved, path.name, source, put_away)
                return
            log.warning("%s was changed while its job ran: it is submitted again", source)
            if job_id is not None:
                await self.store.run(ops.note_file_changed, job_id)
        except (OSError, ValueError) as error:
            self._troubles.report(source, f"{source} is done and could not be moved to the finished ones: {error}")
        except StoreError as error:
            log.error("%s: %s", source, error)


def _move(path: Path, digest: str | None, target: Path) -> bool:
    """Move a file if it still is what was rendered. False if it was changed, and stays."""
    if _digest_of(path) != digest:
        return not path.exists()  # gone: moved by another process, or deleted
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = keep_aside(target) if target.exists() and _digest_of(target) != digest else None
    try:
        _rename(path, target)
    except FileNotFoundError:  # another process has moved it, and this one perhaps what that one had moved
        if kept is not None and _digest_of(kept) == digest and not target.exists():
            kept.rename(target)
        return True
    if kept is not None:
        log.warning("%s was there already: it is now %s", target, kept.name)
    if _digest_of(target) == digest:
        return True
    # It was replaced between the look and the move: back with it, unless there is a newer one by now.
    with contextlib.suppress(FileExistsError):
        os.link(target, path)
    target.unlink()
    return False


def _rename(path: Path, target: Path) -> None:
    try:
        path.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(path, target)
        path.unlink()


def _digest_of(path: Path) -> str | None:
    """The digest of a plain file; None if it is gone, or something else."""
    try:
        return digest_of(read_whole(str(path)))
    except (Refused, Unsettled):
        return None


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
