"""Workflows in UI format, converted with what the servers of a workspace say of their nodes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.converted_workflows import EDITOR_FORMAT
from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.texts import listed
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.workflows.conversion import convert
from comfyui_agent.workflows.errors import BadWorkflow, NoDefinitions, WorkflowError
from comfyui_agent.workflows.prompt_texts import Choose
from comfyui_agent.workflows.workflow_file import EXPORT

PATIENCE = 60.0
PATIENT = Limits(connect_seconds=2.0, retries=0)


def open_workflows(workspace: Workspace) -> Workflows:
    """The workflows of a workspace; those in UI format are converted by its servers."""
    return Workflows(workspace, partial(convert_with, workspace))


def convert_with(workspace: Workspace, document: Mapping[str, Any], choose: Choose) -> Graph:
    """A workflow in UI format as the page of the first server that has all of its nodes sends it. WorkflowError if
    there is none, NoDefinitions if no server answers."""
    outcome: list[Graph | WorkflowError] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_convert(document, choose, server_urls(workspace))))
        except WorkflowError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="e3-convert", daemon=True)  # whoever calls may have a loop
    thread.start()
    thread.join(PATIENCE)
    found = outcome[0] if outcome else BadWorkflow(f"it was not converted within {PATIENCE:.0f} s")
    if isinstance(found, WorkflowError):
        raise found
    return found


async def _convert(document: Mapping[str, Any], choose: Choose, urls: Sequence[str]) -> Graph:
    from comfyui_agent.comfy.client import ComfyClient  # for those who need it
    from comfyui_agent.comfy.errors import ComfyError

    async def version_of(url: str) -> str | None:
        with contextlib.suppress(ComfyError, ValueError):  # silent, or no address at all
            async with ComfyClient(url, limits=PATIENT, listen=False) as client:
                return (await client.system_stats()).version
        return None

    refused: list[WorkflowError] = []
    for url, version in zip(urls, await asyncio.gather(*map(version_of, urls)), strict=True):
        if version is None:
            continue
        try:
            async with ComfyClient(url, limits=PATIENT, listen=False) as client:
                definitions = await client.definitions.all()
            if graph := convert(document, definitions, version, choose):
                return graph
            raise BadWorkflow("no node of it is to be run")
        except ComfyError:
            continue
        except WorkflowError as error:
            refused.append(error)
    message = f"{EDITOR_FORMAT}, and none answers at {listed(urls)}: start ComfyUI, or {EXPORT}"
    raise refused[0] if refused else NoDefinitions(message)
