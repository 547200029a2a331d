"""What the routes that queue something share: intake, workflows, prompts of jobs, and work in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from comfyui_agent.access.problem import TOO_MUCH, Problem
from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Recipe
from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.sent_prompt import Sending, describe
from comfyui_agent.fleet.workflow_conversion import open_workflows
from comfyui_agent.pools import FILES, REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.web.api.models import WorkflowShown

MOST_BYTES = 128 * 1024**2


class Submissions:
    """One for all requests. Looking at workflows does not wait for what is being read."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self.intake = Intake(workspace, REQUESTS)
        self.drawing = asyncio.Semaphore(1)
        """Grids are drawn one after another: each takes a process and its memory."""
        self._workspace = workspace
        self._workflows = open_workflows(workspace)
        self._turn = asyncio.Lock()
        self.background = BackgroundTasks("something that was begun in the page")

    async def recipes(self) -> Mapping[str, Recipe]:
        """What `workflows.yaml` says now."""
        async with self._turn:
            await self._refresh()
            return dict(self._workflows.recipes)

    async def workflows(self) -> list[WorkflowShown]:
        """Every workflow, also those that cannot be used."""
        async with self._turn:
            await self._refresh()
            return await REQUESTS.run(lambda: [self._look_at(each) for each in self._workflows.known()])

    def _look_at(self, workflow_id: str) -> WorkflowShown:
        try:
            recipe, problem = self._workflows.find(workflow_id).recipe, None
        except NoWorkflow as error:
            problem = self._workspace.without_root(str(error))
            recipe = self._workflows.recipes.get(workflow_id) or Recipe(workflow_id, "")
        return WorkflowShown(
            workflow_id=workflow_id,
            description=recipe.description,
            required_inputs=list(recipe.required_inputs),
            defaults=dict(recipe.defaults),
            problem=problem,
        )

    async def workflow(self, workflow_id: str) -> Workflow:
        """A workflow by its id; 404 if it cannot be used."""
        async with self._turn:
            await self._refresh()
            try:
                return await REQUESTS.run(self._workflows.find, workflow_id)
            except NoWorkflow as error:
                message = f"workflow {self._workspace.without_root(str(error))}"
                raise Problem(404, message, "See /api/v1/workflows.") from None

    async def _refresh(self) -> None:
        try:
            await REQUESTS.run(self._workflows.refresh)
        except Complaints as error:
            message = self._workspace.without_root(str(error))
            raise Problem(409, message, "Mend the file workflows.yaml of the workspace.") from None

    async def sending(self, job: Job, attempts: Sequence[Attempt]) -> Sending:
        """The prompt that was sent for a job, or that would be."""
        batch = await self._store.run(ops.find_batch, job.batch_id) if job.batch_id else None
        try:
            recipe = (await self.recipes()).get(job.workflow_id)
        except Problem:
            recipe = None
        names = recipe.names if recipe else {}
        return describe(job, effective_inputs(job, batch), attempts, await self._graph(job), names)

    async def _graph(self, job: Job) -> Graph:
        """The template of a job, else the current one of its workflow."""
        template = await self._store.run(ops.find_template, job.template_hash) if job.template_hash else None
        if template is not None:
            return await FILES.run(template.graph)
        try:
            return (await self.workflow(job.workflow_id)).graph
        except Problem:
            return {}


def check_bytes(size: int, members: str, command: str) -> None:
    """409 if a batch would take more of the database than one request may."""
    if size > MOST_BYTES:
        message = (
            f"its {members} would take about {size // 1024**2:,} MB in the database: "
            f"one request may take {MOST_BYTES // 1024**2} MB"
        )
        raise Problem(409, message, f"Make its values shorter or fewer, or queue it with {command}.", kind=TOO_MUCH)
