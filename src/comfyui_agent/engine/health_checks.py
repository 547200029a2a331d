"""Whether everything is there that a night of work needs: folders, workflows, servers, models, room on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.definitions import choices_of
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import fitting
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.node_classes import MODEL_ENDINGS
from comfyui_agent.domain.prompts import NoSuchPlace, class_of
from comfyui_agent.domain.server_states import STUCK_REMEDY, StuckPrompt
from comfyui_agent.engine.intake.folder_scan import look
from comfyui_agent.engine.server_reports import look_at
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.port import BadLocation, FilesAway
from comfyui_agent.fleet.workflow_conversion import open_workflows
from comfyui_agent.store.integrity import Finding

PATIENCE = Limits(connect_seconds=3.0, answer_seconds=15.0, retries=0)
SCARCE, LITTLE = 200 * 1024**2, 2 * 1024**3
MOST_LISTED = 5


def look_at_folders(workspace: Workspace) -> list[Finding]:
    finished = workspace.root / workspace.settings.paths.jobs_finished
    return [_folder("job files", workspace.processing), _folder("result folders", finished)]


def _folder(name: str, folder: Path) -> Finding:
    if not folder.is_dir():
        return Finding(name, False, f"there is no folder {folder}: e3 init makes it")
    inner = [each for each in folder.iterdir() if each.is_dir()] if os.access(folder, os.R_OK) else []
    for place in (folder, *inner):
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            return Finding(name, False, f"{place} cannot be used: give yourself the right to write there")
    return Finding(name, True, str(folder))


def look_at_files(workspace: Workspace) -> list[Finding]:
    """Whether results and input pictures can be kept where the settings say, if that is not in the workspace."""
    found = []
    for name, location in workspace.elsewhere.items():
        try:
            open_files(location).check()
            found.append(Finding(name, True, location.url or str(location.folder)))
        except BadLocation as error:
            found.append(Finding(name, False, str(error)))
        except FilesAway as error:
            found.append(Finding(name, False, f"{error.strerror}. What needs it waits"))
    return found


def look_at_disk(workspace: Workspace) -> Finding:
    disk = shutil.disk_usage(next(each for each in (workspace.results.folder, workspace.root) if each.is_dir()))
    free, keep = disk.free, workspace.settings.paths.keep_free_gb
    amount = f"{free / 1024**3:.1f} GB free"
    if free < min(keep * 1024**3, disk.total // 2):
        return Finding("disk", False, f"{amount}, and results leave {keep:g} GB (paths.keep_free_gb): make room")
    if free < SCARCE:
        return Finding("disk", False, f"{amount}: E3 waits when there is no room; make some")
    return Finding("disk", True, amount + (", which is not much for a night" if free < LITTLE else ""))


def look_at_job_files(workspace: Workspace, reasons: dict[str, str]) -> list[Finding]:
    """Files that were rejected, and what lies there and cannot be used."""
    sight = look(workspace.processing)
    lines = []
    for path in sorted(sight.rejected)[:MOST_LISTED]:
        shown = workspace.job_file(Path(path))
        lines.append(f"{shown}: {reasons.get(shown, 'why is not known any more')}")
    if len(sight.rejected) > len(lines):
        lines.append(f"and {len(sight.rejected) - len(lines)} more")
    found = [Finding("rejected files", not lines, "; ".join(lines) or "none")]
    return found + [Finding("job file", False, f"{path!r}: {trouble}") for path, trouble in sight.oddities.items()]


def look_at_workflows(workspace: Workspace) -> tuple[list[Finding], list[Workflow]]:
    """Every workflow that `workflows.yaml` names, and whether its inputs have places."""
    workflows = open_workflows(workspace)
    try:
        workflows.refresh()
    except Complaints as error:
        return [Finding("workflows", False, str(each)) for each in error.found], []
    found, usable = [], []
    for workflow_id in workflows.recipes:
        try:
            workflow = workflows.find(workflow_id)
            for name in (*workflow.recipe.inputs, *workflow.recipe.required_inputs):
                workflow.places.find(name, workflow.recipe)
            _bind_defaults(workflow)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others are looked at
            found.append(Finding(f"workflow {workflow_id}", False, str(error)))
        else:
            found.append(Finding(f"workflow {workflow_id}", True, workflow.recipe.template_path))
            usable.append(workflow)
    if not found:
        folder = workspace.settings.paths.workflows
        message = f"{workspace.recipes} names none: a job's workflow_id is looked up in {folder}/"
        found.append(Finding("workflows", True, message))
    return found, usable


def _bind_defaults(workflow: Workflow) -> dict[str, Any]:
    """The defaults by place, as far as they are no placeholders; NoWorkflow if one of them has no place."""
    recipe = workflow.recipe
    found: dict[str, Any] = {}
    for name, value in recipe.defaults.items():
        try:
            for where in workflow.places.find(name, recipe):
                found[where] = fitting(workflow.places.all[where], value)
        except (NoSuchPlace, ValueError) as error:
            raise NoWorkflow(f"defaults.{name}: {error}") from None
    return found


async def look_at_servers(
    urls: tuple[str, ...], workflows: list[Workflow], stuck: Sequence[StuckPrompt] = ()
) -> AsyncIterator[Finding]:
    """Whether each server answers, has no stuck prompt, and has the nodes and models of the workflows."""
    for url in urls:
        report = (await look_at(url)).judged({}, stuck)
        name = f"server {report.url}"
        if report.stats is None:
            yield Finding(name, False, f"{report.error} Start it, or set comfyui.api_base_url")
            continue
        stuck_since = f", stuck since {report.stuck_since[:19]} UTC: {STUCK_REMEDY}" if report.stuck_since else ""
        yield Finding(name, not stuck_since, f"ComfyUI {report.stats.version}{stuck_since}")
        async with ComfyClient(url, limits=PATIENCE, listen=False) as comfy:
            for workflow in workflows:
                place = f"{workflow.recipe.workflow_id} at {name}"
                try:
                    lacks = await _lacks(comfy, workflow)
                except ComfyError as error:
                    yield Finding(place, False, error.message)
                    continue
                missing = f"{FailureClass.MISSING}: {'; '.join(lacks[:MOST_LISTED])}"
                yield Finding(place, not lacks, missing if lacks else "nodes and models are there")


async def _lacks(comfy: ComfyClient, workflow: Workflow) -> list[str]:
    lacks = []
    definitions = {}
    for class_type in dict.fromkeys(class_of(workflow.graph, node_id) for node_id in workflow.graph):
        definitions[class_type] = await comfy.definitions.of(class_type)
        if definitions[class_type] is None:
            lacks.append(f"it has no node {class_type}")
    values = {where: place.value for where, place in workflow.places.all.items()} | _bind_defaults(workflow)
    for where, value in values.items():
        place = workflow.places.all[where]
        choices = choices_of(definitions.get(place.class_type), place.name)
        if choices is None or not isinstance(value, str):
            continue
        if value == AUTO and AUTO not in choices:
            if not choices:
                lacks.append(f"it has no model for {where} ({place.class_type}): install one")
        elif value.lower().endswith(MODEL_ENDINGS) and value not in choices:
            lacks.append(f"it has no model {value} for {where}")
    return lacks
