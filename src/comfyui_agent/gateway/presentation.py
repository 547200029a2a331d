"""History, frames and files as clients see them: under the id that they gave, and the names that they chose.

A run saves under a prefix of its own, at whatever server it is. Clients see the prefix of their workflow, counted on as
if all servers saved into one folder.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from comfyui_agent.comfy.results import Results
from comfyui_agent.comfy.shapes import optional_list, optional_object
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import SAVES_UNDER, inputs_of
from comfyui_agent.store.posted_prompts import NewFile, PostedPrompt
from comfyui_agent.wire.prompts import Json, QueueItem

FINAL = ("execution_success", "execution_error", "execution_interrupted")
FAILED = {"status_str": "error", "completed": False}
SHOWN_KINDS = ("output", "temp")
NUMBERED = re.compile(r".*_\d+_(?P<ending>.*)", re.DOTALL)
MOMENTS = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}


@dataclass(frozen=True)
class RunNames:
    """The names of one run, and how its client sees them: `paths` by the origins of files."""

    prompt_id: str
    run_id: str
    graph: Mapping[str, Any]
    paths: Mapping[str, str] = field(default_factory=dict)

    def text(self, value: Any) -> Any:
        """Any JSON, with the client's id in place of the run's."""
        return json.loads(json.dumps(value).replace(self.run_id, self.prompt_id))

    def outputs(self, shown: Any) -> Any:
        """What a node showed, with the client's names of its files."""
        if not isinstance(shown, dict):
            return shown
        return {
            key: [self._item(item) for item in listed] if isinstance(listed, list) else listed
            for key, listed in shown.items()
        }

    def _item(self, item: Any) -> Any:
        origin = origin_of(item)
        if origin is None or origin not in self.paths:
            return item
        kind, _, path = self.paths[origin].partition("/")
        subfolder, filename = posixpath.split(path)
        return {**item, "type": kind, "subfolder": subfolder, "filename": filename}

    def new_files(self, outputs: Mapping[str, Any], now: datetime) -> list[NewFile]:
        """The files of nodes that have no name yet, and what they are to be called."""
        found: dict[str, NewFile] = {}
        for node_id, item in _items(outputs):
            origin = origin_of(item)
            if origin is not None and origin not in self.paths:
                found[origin] = self._new_file(node_id, item, origin, now)
        return list(found.values())

    def _new_file(self, node_id: str, item: Json, origin: str, now: datetime) -> NewFile:
        filename = item["filename"]
        numbered = NUMBERED.fullmatch(filename)
        if not filename.startswith(self.run_id) or numbered is None:
            stem, ending = posixpath.splitext(origin)
            return NewFile(origin, stem, ending, origin)
        given = inputs_of(self.graph, node_id).get(SAVES_UNDER)
        prefix = (given if isinstance(given, str) and given else "ComfyUI").replace("\\", "/")
        for name, form in MOMENTS.items():
            prefix = prefix.replace(f"%{name}%", now.strftime(form))
        parts = [part for part in posixpath.normpath(prefix).split("/") if part not in ("", "..", ".")]
        return NewFile(origin, "/".join((item["type"], *(parts or ["ComfyUI"]))), numbered["ending"])


def origin_of(item: Any) -> str | None:
    """Where a file lies at its server: kind, folders and name. None for what is no file of a run."""
    if not isinstance(item, dict) or item.get("type") not in SHOWN_KINDS:
        return None
    filename, subfolder = item.get("filename"), item.get("subfolder", "")
    if not isinstance(filename, str) or not filename or not isinstance(subfolder, str):
        return None
    return f"{item['type']}/{posixpath.join(subfolder, filename)}"


def item_at(origin: str) -> dict[str, str]:
    """How a server is asked for a file."""
    kind, _, path = origin.partition("/")
    subfolder, filename = posixpath.split(path)
    return {"filename": filename, "subfolder": subfolder, "type": kind}


