"""What the routes that queue something share: the intake, the workflows, and work that goes on in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow, Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.web.problems import Problem
from comfyui_agent.web.threads import REQUESTS

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024**2


class Submissions:
    """One for all requests. Looking at workflows does not wait for what is being read."""

    def __init__(self, workspace: Workspace) -> None:
        self.intake = Intake(workspace, REQUESTS)
        self.drawing = asyncio.Semaphore(1)
        """Grids are drawn one after another: each takes a process and its memory."""
        self._workspace = workspace
        self._workflows = Workflows(workspace)
        self._turn = asyncio.Lock()
        self.background = BackgroundTasks("something that was begun in the page")

    async def recipes(self) -> Mapping[str, Recipe]:
        """What `workflows.yaml` says now."""
        async with self._turn:
            await self._refresh()
            return dict(self._workflows.recipes)

    async def workflows(self) -> list[tuple[str, Recipe | None, str]]:
        """Every workflow: its id, its recipe, and why it cannot be used, or an empty text."""
        async with self._turn:
            await self._refresh()
            return await REQUESTS.run(lambda: [self._look_at(each) for each in self._workflows.known()])

    def _look_at(self, workflow_id: str) -> tuple[str, Recipe | None, str]:
        try:
            return workflow_id, self._workflows.find(workflow_id).recipe, ""
        except NoWorkflow as error:
            problem = self._workspace.without_root(str(error))
            return workflow_id, self._workflows.recipes.get(workflow_id), problem

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


def check_bytes(size: int, members: str, command: str) -> None:
    """409 if a batch would take more of the database than one request may."""
    if size > MOST_BYTES:
        message = (
            f"its {members} would take about {size // 1024**2:,} MB in the database: "
            f"one request may take {MOST_BYTES // 1024**2} MB"
        )
        raise Problem(409, message, f"Make its values shorter or fewer, or queue it with {command}.")
