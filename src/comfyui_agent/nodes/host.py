"""The one module that uses ComfyUI's internals. Runs on Python 3.9. A piece that a version lacks is logged once, and
using it raises MissingPiece."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.domain.prompts import natural_order
from comfyui_agent.domain.texts import whole
from comfyui_agent.nodes.core.batch_state import LOG, ImageFile

LONGEST_REASON = 300
RECENT_ENTRIES = 20
FAILED_CHECK = "exception_during_validation"
CHECK_SECONDS = 60


class MissingPiece(Exception):
    """This version of ComfyUI lacks something that is needed."""


@dataclass(frozen=True)
class QueueSnapshot:
    """ComfyUI's queue at one moment: prompt id → graph."""

    running: Mapping[str, Any] = field(default_factory=dict)
    queued: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptCheck:
    """The result of ComfyUI's validation: the output nodes that run, or the problem."""

    outputs: Sequence[str] = ()
    problem: str = ""
    remark: str = ""
    """Why some output nodes do not run although others do."""


@dataclass(frozen=True)
class Ending:
    images: Sequence[ImageFile] = ()
    problem: str = ""


class ComfyUI:
    """The ComfyUI in this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def check(self) -> None:
        """Raise MissingPiece if this version lacks something that a batch needs."""
        for name in ("put", "get_current_queue", "get_history", "delete_queue_item"):
            self._piece("server", f"PromptServer.instance.prompt_queue.{name}")
        self._piece("execution", "validate_prompt")
        self._piece("nodes", "interrupt_processing")

    @property
    def _queue(self) -> Any:
        return self._piece("server", "PromptServer.instance.prompt_queue")

    def next_number(self) -> float:
        return float(self._piece("server", "PromptServer.instance.number"))

    def queue(self) -> QueueSnapshot:
        read = getattr(self._queue, "get_current_queue_volatile", None)
        running, queued = read() if read else self._queue.get_current_queue()
        return QueueSnapshot({item[1]: item[2] for item in running}, {item[1]: item[2] for item in queued})

    def ending(self, prompt_id: str) -> Ending | None:
        """How a prompt ended; None if its history is not there."""
        try:
            found = self._queue.get_history(prompt_id=prompt_id, map_function=_ending_of)
            return next(iter(found.values()), None)
        except TypeError:  # older versions copy instead
            found = self._queue.get_history(prompt_id=prompt_id)
            return next((_ending_of(entry) for entry in found.values()), None)

    def find_ended(self, matches: Callable[[Any], bool], prompt_id: str) -> str | None:
        """The id of an ended prompt whose graph matches: the one with this id, or one of the newest."""
        entries = [
            *self._queue.get_history(prompt_id=prompt_id).values(),
            *self._queue.get_history(max_items=RECENT_ENTRIES).values(),
        ]
        return next((str(entry["prompt"][1]) for entry in entries if matches(entry["prompt"][2])), None)

    def validate(self, prompt_id: str, prompt: dict[str, Any], targets: Any) -> PromptCheck:
        """Run ComfyUI's own validation. It converts values in the prompt to the types of their inputs."""
        validate_prompt = self._piece("execution", "validate_prompt")
        count = len(inspect.signature(validate_prompt).parameters)
        arguments = [prompt] if count == 1 else [prompt_id, prompt, targets][:count]
        answer = validate_prompt(*arguments)
        if inspect.isawaitable(answer):
            answer = self._await(answer, lambda: validate_prompt(*arguments))
        is_valid, error, outputs, node_errors = answer[:4]
        if not is_valid:
            return PromptCheck(problem=_refusal(error, node_errors) or "refused")
        return PromptCheck(list(outputs), remark=_refusal(None, node_errors))

    def _await(self, check: Any, again: Callable[[], Any]) -> Any:
        """Validate on a loop of this thread, so that ComfyUI goes on. If that fails, use ComfyUI's loop."""
        try:
            answer = asyncio.run(_result_of(check))
            if FAILED_CHECK not in str(answer[3]):
                return answer
        except Exception:  # noqa: BLE001 - nodes of others run in the check
            LOG.debug("A check failed on a loop of its own", exc_info=True)
        loop = self._piece("server", "PromptServer.instance.loop")
        return asyncio.run_coroutine_threadsafe(_result_of(again()), loop).result(CHECK_SECONDS)

    def put(self, number: float, prompt_id: str, document: Mapping[str, Any], outputs: Sequence[str]) -> None:
        """Queue a validated prompt, in the form that this version's queue takes."""
        extra_data = dict(document.get("extra_data") or {})
        if "client_id" in document:
            extra_data["client_id"] = document["client_id"]
        extra_data["create_time"] = int(time.time() * 1000)
        item: tuple[Any, ...] = (number, prompt_id, document["prompt"], extra_data, list(outputs))
        if "process_item" in inspect.signature(self._queue.task_done).parameters:  # 0.3.68: secrets are a sixth field
            names = getattr(importlib.import_module("execution"), "SENSITIVE_EXTRA_DATA_KEYS", ())
            item += ({name: extra_data.pop(name) for name in names if name in extra_data},)
        self._queue.put(item)

    def delete(self, prompt_id: str) -> bool:
        """Take a prompt out of the queue; False if it was not there any more."""
        return bool(self._queue.delete_queue_item(lambda item: item[1] == prompt_id))

    def interrupt(self, prompt_ids: Collection[str]) -> list[str]:
        """Interrupt the running prompt if it is one of these. Returns the interrupted ids."""
        interrupt = self._piece("nodes", "interrupt_processing")
        # While it is held no prompt can end and no other begin. ComfyUI drops a late interrupt when one begins.
        with getattr(self._queue, "mutex", None) or nullcontext():
            running = [prompt_id for prompt_id in self.queue().running if prompt_id in prompt_ids]
            if running:
                interrupt()
            return running

    def executing(self) -> str | None:
        """The prompt whose node runs in this thread; None if this version does not say."""
        with suppress(Exception):
            context = importlib.import_module("comfy_execution.utils").get_executing_context()
            return str(context.prompt_id) if context is not None else None
        return None

    def send(self, event: str, data: Mapping[str, Any], client_id: str | None = None) -> None:
        with suppress(Exception):
            self._piece("server", "PromptServer.instance.send_sync")(event, dict(data), client_id)

    def declares(self, class_type: str, input_name: str) -> bool:
        with suppress(Exception):
            declared = self._piece("nodes", "NODE_CLASS_MAPPINGS")[class_type].INPUT_TYPES()
            return any(input_name in declared.get(part, {}) for part in ("required", "optional"))
        return False

    def _folder(self, kind: str) -> Path:
        return Path(self._piece("folder_paths", f"get_{kind}_directory")())

    def input_folder(self) -> Path | None:
        """The folder for files with values; None outside of ComfyUI."""
        with suppress(MissingPiece):
            return self._folder("input")
        return None

    def file_of(self, image: ImageFile) -> Path | None:
        """The path of a file; None if it would be outside of ComfyUI's folders."""
        with suppress(Exception):
            folder = self._folder(image["type"]).resolve()
            path = (folder / image["subfolder"] / image["filename"]).resolve()
            return path if image["type"] in ("output", "temp") and folder in path.parents else None
        return None

    def save(self, picture: Any, prefix: str, kind: str, texts: Mapping[str, Any], number: int = 0) -> ImageFile:
        """Write a Pillow picture as ComfyUI's own node does, whole or not at all, with `texts` in the file. `number` is
        its place among those of its prompt."""
        from PIL.PngImagePlugin import PngInfo

        prefix = prefix.replace("%batch_num%", str(number))
        find_place = self._piece("folder_paths", "get_save_image_path")
        folder, name, counter, subfolder, _ = find_place(prefix, str(self._folder(kind)), *picture.size)
        is_wanted = True
        with suppress(MissingPiece):
            is_wanted = not self._piece("comfy.cli_args", "args.disable_metadata")
        metadata = PngInfo()
        for key, value in texts.items() if is_wanted else ():
            metadata.add_text(key, json.dumps(value))
        path = Path(folder) / f"{name}_{counter:05}_.png"
        part = path.with_name(path.name + ".part")
        try:
            picture.save(part, format="PNG", pnginfo=metadata, compress_level=4)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return {"filename": path.name, "subfolder": subfolder, "type": kind}

    def _piece(self, module: str, path: str) -> Any:
        missing = module
        with suppress(ImportError):
            found: Any = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name, None)
            if found is not None:
                return found
            missing = f"{module}.{path}"
        if missing not in self._logged:
            self._logged.add(missing)
            LOG.warning("This ComfyUI has no %s: what needs it is left out. A newer pack may know better.", missing)
        raise MissingPiece(f"this ComfyUI has no {missing}")


