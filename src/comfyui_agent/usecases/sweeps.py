"""Sweeps: planned and checked with what the servers say first, then queued as one batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from comfyui_agent.batches import axes
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.batches.sweeps import Sweep, define
from comfyui_agent.comfy.address import address_of
from comfyui_agent.config.validation import Complaint, dotted
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.needs import missing_for
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.values import ReadLines, draw_seeds
from comfyui_agent.engine.intake.choices import ask_definitions, offers_of
from comfyui_agent.engine.intake.input_files import InputFiles, NotKept
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.pools import Pool
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.batches import queue_members
from comfyui_agent.usecases.errors import Invalid, NotPossible, TooLarge

T = TypeVar("T")
Where = Callable[[tuple[str, ...]], str]
"""Which line of a file says a key; empty if no file does."""
CheckCancelled = Callable[[], None]
"""Work in a thread calls it now and then; it raises when the work shall end."""


class Planner(Protocol):
    """Has work done beside the event loop."""

    async def run(self, work: Callable[[CheckCancelled], T]) -> T: ...


class PatientPlanner:
    """Has no time limit."""

    async def run(self, work: Callable[[CheckCancelled], T]) -> T:
        return await Pool("e3-plan", 1).run(work, lambda: None)


@dataclass(frozen=True)
class Defined:
    """A sweep that was checked. `silent` names the servers that did not answer, if none did."""

    sweep: Sweep
    silent: tuple[str, ...] = ()
    missing: str = ""
    """What some of its jobs need and no server has."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before it runs."""
        unheard = f"{', '.join(self.silent)} does not answer: values are checked against the workflow only"
        return (*([unheard] if self.silent else []), *([self.missing] if self.missing else []), *self.sweep.warnings)


async def define_sweep(
    workspace: Workspace,
    request: SweepRequest,
    read_lines: ReadLines,
    planner: Planner,
    bounds: axes.Bounds | None = None,
) -> Defined:
    """Check a sweep before anything is queued: first its size, then with what servers say of its nodes.

    `read_lines` reads the file that `@NAME` stands for; OSError or ValueError if it cannot. BadSweep says what is wrong
    with the sweep. NotKept, here or while its jobs are made: a picture could not be kept.
    """
    counted = await planner.run(lambda _: axes.count_axes(request, read_lines, bounds))
    classes = {place.class_type for place in request.workflow.places.all.values()}
    definitions, answers = await ask_definitions(server_urls(workspace), classes)
    finished, keep = workspace.settings.paths.jobs_finished, InputFiles(workspace).keep_patiently
    found = await planner.run(
        lambda check_cancelled: define(
            request,
            counted,
            finished,
            definitions,
            draw=draw_seeds,
            keep=keep,
            check_cancelled=check_cancelled,
            limit_kb=workspace.settings.job_limit_kb,
        )
    )
    silent = () if definitions else tuple(address_of(url) for url, answer in answers.items() if answer is None)
    return Defined(found, silent, missing_for(found.needs(), offers_of(answers)))


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
    store: Store,
    workspace: Workspace,
    actor: Actor,
    sweep: Sweep,
    on_progress: Callable[[int], None] = lambda _: None,
    *,
    external_id: str | None = None,
) -> Batch:
    """Queue a sweep that was planned. `on_progress` is called with how many jobs are in."""
    new = replace(sweep.batch, external_id=external_id)
    batch = await queue_members(store, workspace, actor, new, sweep.jobs(), len(sweep), on_progress)
    await actor.audit(store, EventName.AUDIT_BATCH_CREATE, batch_id=batch.id, message=counted(len(sweep), "job"))
    return batch
