"""ComfyUI, as far as this pack uses it: the one module that knows its insides. Runs on Python 3.9.

Those differ between versions. What a version does not have is said once, and whoever needs it gets MissingPiece.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.domain.prompts import class_of, natural_order
from comfyui_agent.nodes.core.batch_state import Image

LOG = logging.getLogger("e3_iterator")
LONGEST_REASON = 300
FIVE = 5
LATELY = 20
FAILED_CHECK = "exception_during_validation"
CHECK_SECONDS = 60


class MissingPiece(Exception):
    """Something that this version of ComfyUI does not have."""


@dataclass(frozen=True)
class Standing:
    """What is in ComfyUI's queue at one moment: prompt id → graph."""

    running: Mapping[str, Any] = field(default_factory=dict)
    queued: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptCheck:
    """What ComfyUI says about a prompt before it runs: which nodes would, or why none."""

    outputs: Sequence[str] = ()
    problem: str = ""
    remark: str = ""
    """Why some nodes will not run, although others will."""


@dataclass(frozen=True)
class Ending:
    """How a prompt ended: what it made, or why it did not."""

    images: Sequence[Image] = ()
    problem: str = ""


class ComfyUI:
    """The ComfyUI that this process is. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._fields = 0
        """So many has an item of the queue that ComfyUI made itself; 0 as long as none was seen."""

    def check(self) -> None:
        """MissingPiece if nothing can be queued here. Without the other pieces less is known of a batch."""
        self._piece("server", "PromptServer.instance.prompt_queue.put")

    def next_number(self) -> float:
        """The number that the next prompt gets."""
        return float(self._piece("server", "PromptServer.instance.number"))

    def standing(self) -> Standing | None:
        """What runs and what waits, seen at once; None if this version does not tell."""
        try:
            running, queued = self._piece("server", "PromptServer.instance.prompt_queue.get_current_queue_volatile")()
        except MissingPiece:
            return None
        for item in [*running, *queued][:1]:
            self._fields = self._fields or len(item)
        return Standing({item[1]: item[2] for item in running}, {item[1]: item[2] for item in queued})

    def ending(self, prompt_id: str) -> Ending | None:
        """How a prompt ended; None if its history is not there."""
        get_history = self._piece("server", "PromptServer.instance.prompt_queue.get_history")
        try:
            found = get_history(prompt_id=prompt_id, map_function=_ending_of)
            return next(iter(found.values()), None)
        except TypeError:  # older versions copy instead
            found = get_history(prompt_id=prompt_id)
            return next((_ending_of(entry) for entry in found.values()), None)

    def find_ended(self, is_it: Callable[[Any], bool], prompt_id: str) -> str | None:
        """The id of a prompt that has ended, by its graph: the one with this id, or one that ended lately."""
        get_history = self._piece("server", "PromptServer.instance.prompt_queue.get_history")
        for found in (get_history(prompt_id=prompt_id), get_history(max_items=LATELY)):
            for entry in found.values():
                if is_it(entry["prompt"][2]):
                    return str(entry["prompt"][1])
        return None

    def validate(self, prompt_id: str, prompt: dict[str, Any], targets: Any) -> PromptCheck:
        """What ComfyUI's own check says. It puts values into the type that their place wants, in the prompt itself."""
        try:
            validate_prompt = self._piece("execution", "validate_prompt")
        except MissingPiece:
            return PromptCheck([node_id for node_id in prompt if self._is_output(class_of(prompt, node_id))])
        count = len(inspect.signature(validate_prompt).parameters)
        arguments = [prompt] if count == 1 else [prompt_id, prompt, targets][:count]
        said = validate_prompt(*arguments)
        if inspect.isawaitable(said):
            said = self._awaited(lambda: validate_prompt(*arguments), said)
        is_valid, error, outputs, node_errors = said[:4]
        if not is_valid:
            return PromptCheck(problem=_refusal(error, node_errors) or "refused")
        return PromptCheck(list(outputs), remark=_refusal(None, node_errors))

    def _awaited(self, again: Callable[[], Any], check: Any) -> Any:
        """What a check says: on a loop of this thread, so that ComfyUI goes on; on ComfyUI's if a node needs that."""
        try:
            said = asyncio.run(_result_of(check))
            if FAILED_CHECK not in str(said[3]):
                return said
        except Exception:
            LOG.debug("A check failed on a loop of its own", exc_info=True)
        loop = self._piece("server", "PromptServer.instance.loop")
        return asyncio.run_coroutine_threadsafe(_result_of(again()), loop).result(CHECK_SECONDS)

    def put(self, number: float, prompt_id: str, document: Mapping[str, Any], outputs: Sequence[str]) -> None:
        """Queue a prompt that was validated, in the shape that this version's queue takes."""
        extra_data = dict(document.get("extra_data") or {})
        if "client_id" in document:
            extra_data["client_id"] = document["client_id"]
        extra_data["create_time"] = int(time.time() * 1000)
        queue = self._piece("server", "PromptServer.instance.prompt_queue")
        item = (number, prompt_id, document["prompt"], extra_data, list(outputs))
        if not self._keeps_secrets_apart(queue):
            queue.put(item)
            return
        names = getattr(self._module("execution"), "SENSITIVE_EXTRA_DATA_KEYS", ())
        queue.put((*item, {name: extra_data.pop(name) for name in names if name in extra_data}))

    def _keeps_secrets_apart(self, queue: Any) -> bool:
        """Whether an item has a sixth field, since 0.3.68. With it the queue got a way to take it out again."""
        if self._fields:
            return self._fields > FIVE
        task_done = getattr(queue, "task_done", None)
        if task_done is None:
            return hasattr(self._module("execution"), "SENSITIVE_EXTRA_DATA_KEYS")
        return "process_item" in inspect.signature(task_done).parameters

    def _is_output(self, class_type: str) -> bool:
        known = self._piece("nodes", "NODE_CLASS_MAPPINGS").get(class_type)
        return bool(getattr(known, "OUTPUT_NODE", False))

    def delete(self, prompt_id: str) -> bool:
        """Take a prompt out of the queue; False if it was not in it any more."""
        delete = self._piece("server", "PromptServer.instance.prompt_queue.delete_queue_item")
        return bool(delete(lambda item: item[1] == prompt_id))

    def interrupt(self, prompt_ids: Collection[str]) -> list[str]:
        """Interrupt what runs, if it is one of these: those that were told to stop. No other prompt is touched."""
        interrupt = self._piece("nodes", "interrupt_processing")
        queue = self._piece("server", "PromptServer.instance.prompt_queue")
        # As long as it is held no prompt can end and no other begin; a late interrupt is forgotten when one begins.
        with getattr(queue, "mutex", None) or nullcontext():
            standing = self.standing() or Standing()
            running = [prompt_id for prompt_id in standing.running if prompt_id in prompt_ids]
            if running:
                interrupt()
            return running

    def executing(self) -> str | None:
        """The prompt in which this thread runs a node; None if this version does not tell."""
        with suppress(Exception):
            context = importlib.import_module("comfy_execution.utils").get_executing_context()
            return str(context.prompt_id) if context is not None else None
        return None

    def send(self, event: str, data: Mapping[str, Any], client_id: str | None = None) -> None:
        """Tell one page, or all. Nobody need be there to hear it."""
        with suppress(Exception):
            self._piece("server", "PromptServer.instance.send_sync")(event, dict(data), client_id)

    def declares(self, class_type: str, input_name: str) -> bool:
        """Whether a node class has such an input, as far as it says."""
        with suppress(Exception):
            declared = self._piece("nodes", "NODE_CLASS_MAPPINGS")[class_type].INPUT_TYPES()
            return any(input_name in declared.get(part, {}) for part in ("required", "optional"))
        return False

    def input_folder(self) -> Path | None:
        """Where files of values are read from; None outside of ComfyUI."""
        try:
            return Path(self._piece("folder_paths", "get_input_directory")())
        except MissingPiece:
            return None

    def file_of(self, image: Image) -> Path | None:
        """The file that a reference means; None if it means none."""
        with suppress(Exception):
            kind = {"output": "get_output_directory", "temp": "get_temp_directory"}[image["type"]]
            folder = Path(self._piece("folder_paths", kind)()).resolve()
            path = (folder / image["subfolder"] / image["filename"]).resolve()
            return path if folder in path.parents else None
        return None

    def save(self, picture: Any, prefix: str, kind: str, texts: Mapping[str, Any], number: int = 0) -> Image:
        """Write a Pillow picture as ComfyUI's own node does, whole or not at all; `texts` go into the file.

        `number` is which of the pictures of its prompt it is.
        """
        from PIL.PngImagePlugin import PngInfo

        folder = "get_output_directory" if kind == "output" else "get_temp_directory"
        where = self._piece("folder_paths", folder)()
        prefix = prefix.replace("%batch_num%", str(number))
        place = self._piece("folder_paths", "get_save_image_path")(prefix, where, *picture.size)
        full_folder, name, counter, subfolder, _ = place
        metadata = PngInfo()
        for key, value in texts.items() if self._writes_metadata() else ():
            metadata.add_text(key, json.dumps(value))
        path = Path(full_folder) / f"{name}_{counter:05}_.png"
        part = path.with_name(path.name + ".part")
        try:
            picture.save(part, format="PNG", pnginfo=metadata, compress_level=4)
            part.replace(path)
        finally:
            with suppress(OSError):
                part.unlink()
        return {"filename": path.name, "subfolder": subfolder, "type": kind}

    def _writes_metadata(self) -> bool:
        with suppress(MissingPiece):
            return not self._piece("comfy.cli_args", "args.disable_metadata")
        return True

    def _module(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise self._missing(name) from error

    def _piece(self, module: str, path: str) -> Any:
        found = self._module(module)
        for name in path.split("."):
            found = getattr(found, name, None)
            if found is None:
                raise self._missing(f"{module}.{path}")
        return found

    def _missing(self, piece: str) -> MissingPiece:
        with self._lock:
            is_news = piece not in self._said
            self._said.add(piece)
        if is_news:
            LOG.warning("This ComfyUI has no %s: what needs it is left out. A newer pack may know better.", piece)
        return MissingPiece(f"this ComfyUI has no {piece}")


def pictures_of(images: Any) -> Iterable[Any]:
    """ComfyUI's pictures as Pillow's, one after the other."""
    from PIL import Image as Pillow

    for image in images:
        if isinstance(image, Pillow.Image):
            yield image
            continue
        import numpy  # type: ignore[import-not-found,unused-ignore]

        values = numpy.clip(255.0 * image.cpu().numpy(), 0, 255).astype(numpy.uint8)
        yield Pillow.fromarray(values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values)


async def _result_of(awaitable: Any) -> Any:
    return await awaitable


def _ending_of(entry: Any) -> Ending:
    """What an entry of the history says."""
    status = entry.get("status") or {}
    if status.get("status_str", "success") != "error" and status.get("completed", True):
        return Ending(images=_images_of(entry.get("outputs") or {}))
    for event, data in reversed(status.get("messages") or []):
        if event == "execution_interrupted":
            return Ending(problem="interrupted")
        if event == "execution_error":
            where = f"{data.get('node_type', 'a node')} (node {data.get('node_id', '?')})"
            return Ending(problem=one_line(f"{where}: {data.get('exception_message') or 'failed'}"))
    return Ending(problem="failed, and ComfyUI does not say why")


def _images_of(outputs: Mapping[str, Any]) -> list[Image]:
    """Those of type output; others only if there is none."""
    listed = [image for node_id in natural_order(outputs) for image in outputs[node_id].get("images") or ()]
    found: list[Image] = [
        {key: str(image.get(key, "")) for key in ("filename", "subfolder", "type")}
        for image in listed
        if isinstance(image, Mapping) and image.get("filename")
    ]
    return [image for image in found if image["type"] == "output"] or found


def _refusal(error: Any, node_errors: Any) -> str:
    """Why a prompt was refused: what its nodes say, else what is said of the whole."""
    said: list[str] = []
    for node_id, problems in (node_errors or {}).items():
        said += [
            f"{problems.get('class_type')} (node {node_id}): {each.get('message')}: {each.get('details')}"
            for each in problems.get("errors", ())
        ]
    if not said and isinstance(error, Mapping):
        said = [f"{error.get('message', '')} {error.get('details', '')}"]
    return one_line("; ".join(said) or str(error or ""))


def one_line(text: str) -> str:
    """A text from outside, short enough for a log and a cell."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"
