"""What can be asked about a batch, whatever it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from comfyui_agent.batches.batch_writer import queue_batch
from comfyui_agent.batches.grids import GridOptions, NoGrid, make_grid
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchStatus, NewBatch
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.intake.input_files import NotKept
from comfyui_agent.files.port import FilesAway
from comfyui_agent.pictures.compose import Spec
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import BatchTaken
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import NameTaken, NotPossible


@dataclass(frozen=True)
class BatchChange:
    """A batch as it is after a change, and how many of its jobs were changed."""

    batch: Batch
    jobs: int


async def queue_members(
    store: Store,
    workspace: Workspace,
    actor: Actor,
    batch: NewBatch,
    jobs: Iterable[NewJob],
    count: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Batch:
    """Queue a new batch with so many jobs, all or none. `on_progress` is called with how many are in."""
    await actor.check_external_id(store, batch.external_id)
    try:
        async with actor.room(count):
            await queue_batch(store, workspace.locks, replace(batch, created_by=actor.token_id), jobs, on_progress)
    except BatchTaken as error:
        await actor.check_external_id(store, batch.external_id, with_filling=True)
        raise NameTaken(str(error)) from None
    except (Unbindable, NotKept) as error:
        raise NotPossible(str(error)) from None
    return await read_back(store, batch.id)


async def read_back(store: Store, batch_id: str) -> Batch:
    """A batch that was just queued."""
    found = await store.run(ops.find_batch, batch_id)
    if found is None:
        raise NotPossible(f"{batch_id} was removed at once", "Send it again.")
    return found


async def cancel_batch(store: Store, actor: Actor, batch: Batch) -> BatchChange:
    """End what has not ended of a batch. Its prompts are still to be taken back: `engine.service`."""
    actor.check_owner(batch)
    ended = await ops.cancel_batch(store, batch.id)
    nothing = "There is nothing to cancel."
    if ended is None and batch.status is BatchStatus.PENDING:
        message = f"{batch.id} is still being queued"
        raise NotPossible(message, nothing, line=f"{message}: stop the command that queues it")
    if ended is None:
        raise NotPossible(f"{batch.id} is {batch.status} already", nothing)
    return await _changed(store, actor, EventName.AUDIT_BATCH_CANCEL, batch, ended)


async def retry_batch(store: Store, actor: Actor, batch: Batch, *, with_cancelled: bool = False) -> BatchChange:
    """Render the failed members again; `with_cancelled` also those that were cancelled or dismissed."""
    actor.check_owner(batch)
    async with actor.room(batch.failed):
        count = await store.run(ops.retry_batch, batch.id, with_cancelled=with_cancelled)
    return await _changed(store, actor, EventName.AUDIT_BATCH_RETRY, batch, count)


async def dismiss_batch(store: Store, actor: Actor, batch: Batch) -> BatchChange:
    """Put the failed members out of what needs attention."""
    actor.check_owner(batch)
    count = await store.run(ops.dismiss_batch, batch.id)
    return await _changed(store, actor, EventName.AUDIT_JOB_DISMISS, batch, count)


async def pause_batch(store: Store, actor: Actor, batch: Batch) -> Batch:
    """What waits stays waiting; what is at a server runs on."""
    actor.check_owner(batch)
    if not await store.run(ops.pause_batch, batch.id) and not batch.is_paused:
        message = f"{batch.id} is {batch.status}"
        raise NotPossible(message, "There is nothing to pause.", line=f"{message}: there is nothing to pause")
    await actor.audit(store, EventName.AUDIT_BATCH_PAUSE, batch_id=batch.id)
    return await _now(store, batch)


async def resume_batch(store: Store, actor: Actor, batch: Batch) -> Batch:
    """Let a paused batch go on."""
    actor.check_owner(batch)
    if not await store.run(ops.resume_batch, batch.id):
        raise NotPossible(f"{batch.id} is not paused", "There is nothing to resume.")
    await actor.audit(store, EventName.AUDIT_BATCH_RESUME, batch_id=batch.id)
    return await _now(store, batch)


async def draw_grid(store: Store, workspace: Workspace, actor: Actor, batch: Batch, options: GridOptions) -> Spec:
    """Make the grid of a batch again. It becomes the grid of the batch, unless it goes to a file of its own."""
    actor.check_owner(batch)
    try:
        made = await make_grid(store, workspace, batch, options)
    except NoGrid as error:
        message = str(error).replace("--", "")
        raise NotPossible(message, "Change the layout, or wait for results.", line=str(error)) from None
    except FilesAway as error:
        raise NotPossible(f"the grid cannot be made now: {error.strerror}", "Try again in a while.") from None
    if options.output is None:
        await store.run(ops.note_grid, batch, workspace.shown(made.pictures[0]))
        await actor.audit(store, EventName.AUDIT_BATCH_GRID, batch_id=batch.id)
    return made


async def _changed(store: Store, actor: Actor, event: EventName, batch: Batch, count: int) -> BatchChange:
    if count or event is EventName.AUDIT_BATCH_CANCEL:
        await actor.audit(store, event, batch_id=batch.id, message=counted(count, "job"))
    return BatchChange(await _now(store, batch), count)


async def _now(store: Store, batch: Batch) -> Batch:
    return await store.run(ops.find_batch, batch.id) or batch