def pictures_of(images: Any) -> Iterable[Any]:
    """Turn ComfyUI's pictures into Pillow's, one after the other."""
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


def _images_of(outputs: Mapping[str, Any]) -> list[ImageFile]:
    """The images of type output; if there is none, all others."""
    listed = [image for node_id in natural_order(outputs) for image in outputs[node_id].get("images") or ()]
    found: list[ImageFile] = [
        {key: str(image.get(key, "")) for key in ("filename", "subfolder", "type")}
        for image in listed
        if isinstance(image, Mapping) and image.get("filename")
    ]
    return [image for image in found if image["type"] == "output"] or found


def _refusal(error: Any, node_errors: Any) -> str:
    """Why a prompt was refused: the errors of its nodes, else the error of the whole prompt."""
    problems: list[str] = []
    for node_id, found in (node_errors or {}).items():
        problems += [
            f"{found.get('class_type')} (node {node_id}): {each.get('message')}: {each.get('details')}"
            for each in found.get("errors", ())
        ]
    if not problems and isinstance(error, Mapping):
        problems = [f"{error.get('message', '')} {error.get('details', '')}"]
    return one_line("; ".join(problems) or str(error or ""))


def one_line(text: str) -> str:
    """Make a text short enough for a log and a cell of a grid."""
    return whole(" ".join(str(text).split()), LONGEST_REASON)
