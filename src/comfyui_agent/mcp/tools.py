"""The tools. Each calls a use case as the command line and the page do, for the one who asks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

from pydantic import Field

from comfyui_agent.access.gate import check_role
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.config.workflows import NoWorkflow, describe, usual_classes
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted, listed
from comfyui_agent.domain.tokens import Role
from comfyui_agent.engine.service import take_back
from comfyui_agent.mcp import answers
from comfyui_agent.mcp.results import brief, result_of
from comfyui_agent.mcp.standings import (
    again,
    find_thing,
    has_ended,
    line_of,
    name_of,
    short,
    standing_of,
    state_of,
    workspace_standing,
)
from comfyui_agent.mcp.submissions import MOST_CHOICES, MOST_PAGES, Inputs, Submissions, Text, Thing
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import batches, books, jobs, servers
from comfyui_agent.usecases.checkup import check_workspace
from comfyui_agent.usecases.errors import NotAllowed, NotFound, NotPossible
from comfyui_agent.usecases.job_files import retry_jobs

LONGEST_WAIT, PAUSE, LOOK_AGAIN, MOST_WAITING = 50.0, 0.25, 5.0, 64
MOST_LISTED = 100

PageNumbers = Annotated[list[int], Field(min_length=1, max_length=MOST_PAGES)] | None
Number = Annotated[int, Field(ge=1, le=1_000_000)] | None
Size = Annotated[int, Field(ge=64, le=1536)]


class Tools(Submissions):
    """What one caller can do. The docstring of each tool tells a model what it is for; `texts.json` has the rest."""

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
        self, id: Thing, pages: PageNumbers = None, inputs: Inputs = None, new_seed: bool = False, confirm: bool = False
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


def _check_done(answer: jobs.JobAnswer) -> None:
    if answer.problem:
        raise NotPossible(f"{short(answer.name, 100)}: {answer.problem}", "status says how it stands.")
