"""Grids: made by the worker that claims them. Paths are claimed before the files exist, so nothing is overwritten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.operation import Operation, statement, transition
from comfyui_agent.store.port import Row, Session

PAGE = ".html"


@transition
def claim_grid(session: Session, worker: str, host: str, only: str | None = None) -> tuple[str, int] | None:
    """Claim a grid that is due for this worker to make: the batch and its generation. None if there is none."""
    row = session.one("due_grid", id=only, host=host)
    if row is None:
        return None
    session.run("claim_grid", id=row["id"], worker=worker)
    return row["id"], row["generation"]


@transition
def settle_grid(
    session: Session,
    batch_id: str,
    worker: str,
    generation: int,
    *,
    grid: str | None = None,
    problem: str | None = None,
) -> bool:
    """Note that a grid was made, or why it cannot be. False if the claim is no longer this worker's."""
    facts = {"id": batch_id, "worker": worker, "generation": generation, "grid": grid, "problem": problem}
    if not session.run("settle_grid", **facts):
        return False
    if problem is not None:
        add_event(session, Event(EventName.ALERT_GRID, batch_id=batch_id, message=problem))
    return True


release_grids: Operation[[str], int] = statement("release_grids", "worker")


@transition
def note_grid(session: Session, batch: Batch, grid: str) -> None:
    """Note a grid that was made by request."""
    generation = batch.generation if batch.status is BatchStatus.COMPLETE else None
    session.run("note_grid", id=batch.id, grid=grid, generation=generation)


@transition
def claim_grid_files(
    session: Session, batch_id: str, paths: Sequence[str], existing: Collection[str], output: str = ""
) -> str:
    """Claim files for the grid of a batch, all or none. Returns why that is not possible, or an empty text.

    Of the files that are `existing` on disk, only this grid's own and the `output` that a person named are replaced.
    """
    for row in session.rows("owners_of_paths", paths=paths):
        if row["batch_id"] != batch_id:
            return f"{row['path']} belongs to {holder_of(row)}"
    rows = session.rows("grid_files_of", id=batch_id)
    ours = {row["path"] for row in rows}
    # A grid from before paths were claimed is recorded by its first picture alone: what lies beside it is its own.
    usual = [PurePosixPath(row["path"]) for row in rows if not row["output"]]
    old = set() if any(path.suffix == PAGE for path in usual) else {path.parent for path in usual}
    for path in existing:
        if path not in ours and path != output and PurePosixPath(path).parent not in old:
            return f"{path} is there already and is no grid of {batch_id}"
    _note(session, batch_id, paths, output)
    return ""


@transition
def keep_grid_files(session: Session, batch_id: str, paths: Sequence[str], output: str = "") -> list[str]:
    """Note the files of a grid. Returns files of an earlier grid that nothing refers to any more."""
    _note(session, batch_id, paths, output)
    rows = session.rows("grid_files_of", id=batch_id)
    strays = [row["path"] for row in rows if row["output"] == output and row["path"] not in paths]
    for path in strays:
        session.run("disclaim_grid_file", path=path, id=batch_id)
    return strays


def holder_of(row: Row) -> str:
    """The job or the grid that owns a path, in words."""
    return f"the job {row['config_name']}" if row["batch_id"] is None else f"the grid of {row['batch_id']}"


def _note(session: Session, batch_id: str, paths: Sequence[str], output: str) -> None:
    for path in paths:
        session.run("claim_grid_file", path=path, id=batch_id, output=output)
