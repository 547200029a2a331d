"""Sweeps: planned and checked first, then queued as one batch."""

from __future__ import annotations

from collections.abc import Callable

from comfyui_agent.batches import axes
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.batches.sweeps import Sweep
from comfyui_agent.config.validation import Complaint, dotted
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.values import ReadLines
from comfyui_agent.engine.intake.input_files import NotKept
from comfyui_agent.engine.sweep_planner import Defined, Planner, define_sweep
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.batches import queue_members
from comfyui_agent.usecases.errors import Invalid, NotPossible, TooLarge

Where = Callable[[tuple[str, ...]], str]
"""Which line of a file says a key; empty if no file does."""


async def plan_sweep(
    workspace: Workspace,
    request: SweepRequest,
    read_lines: ReadLines,
    planner: Planner,
    *,
    bounds: axes.Bounds | None = None,
    where: Where = lambda _: "",
) -> Defined:
    """Check a sweep, with what the servers say of its nodes. Nothing is queued."""
    try:
        return await define_sweep(workspace, request, read_lines, planner, bounds)
    except axes.BadSweep as error:
        complaint = Complaint(where(error.key), dotted(error.key), error.message)
        message = f"{complaint.key}: {error.message}" if complaint.key else error.message
        kind = TooLarge if isinstance(error, axes.TooLarge) else Invalid
        line = str(complaint) if complaint.where else str(error)
        raise kind(message, line=line, found=[complaint]) from None
    except NotKept as error:
        raise NotPossible(str(error)) from None


async def queue_sweep(
    store: Store, workspace: Workspace, actor: Actor, sweep: Sweep, on_progress: Callable[[int], None] = lambda _: None
) -> Batch:
    """Queue a sweep that was planned. `on_progress` is called with how many jobs are in."""
    batch = await queue_members(store, workspace, actor, sweep.batch, sweep.jobs(), len(sweep), on_progress)
    await actor.audit(store, EventName.AUDIT_BATCH_CREATE, batch_id=batch.id, message=counted(len(sweep), "job"))
    return batch
