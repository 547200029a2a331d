"""The tools. Each calls a use case as the command line and the page do, for the one who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from comfyui_agent.access.gate import check_role
from comfyui_agent.batches.axes import Bounds
from comfyui_agent.batches.books import BookFile, PageSaid
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.config.settings import Priority
from comfyui_agent.config.workflows import NoWorkflow, Workflow, describe, usual_classes
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, mint_batch_id
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, listed
from comfyui_agent.domain.tokens import Role
from comfyui_agent.engine.service import take_back
from comfyui_agent.mcp import answers
from comfyui_agent.mcp.host import Client, Host
from comfyui_agent.mcp.results import all_brief, brief, result_of
from comfyui_agent.mcp.standings import (
    again,
    find_thing,
    has_ended,
    held,
    line_of,
    name_of,
    short,
    standing_of,
    state_of,
    workspace_standing,
)
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import batches, books, jobs, servers, sweeps
from comfyui_agent.usecases.checkup import check_workspace
from comfyui_agent.usecases.errors import ExternalIdTaken, NotAllowed, NotFound, NotPossible, TooLarge
from comfyui_agent.usecases.job_files import retry_jobs

LONGEST_WAIT, PAUSE, LOOK_AGAIN, MOST_WAITING = 50.0, 0.25, 5.0, 64
MOST_LISTED, MOST_CHOICES, MOST_FIRST = 100, 30, 5
MOST_SWEPT, MOST_PAGES, MOST_STORED = 10_000, 1_000, 64 * 1024**2

Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")] | None
Text = Annotated[str, Field(max_length=300)]
Thing = Annotated[str, Field(min_length=1, max_length=300)]
Inputs = dict[str, Any] | None
Pages = Annotated[list[PageSaid], Field(min_length=1, max_length=MOST_PAGES)]
PageNumbers = Annotated[list[int], Field(min_length=1, max_length=MOST_PAGES)] | None
Number = Annotated[int, Field(ge=1, le=1_000_000)] | None
Size = Annotated[int, Field(ge=64, le=1536)]


@dataclass(frozen=True)
class Tools:
    """What one caller can do. The docstring of each tool tells a model what it is for; `texts.json` has the rest."""

    host: Host
    client: Client

    async def list_workflows(self) -> answers.WorkflowsAnswer:
        """List what can be made: every workflow of the workspace, and why one cannot be used."""
        async with self.host.intake.reading() as admission:
            workflows = admission.workflows

            def look(name: str) -> answers.WorkflowLine:
                try:
                    recipe = workflows.find(name).recipe
                except NoWorkflow as error:
                    return answers.WorkflowLine(workflow=name, problem=short(str(error)))
                about, required = short(recipe.description), list(recipe.required_inputs)
                return answers.WorkflowLine(workflow=name, description=about, required_inputs=required)

            known = workflows.known()
            found = await self.host.intake.threads.run(lambda: [look(name) for name in known[:MOST_LISTED]])
        usable = sum(each.problem is None for each in found)
        summary = f"{counted(len(known), 'workflow')}; {usable:,} of the {len(found):,} listed can be used."
        remedy = "describe_workflow shows the inputs of one, and their choices."
        return answers.WorkflowsAnswer(summary=summary, next=remedy, workflows=found)

    async def describe_workflow(self, workflow: Text) -> answers.WorkflowAnswer:
        """Show what a workflow takes: its inputs, what is there if nothing is given, what servers offer to choose."""
        found = await self._workflow(workflow)
        offers = await self.host.intake.offers(usual_classes(found))
        facts = await self.host.intake.threads.run(describe, found, list(offers.values()))
        required = dict.fromkeys(facts["required_inputs"])
        usual: dict[str, dict[str, Any]] = {name: {"value": None, "choices": None} for name in required}
        usual |= {each["name"]: each for each in facts["inputs"]}
        inputs = []
        for name, each in [*usual.items()][:MOST_LISTED]:
            shown = answers.Input(name=name, is_required=name in required, value=brief(each["value"]))
            if (choices := each["choices"]) is not None:
                shown.choices = [short(choice, 200) for choice in choices[:MOST_CHOICES]]
                shown.more_choices = max(0, len(choices) - MOST_CHOICES) or None
            inputs.append(shown)
        summary = short(f"{workflow}: {found.recipe.description or counted(len(inputs), 'input')}")
        remedy = "submit_job renders it once; submit_sweep with dry_run=true tries values against each other."
        return answers.WorkflowAnswer(summary=summary, next=remedy, makes=job_type_of(found.graph), inputs=inputs)

    async def submit_job(
        self, workflow: Text, inputs: Inputs = None, key: Key = None, name: Text = "", priority: Priority | None = None
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
        priority: Priority | None = None,
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
        priority: Priority | None = None,
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

    async def wait(self, id: Thing, seconds: float = 25.0) -> answers.Standing:
        """Wait until something has ended, at most 50 seconds, and say how it stands. Call again until ended is true."""
        host, until = self.host, SYSTEM_CLOCK.now() + max(0.0, min(seconds, LONGEST_WAIT))
        scope, most = self.client.caller.scope, MOST_WAITING // (1 if self.client.caller.token is None else 4)
        if host.waiting.total() >= MOST_WAITING or host.waiting[scope] >= most:
            raise NotPossible("too many wait already", "Look with status in a while.")
        host.waiting[scope] += 1
        try:
            seen = [host.store.version]
            thing = await find_thing(host, self.client, id)
            while not has_ended(thing) or (isinstance(thing, Batch) and thing.is_grid_due):
                if (left := until - SYSTEM_CLOCK.now()) <= 0:
                    break
                await SYSTEM_CLOCK.sleep(min(PAUSE, left))
                await SYSTEM_CLOCK.wait_while(lambda: host.store.version == seen[0], min(LOOK_AGAIN, left), PAUSE)
                seen[0] = host.store.version
                thing = await again(host, thing)
        finally:
            host.waiting[scope] -= 1
        return await standing_of(host, self.client, thing)

    async def status(self, id: Text = "") -> answers.Standing:
        """Say how anything stands, by its id, name or key; without one, the whole queue and what needs attention."""
        if not id:
            return await workspace_standing(self.host)
        return await standing_of(self.host, self.client, await find_thing(self.host, self.client, id))

    async def get_result(
        self, id: Thing, number: Number = None, take: Number = None, size: Size = 1024
    ) -> answers.ResultAnswer:
        """See a result as an image small enough to look at, and where it is in full size. Of a batch: its grid."""
        thing = await find_thing(self.host, self.client, id)
        return await result_of(self.host, self.client, thing, number, take, size)

    async def retry(self, id: Thing, cancelled: bool = False, confirm: bool = False) -> answers.Change:
        """Render again what failed: a job, or the failed members of a batch or book. What is done stays."""
        thing = await self._owned(id, confirm)
        name, host, actor = name_of(thing), self.host, self.client.actor
        if isinstance(thing, Job):
            count = 1
            if thing.status is not JobStatus.FAILED:
                raise NotPossible(f"{name} {jobs.STATES[thing.status]}", "There is nothing to retry.")
            if confirm:
                _check_done(*await retry_jobs(host.store, host.intake, actor, [thing]))
        else:
            count = thing.failed if cancelled else thing.attention
            if not count:
                raise NotPossible(f"nothing of {name} needs attention", "cancelled=true takes what was cancelled, too.")
            if confirm:
                count = (await batches.retry_batch(host.store, actor, thing, with_cancelled=cancelled)).jobs
        return await self._changed(thing, confirm, f"render {counted(count, 'job')} of {name} again", count)

    async def cancel(self, id: Thing, confirm: bool = False) -> answers.Change:
        """End what waits or renders of a job, batch or book. Results that are there stay; nothing else is touched."""
        thing = await self._owned(id, confirm)
        name, host, actor = name_of(thing), self.host, self.client.actor
        if has_ended(thing):
            raise NotPossible(f"{name} has ended already: {state_of(thing)}", "There is nothing to cancel.")
        count = 1 if isinstance(thing, Job) else thing.pending + thing.processing
        if confirm and isinstance(thing, Job):
            _check_done(*await jobs.cancel_jobs(host.store, actor, [thing]))
        elif confirm and isinstance(thing, Batch):
            count = (await batches.cancel_batch(host.store, actor, thing)).jobs
            host.begin(take_back(host.store, host.workspace, thing.id))
        return await self._changed(thing, confirm, f"end {counted(count, 'job')} of {name}", count)

    async def regenerate(
        self,
        id: Thing,
        pages: PageNumbers = None,
        inputs: Inputs = None,
        new_seed: bool = False,
        confirm: bool = False,
    ) -> answers.Change:
        """Make pages of a book anew; what they were is kept as a take. Pages that have not failed are for admins."""
        book = await self._owned(id, confirm)
        host, is_admin = self.host, self.client.caller.role is Role.ADMIN
        if isinstance(book, Job) or book.kind is not BatchKind.BOOK:
            raise NotPossible(f"{name_of(book)} is no book", "retry renders again what failed.")
        if not is_admin and (inputs or new_seed):
            raise NotAllowed("inputs and new_seed are for admins", "Without them, failed pages are rendered again.")
        if gone := [page for page in pages or () if not 1 <= page <= book.total]:
            raise NotFound(f"{book.id} has no page {gone[0]}", f"It has {book.total:,}.")
        if not pages and not book.attention:
            raise NotPossible(f"no page of {book.id} needs attention", "Name pages to make them anew.")
        if confirm:
            how: dict[str, Any] = {"new_seed": new_seed, "only_failed": not is_admin}
            actor = self.client.actor
            pages = await books.regenerate_pages(host.store, host.intake, actor, book, pages, inputs, **how)
        which = f"page {listed([*map(str, pages)])}" if pages else counted(book.attention, "failed page")
        changes = ", with a new seed" * new_seed + ", with other inputs" * bool(inputs)
        count = len(pages or ()) or book.attention
        return await self._changed(book, confirm, f"render {which} of {book.id} anew{changes}", count)

    async def list_servers(self) -> answers.ServersAnswer:
        """Show the ComfyUI servers: which work, what they have loaded, and why one has no work."""
        reports = await self.host.reports()
        uses = await servers.server_uses(self.host.store, self.host.intake, reports)
        is_attended = await ops.is_attended(self.host.store, self.host.workspace.locks)
        lines = []
        for each in reports[:MOST_LISTED]:
            busy = f"ComfyUI {each.stats.version}, {each.running} running, {each.pending} waiting" if each.stats else ""
            about = short("; ".join(filter(None, (each.error, busy, uses[each.url].summary))))
            lines.append(answers.ServerLine(name=short(each.name, 100), state=each.state, about=about))
        up, agent = sum(each.state == "up" for each in reports), "an agent" if is_attended else "no agent"
        summary = f"{up:,} of {counted(len(reports), 'server')} can take work; {agent} of E3 works the queue off."
        remedy = "list_workflows shows what can be made." if is_attended else "Have e3 run started in the workspace."
        remedy = remedy if up else "Have ComfyUI started, or its address put right; doctor says more."
        return answers.ServersAnswer(summary=summary, next=remedy, servers=lines, is_attended=is_attended)

    async def doctor(self) -> answers.DoctorAnswer:
        """Check folders, workflows, database, disk, servers and models, and say what to do. For admins."""
        check_role(self.client.caller, Role.ADMIN)
        found = [each async for each in check_workspace(self.host.workspace, lambda: nullcontext(self.host.store))]
        found.sort(key=lambda each: each.is_fine)
        said = self.host.workspace.without_root
        lines = [answers.FindingLine(name=f.name, fine=f.is_fine, message=short(said(f.message))) for f in found]
        troubles = sum(not each.is_fine for each in found)
        summary = f"{troubles:,} of {counted(len(found), 'check')} found something." if troubles else "All is well."
        remedy = "Each message says what to do." if troubles else "list_workflows shows what can be made."
        return answers.DoctorAnswer(summary=summary, next=remedy, findings=lines[:MOST_LISTED])

    async def list_batches(self) -> answers.BatchesAnswer:
        """The newest batches and books. It is a resource and no tool."""
        page = await self.host.store.run(ops.batch_page, None, None, MOST_CHOICES)
        found = {short(each.id, 100): line_of(each) for each in page.batches}
        return answers.BatchesAnswer(summary=f"The newest {len(found)}.", next="status tells more.", batches=found)

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

    async def _owned(self, name: str, is_change: bool) -> Job | Batch:
        """Something that the caller may change, and will if `is_change`."""
        check_role(self.client.caller, Role.USER)
        thing = await find_thing(self.host, self.client, name)
        self.client.actor.check_owner(thing)
        if is_change:
            self.client.count_change()
        return thing

    async def _changed(self, thing: Job | Batch, is_done: bool, what: str, count: int) -> answers.Change:
        if not is_done:
            remedy = "Nothing was changed. The same with confirm=true does it."
            return answers.Change(summary=f"Would {what}.", next=remedy, confirmed=False, jobs=count)
        now = await standing_of(self.host, self.client, await again(self.host, thing))
        return answers.Change(summary=f"Did {what}. {now.summary}", next=now.next, confirmed=True, jobs=count, now=now)


def _of_sweep(batch: answers.Standing, warnings: list[str]) -> answers.SweepAnswer:
    summary, remedy = batch.summary, batch.next
    return answers.SweepAnswer(summary=summary, next=remedy, jobs=batch.total, warnings=warnings, batch=batch)


def _check_done(answer: jobs.JobAnswer) -> None:
    if answer.problem:
        raise NotPossible(f"{short(answer.name, 100)}: {answer.problem}", "status says how it stands.")


def _check_stored(size: int) -> None:
    if size > MOST_STORED:
        amount = f"{size // 1024**2:,} MB in the database, and {MOST_STORED // 1024**2} MB is the most"
        raise TooLarge(f"it would take about {amount}", "Make its values shorter or fewer, or submit it in parts.")


def _no_lists(name: str) -> Sequence[str]:
    raise ValueError(f"@{short(name, 100)} names a file, which is for the command line: send the values themselves")