def _items(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for node_id, shown in outputs.items():
        for listed in optional_object(shown).values():
            for item in listed if isinstance(listed, list) else ():
                yield node_id, item


def names_of(prompt: PostedPrompt, paths: Mapping[str, str] | None = None) -> RunNames:
    return RunNames(prompt.prompt_id, prompt.run_id or "\0", prompt.graph, paths or {})


def queue_item(prompt: PostedPrompt) -> QueueItem:
    return QueueItem(
        prompt.number, prompt.prompt_id, dict(prompt.graph), dict(prompt.extra_data), list(prompt.targets), {}
    )


def history_entry(prompt: PostedPrompt, paths: Mapping[str, str]) -> Json | None:
    """An ended prompt as the history has it. None for one that was taken back before it ran: it leaves no trace."""
    told = prompt.entry if _agrees(prompt) else None
    if told is None:
        if prompt.failure_class == FailureClass.CANCELLED.value and not (prompt.has_run or prompt.entry):
            return None
        told = _made_up(prompt)
    names = names_of(prompt, paths)
    outputs = optional_object(told.get("outputs"))
    targets = [each for each in optional_list(told.get("targets")) if isinstance(each, str)]
    return {
        "prompt": queue_item(replace(prompt, targets=tuple(targets) or prompt.targets)).shown(),
        "outputs": names.text({node_id: names.outputs(shown) for node_id, shown in outputs.items()}),
        "status": names.text(told.get("status", {}) | ({} if prompt.status == "done" else FAILED)),
        "meta": names.text(told.get("meta", {})),
    }


def kept_results(prompt: PostedPrompt) -> dict[str, str]:
    """The kept results of a prompt by their origins."""
    kept = Results.read(optional_object(prompt.entry.get("outputs"))).kept
    return {
        f"{file.folder_type}/{posixpath.join(file.subfolder, file.filename)}": path
        for file, path in zip(kept, prompt.outputs, strict=False)
    }


def _agrees(prompt: PostedPrompt) -> bool:
    """Whether the messages in the server's history tell how the job ended."""
    status = prompt.entry.get("status")
    if not isinstance(status, dict):
        return False
    messages = [each[0] for each in optional_list(status.get("messages")) if isinstance(each, list) and each]
    ends = [event for event in messages if event in FINAL]  # the status may say success: of a cycle found while running
    succeeded = ends[-1] == "execution_success" if ends else status.get("status_str") == "success"
    return succeeded == (prompt.status == "done")


def _made_up(prompt: PostedPrompt) -> Json:
    """What a history would say of a run that no server told the end of."""
    started, ended = _milliseconds(prompt.start_time), _milliseconds(prompt.end_time)
    about = {"prompt_id": prompt.prompt_id, "timestamp": ended}
    if prompt.status == "done":
        ending: list[Any] = ["execution_success", about]
    elif prompt.failure_class == FailureClass.CANCELLED.value:
        ending = ["execution_interrupted", {**about, "node_id": "", "node_type": "", "executed": []}]
    else:
        lines = (prompt.error_trace or "E3 gave it up").splitlines(keepends=True)
        facts = {"node_id": next(iter(prompt.targets), ""), "node_type": "", "executed": [], "current_inputs": {}}
        error = {"exception_message": lines[0].strip() + "\n", "exception_type": f"E3.{prompt.failure_class}"}
        ending = ["execution_error", {**about, **facts, **error, "traceback": lines, "current_outputs": []}]
    messages = [["execution_start", {"prompt_id": prompt.prompt_id, "timestamp": started}], ending]
    is_success = prompt.status == "done"
    status = {"status_str": "success" if is_success else "error", "completed": is_success, "messages": messages}
    return {"outputs": {}, "status": status, "meta": {}}


def _milliseconds(moment: str | None) -> int:
    if moment is None:
        return 0
    return round(datetime.fromisoformat(moment).replace(tzinfo=timezone.utc).timestamp() * 1000)
