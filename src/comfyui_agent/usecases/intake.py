"""Reading what is handed in: job files, requests and books."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.needs import Offered
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.choices import checking
from comfyui_agent.engine.intake.input_files import InputFiles, NotKept
from comfyui_agent.pools import INTAKE, Pool
from comfyui_agent.usecases.errors import Invalid, NotPossible


class Intake:
    """Reads one thing at a time, and remembers workflows, input pictures and what servers offer."""

    def __init__(self, workspace: Workspace, threads: Pool = INTAKE) -> None:
        self.workspace = workspace
        self._admission = Admission(workspace)
        self.threads = threads
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Admission]:
        """A turn to read, with the workflows as they are now.

        Invalid if `workflows.yaml` or what is read is wrong, NotPossible if its pictures cannot be kept.
        """
        async with self._turn:
            try:
                await self.threads.run(self._admission.workflows.refresh)
            except Complaints as error:
                raise Invalid(str(error), "Mend the file workflows.yaml of the workspace.") from None
            try:
                yield self._admission
            except Complaints as error:
                raise Invalid.of(error) from None
            except NotKept as error:
                raise NotPossible(str(error)) from None

    @property
    def keep(self) -> Keep:
        """Keeps input pictures, and refuses choices that no server offers."""
        return checking(InputFiles(self.workspace).keep_patiently, self._admission.choices)

    async def offers(self, classes: Collection[str]) -> dict[str, Offered]:
        """What each server that answers in time offers of these node classes, by its address."""
        return await self.threads.run(self._admission.choices.offers, classes)
