"""From a job file to a job: read, checked against its workflow, its input pictures kept. Nothing is queued here."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.config.validation import Complaint, Complaints, at_line, check, dotted, shown
from comfyui_agent.config.workflows import NotConvertedYet, NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.config.yaml_text import NotYaml, Parsed, parse
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.job_files import ReadFile
from comfyui_agent.domain.jobs import NewJob, too_large
from comfyui_agent.domain.kinds import FOLDERS, ending_of
from comfyui_agent.domain.prompts import NoSuchPlace
from comfyui_agent.domain.texts import bytes_of, is_whole, json_text, suggest
from comfyui_agent.engine.intake.choices import Choices
from comfyui_agent.engine.intake.folder_scan import (
    Refused,
    Signature,
    Unsettled,
    digest_of,
    is_job_file,
    read_whole,
    trouble_with,
)
from comfyui_agent.engine.intake.input_files import InputFiles, name_of
from comfyui_agent.engine.intake.job_file import JobFile
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.fleet.workflow_conversion import open_workflows

log = logging.getLogger(__name__)

UNKNOWN = "unknown"
TYPE_OF_FOLDER = {folder: kind for kind, folder in reversed(FOLDERS.items())}
MOST_PROBLEMS = 20
LONGEST_NAME = 230
"""In bytes; file systems end at 255, and a number or an extension may be added."""


class Admission:
    """Reads job files. Its `workflows` are as they were at their last refresh."""

    def __init__(self, workspace: Workspace, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._workspace = workspace
        self.workflows = open_workflows(workspace)
        self._keeping = InputFiles(workspace, is_leaving)
        self.choices = Choices(lambda: server_urls(workspace))

    def read(self, path: Path, signature: Signature, *, is_retry: bool = False) -> ReadFile:
        """The job of a file, or what is wrong with it. Unsettled if it is being changed."""
        source = self._workspace.job_file(path)
        try:
            data = read_whole(str(path), signature)
        except Refused as refused:
            digest = f"unread:{'-'.join(map(str, signature))}"  # stands in for it: it changes when the file does
            job = self._bad(path, source, None, digest)
            return ReadFile(job, f"{source}: {refused}", is_retry=is_retry)
        digest = digest_of(data)
        parsed: Parsed | None = None
        try:
            parsed = parse(data)
            job = self._job_in(path.name, source, digest, parsed)
            at = at_line(source, parsed.line_of(("outputs", "file_path")))
            return ReadFile(job, is_retry=is_retry, finished_as=self._finished(job), file_path_at=at)
        except NotYaml as error:
            complaints = Complaints.about(at_line(source, error.line), error.message)
        except Complaints as error:
            complaints = error
        except (OSError, Unsettled):  # no room for a picture, it is being written, no server: no fault of the file
            raise
        except Exception as error:
            log.exception("reading %s failed", source)
            complaints = Complaints.about(source, f"E3 itself failed on it: {type(error).__name__}: {error}")
        problem = "\n".join(str(each) for each in complaints.found[:MOST_PROBLEMS])
        job = self._bad(path, source, parsed, digest)
        return ReadFile(job, problem, is_retry=is_retry, finished_as=self._finished(job))

    def _finished(self, job: NewJob) -> str:
        folder = FOLDERS.get(job.job_type)
        return self._workspace.finished_job_file(folder, job.config_name) if folder else ""

    def _bad(self, path: Path, source: str, parsed: Parsed | None, digest: str) -> NewJob:
        """As much of a job as is known of a file that is wrong."""
        tree = parsed.value if parsed and isinstance(parsed.value, dict) else {}
        kind, workflow = tree.get("job_type"), tree.get("workflow_id")
        guess = TYPE_OF_FOLDER.get(path.parent.name, UNKNOWN)
        known = isinstance(kind, str) and kind.upper() in FOLDERS
        return NewJob(
            config_name=path.name,
            job_type=str(kind).upper() if known else guess,
            workflow_id=workflow if isinstance(workflow, str) and len(workflow) <= 200 else UNKNOWN,
            priority=self._workspace.settings.default_priority,
            source=source,
            digest=digest,
        )

    def job_of(self, tree: Mapping[str, Any], name: str) -> NewJob:
        """The job of a mapping with the keys of a job file. Complaints name the keys that are wrong, NotKept an input
        picture that cannot be kept now. Call it from a thread: it waits for a picture that is being written."""
        trouble = _trouble_with_name(name)
        found = [Complaint("", "name", trouble)] if trouble else []
        digest = digest_of(json_text(dict(tree), sort=True).encode("utf-8"))
        return self._job(name, None, digest, tree, lambda _: "", self._keeping.keep_patiently, found)

    def _job_in(self, name: str, source: str, digest: str, parsed: Parsed) -> NewJob:
        def where(key: tuple[Any, ...]) -> str:
            return at_line(source, parsed.line_of(key))

        if parsed.value is None:
            raise Complaints.about(source, "it is empty: write job_type: and the other keys")
        if not isinstance(parsed.value, dict):
            raise Complaints.about(source, "it is not a mapping: write lines such as job_type: T2I")
        return self._job(name, source, digest, parsed.value, where, self._keeping.keep_all, [])

    def _job(
        self,
        name: str,
        source: str | None,
        digest: str,
        tree: Mapping[str, Any],
        where: Callable[[tuple[Any, ...]], str],
        keep: Keep,
        found: list[Complaint],
    ) -> NewJob:
        """The job of a mapping; Complaints with `found` and whatever else is wrong."""
        job_file = _checked(tree, where, found)

        def complain(key: tuple[str, ...], message: str) -> None:
            found.append(Complaint(where(key), dotted(key), message))

        file_path = None
        if job_file.outputs.file_path is not None:
            try:
                file_path = self._result(job_file.outputs.file_path, is_from_afar=source is None)
            except ValueError as error:
                complain(("outputs", "file_path"), str(error))
        workflow = None
        try:
            workflow = self.workflows.find(job_file.workflow_id) if job_file.workflow_id else None
        except NoWorkflow as error:
            if isinstance(error, NotConvertedYet) and source is not None:
                raise  # the file waits
            complain(("workflow_id",), str(error))
        values: dict[str, Any] = {}
        pictures: dict[str, str] = {}
        metadata = job_file.metadata
        if workflow is not None:
            values, pictures, drawn = self._bind(workflow, job_file, keep, complain)
            metadata = {**(metadata or {}), **drawn} if drawn else metadata
        problem = too_large(values or job_file.inputs, metadata, self._workspace.settings.job_limit_kb)
        if problem:
            is_metadata = job_file.metadata is not None and bytes_of(job_file.metadata) > bytes_of(job_file.inputs)
            complain(("metadata",) if is_metadata else ("inputs",), problem)
        if found:
            raise Complaints(found)
        return NewJob(
            config_name=name,
            job_type=job_file.job_type,
            workflow_id=job_file.workflow_id,
            template=workflow.template if workflow else None,
            inputs=values,
            priority=self._workspace.settings.default_priority if job_file.priority is None else job_file.priority,
            retry_limit=job_file.retry_limit,
            timeout_seconds=job_file.timeout_seconds,
            file_path=file_path,
            output_node=job_file.outputs.node,
            metadata=metadata,
            source=source,
            digest=digest,
            pictures=pictures,
            reuse=job_file.reuse or (workflow.recipe.reuse if workflow else None),
        )

    def _bind(
        self, workflow: Workflow, job_file: JobFile, keep: Keep, complain: Callable[[tuple[str, ...], str], None]
    ) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
        """The values of the inputs by place, the input pictures that were kept for them, and what was drawn."""
        node = job_file.outputs.node
        if node is not None and node not in workflow.graph:
            hint = suggest(node[:60], workflow.graph)
            complain(("outputs", "node"), f"the workflow has no node {shown(node)}; {hint}")
        record: dict[str, Any] = {}
        try:
            values, drawn = workflow.bound(job_file.inputs)
            record = drawn.as_json()
        except Unbindable as error:
            values = error.bound
            for input_name, message in error.problems.items():
                complain(("inputs", input_name), message)
        for place, message in self.choices.problems(workflow, values).items():
            complain(("inputs", _input_at(place, workflow, job_file.inputs)), message)
        try:
            return values, keep(workflow, values), record
        except Unbindable as error:
            for input_name, message in error.problems.items():
                complain(("inputs", input_name), message)
            return values, {}, record

    def _result(self, text: str, *, is_from_afar: bool) -> str:
        """Where the result goes, as it is recorded. ValueError if that cannot be: requests over HTTP have the folder of
        results, a job file the workspace."""
        name = os.path.basename(text)  # noqa: PTH119 - a text
        if name in ("", ".", "..") or name.endswith("\\") or "\0" in text or not is_whole(text):
            raise ValueError(f"{shown(text)} does not name a file")
        if len(os.fsencode(name)) > LONGEST_NAME:
            raise ValueError(f"{shown(text)} is too long for the name of a file")
        try:
            path = self._workspace.inside(text)
            if path.is_dir():
                raise ValueError(f"{shown(text)} is a folder: name a file in it")
        except OSError as error:
            raise ValueError(f"{shown(text)} cannot be used: {error.strerror}") from None
        self._workspace.check_result(path)
        finished = self._workspace.settings.paths.jobs_finished
        if is_from_afar and not path.is_relative_to(self._workspace.folder(finished)):
            raise ValueError(f"{shown(text)} is not in {finished}, where results go: write {finished}/image/knight.png")
        ending_of(path.name)
        return self._workspace.shown(path)


def _input_at(place: str, workflow: Workflow, inputs: Mapping[str, Any]) -> str:
    """What the file calls the input that goes to a place."""
    for name in inputs:
        with contextlib.suppress(NoSuchPlace):
            if place in (workflow.places.find(name, workflow.recipe) or workflow.places.placeholders[name]):
                return name
    return name_of(workflow, place)


def _checked(tree: Mapping[str, Any], where: Callable[[tuple[Any, ...]], str], found: list[Complaint]) -> JobFile:
    """What a job file says. What is wrong with its keys is added to `found`; the other keys can still be checked."""
    given = {key: value for key, value in tree.items() if value is not None}
    try:
        return check(JobFile, given, where)
    except Complaints as error:
        found += error.found
    wrong = {complaint.key.partition(".")[0] for complaint in found}
    right = {key: value for key, value in given.items() if key in JobFile.model_fields and key not in wrong}
    try:
        rest = JobFile.model_validate({"job_type": "T2I", "workflow_id": UNKNOWN} | right)
    except ValidationError:
        raise Complaints(found) from None
    return rest.model_copy(update={} if "workflow_id" in right else {"workflow_id": ""})


def _trouble_with_name(name: str) -> str:
    """Why a job that is in no file cannot be called so; empty if it can."""
    stem = name.rpartition(".")[0] if is_job_file(name) else name
    if not stem.strip() or name.startswith(".") or any(slash in name for slash in "/\\"):
        return f"{shown(name)} cannot name a file: write a name such as knight"
    if trouble_with(name):
        return f"{shown(name)} holds control characters or half characters: leave them out"
    if len(name.encode("utf-8")) > LONGEST_NAME:
        return f"{shown(name)} is too long: write at most {LONGEST_NAME} bytes"
    if name.isascii() and name.isdigit():
        return f"{shown(name)} would be taken for the number of a job: write a letter with it"
    return ""
