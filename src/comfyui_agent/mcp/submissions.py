"""The tools that make something: once for each key, however often they are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from comfyui_agent.access.gate import check_role
from comfyui_agent.batches.axes import Bounds
from comfyui_agent.batches.books import BookFile, PageSaid
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.config.settings import Priority
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.domain.batches import Batch, BatchStatus, mint_batch_id
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.tokens import Role
from comfyui_agent.mcp import answers
from comfyui_agent.mcp.host import Client, Host
from comfyui_agent.mcp.results import all_brief, brief
from comfyui_agent.mcp.standings import (
    held,
    short,
    standing_of,
)
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import books, jobs, sweeps
from comfyui_agent.usecases.errors import ExternalIdTaken, NotFound, NotPossible, TooLarge

MOST_CHOICES, MOST_FIRST = 30, 5
MOST_SWEPT, MOST_PAGES, MOST_STORED = 10_000, 1_000, 64 * 1024**2

Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")] | None
Text = Annotated[str, Field(max_length=300)]
Thing = Annotated[str, Field(min_length=1, max_length=300)]
Inputs = dict[str, Any] | None
Urgency = Priority | None
Pages = Annotated[list[PageSaid], Field(min_length=1, max_length=MOST_PAGES)]


@dataclass(frozen=True)
class Submissions:
    """Submits for one caller, and finds what the same request with the same key has made before."""

    host: Host
    client: Client

    async def submit_job(
        self, workflow: Text, inputs: Inputs = None, key: Key = None, name: Text = "", priority: Urgency = None
    ) -> answers.Standing:
        """Queue one render, and return at once; wait follows it. Nothing of it is lost by a crash, here or there."""
        check_role(self.client.caller, Role.USER)
        kind = job_type_of((await self._workflow(workflow)).graph)
        tree: dict[str, Any] = {"job_type": kind, "workflow_id": workflow, "inputs": inputs or {}}
        tree |= {} if priority is None else {"priority": priority}
        host, fresh = self.host, mint_batch_id(name or workflow, "job")

        async def make() -> Job:
            return await jobs.submit_job(host.store, host.intake, self.client.actor, tree, fresh, external_id=key)

        return await self._once(key, jobs.digest_of_request(tree), make)

    async def submit_sweep(
        self,
        workflow: Text,
        set: dict[str, Any],
        inputs: Inputs = None,
        key: Key = None,
        mode: Literal["matrix", "linear"] = "matrix",
        name: Text = "",
        priority: Urgency = None,
        dry_run: bool = False,
    ) -> answers.SweepAnswer:
        """Queue a workflow for every combination of some values, as one batch that ends with a labelled grid."""
        check_role(self.client.caller, Role.USER)
        host, actor, default = self.host, self.client.actor, self.host.workspace.settings.default_priority
        actor.check_priority(priority)
        given = {"workflow": workflow, "set": set, "inputs": inputs or {}, "mode": mode, "priority": priority}
        digest = jobs.digest_of_request(given)
        if not dry_run and (known := await self._known(key, digest)):
            return _of_sweep(await standing_of(host, self.client, known, is_new=False), [])
        found, urgency = await self._workflow(workflow), default if priority is None else priority
        request = SweepRequest(found, set, inputs or {}, Mode(mode), name, priority=urgency)
        bounds = Bounds(combinations=MOST_SWEPT, values=2 * MOST_SWEPT)
        plan = await sweeps.plan_sweep(host.workspace, request, _no_lists, self.client.planner, bounds=bounds)
        sweep, axes = plan.sweep, plan.sweep.combinations.axes
        _check_stored(sweep.stored_bytes)
        warnings = [short(each) for each in plan.warnings[:MOST_FIRST]]
        if dry_run:
            return answers.SweepAnswer(
                summary=f"Would queue {counted(len(sweep), 'job')}. Nothing was queued.",
                next="The same without dry_run queues it; give a key.",
                jobs=len(sweep),
                axes={axis.name: [brief(value, 100) for value in axis.values[:MOST_CHOICES]] for axis in axes},
                first=[all_brief(sweep.combinations.values_at(index)) for index in range(min(len(sweep), MOST_FIRST))],
                warnings=warnings,
            )
        marked = replace(sweep, batch=replace(sweep.batch, metadata={**sweep.batch.metadata, "request": digest}))

        async def make() -> Batch:
            return await sweeps.queue_sweep(host.store, host.workspace, actor, marked, external_id=key)

        return _of_sweep(await self._once(key, digest, make), warnings)

    async def submit_book(
        self,
        pages: Pages,
        workflow: Text = "",
        inputs: Inputs = None,
        key: Key = None,
        title: Text = "",
        priority: Urgency = None,
    ) -> answers.Standing:
        """Queue a book: pages with inputs of their own on top of those for all. Each can be made anew: regenerate."""
        check_role(self.client.caller, Role.USER)
        host, actor = self.host, self.client.actor
        said = BookFile(title=title, workflow=workflow, inputs=inputs or {}, pages=tuple(pages), priority=priority)
        digest = jobs.digest_of_request(said.model_dump(mode="json"))

        async def make() -> Batch:
            fresh = said.model_copy(update={"book_id": mint_batch_id(title, "book")})
            book = await books.read_book(host.intake, actor, books.RequestedBook(fresh))
            _check_stored(book.stored_bytes)
            marked = replace(book, batch=replace(book.batch, metadata={**book.batch.metadata, "request": digest}))
            return await books.queue_book(host.store, host.workspace, actor, marked, external_id=key)

        return await self._once(key, digest, make)

    async def _workflow(self, name: str) -> Workflow:
        async with self.host.intake.reading() as admission:
            try:
                return await self.host.intake.threads.run(admission.workflows.find, name)
            except NoWorkflow as error:
                raise NotFound(f"workflow {error}", "list_workflows shows what there is.") from None

    async def _known(self, key: str | None, digest: str, *, with_filling: bool = False) -> Job | Batch | None:
        """What a key has made before. NotPossible if that was another request."""
        if key is None:
            return None
        owner = self.client.actor.token_id
        holder = await self.host.store.run(ops.find_external_id, owner, key, with_filling=with_filling)
        if holder is None:
            return None
        thing = await held(self.host, holder)
        if isinstance(thing, Batch) and thing.status is BatchStatus.PENDING:
            raise NotPossible(f"{thing.id} is being queued by another call", "Send the same again in a few seconds.")
        if digest != (thing.digest if isinstance(thing, Job) else thing.metadata.get("request")):
            message = f"key {key} was used for another request, which made the {holder.kind} {holder.name}"
            raise NotPossible(message, "Give a new request a new key; status(key) shows what that one made.")
        return thing

    async def _once(self, key: str | None, digest: str, make: Callable[[], Awaitable[Job | Batch]]) -> answers.Standing:
        """Make something, or find what the same request with the same key has made before."""
        thing, is_new = await self._known(key, digest), False
        if thing is None:
            self.client.count_change()
            try:
                thing, is_new = await make(), True
            except ExternalIdTaken:  # at the same moment
                thing = await self._known(key, digest, with_filling=True)
                if thing is None:
                    raise
        return await standing_of(self.host, self.client, thing, is_new=is_new)


def _of_sweep(batch: answers.Standing, warnings: list[str]) -> answers.SweepAnswer:
    summary, remedy = batch.summary, batch.next
    return answers.SweepAnswer(summary=summary, next=remedy, jobs=batch.total, warnings=warnings, batch=batch)


def _check_stored(size: int) -> None:
    if size > MOST_STORED:
        amount = f"{size // 1024**2:,} MB in the database, and {MOST_STORED // 1024**2} MB is the most"
        raise TooLarge(f"it would take about {amount}", "Make its values shorter or fewer, or submit it in parts.")


def _no_lists(name: str) -> Sequence[str]:
    raise ValueError(f"@{short(name, 100)} names a file, which is for the command line: send the values themselves")
