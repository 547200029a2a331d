"""Workflows in UI format, converted with what the servers of a workspace say of their nodes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.converted_workflows import EDITOR_FORMAT
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import listed
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.workflows.conversion import Dialect, convert
from comfyui_agent.workflows.errors import BadWorkflow, NoDefinitions, WorkflowError
from comfyui_agent.workflows.prompt_texts import Choose
from comfyui_agent.workflows.workflow_file import EXPORT

PATIENCE = 60.0
PATIENT = Limits(connect_seconds=2.0, retries=0)


def open_workflows(workspace: Workspace) -> Workflows:
    """The workflows of a workspace; those in UI format are converted by its servers."""
    return Workflows(workspace, FleetConverter(workspace))


class FleetConverter:
    """Converts a workflow as the first server that has all of its nodes does."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def __call__(self, document: Mapping[str, Any], choose: Choose, /) -> Graph:
        outcome: list[Graph | WorkflowError] = []

        def work() -> None:
            try:
                outcome.append(asyncio.run(self._convert(document, choose)))
            except WorkflowError as error:
                outcome.append(error)

        thread = threading.Thread(target=work, name="e3-convert", daemon=True)  # whoever calls may have a loop
        thread.start()
        thread.join(PATIENCE)
        found = next(iter(outcome), None)
        if isinstance(found, Mapping):
            return found
        raise found or BadWorkflow(f"it was not converted within {PATIENCE:.0f} s")

    async def _convert(self, document: Mapping[str, Any], choose: Choose) -> Graph:
        from comfyui_agent.comfy.client import ComfyClient  # for those who need it
        from comfyui_agent.comfy.errors import ComfyError

        urls, refused = server_urls(self._workspace), list[WorkflowError]()
        for url in urls:
            try:
                async with ComfyClient(url, limits=PATIENT, listen=False) as client:
                    dialect = Dialect.of_version((await client.system_stats()).version)
                    definitions = await client.definitions.all()
            except (ComfyError, ValueError):  # silent, or no address at all
                continue
            try:
                graph = convert(document, definitions, dialect, choose)
                if graph:
                    return graph
                raise BadWorkflow("no node of it is to be run")
            except WorkflowError as error:
                refused.append(error)
        raise (
            refused[0]
            if refused
            else NoDefinitions(f"{EDITOR_FORMAT}, and none answers at {listed(urls)}: start ComfyUI, or {EXPORT}")
        )
