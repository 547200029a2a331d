"""ComfyUI as its own extensions see it, without ComfyUI: for tests of the node pack.

`with comfyui_inside(tmp_path) as inside:` puts the modules an extension imports (`server`, `execution`, `nodes`,
`folder_paths`, …) in place and takes them out again. A loop runs in a thread as ComfyUI's does, and a worker in another
runs what is queued; `hold()`, `start_one()` and `run_one()` let a test decide when.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from support.comfyui_executing import PromptExecutor, get_executing_context
from support.comfyui_nodes import Colour, Fails, blocking, get_save_image_path, saving
from support.comfyui_queue import (
    EarlierPromptQueue,
    FiveFieldQueue,
    InterruptProcessingException,
    Interrupts,
    Item,
    PromptQueue,
)
from support.comfyui_validation import Judge, Prompt, Verdict
from support.comfyui_worker import PATIENCE_SECONDS, Worker

T = TypeVar("T")
Version = Literal["six", "five"]
PromptCheck = Literal["async3", "async2", "sync"]
SENSITIVE_EXTRA_DATA_KEYS = ("auth_token_comfy_org", "api_key_comfy_org")


class Sent(NamedTuple):
    """One message to pages; `sid` None goes to all of them."""

    event: str
    data: Any
    sid: str | None


class PromptServer:
    """What extensions find as `PromptServer.instance`. `last_prompt_id` is there once a prompt has started."""

    instance: PromptServer
    last_prompt_id: str

    def __init__(self, loop: asyncio.AbstractEventLoop, queue_class: type[PromptQueue]) -> None:
        self.loop = loop
        self.number = 0
        self.client_id: str | None = None
        self.last_node_id: str | None = None
        self.routes = web.RouteTableDef()
        self.on_prompt_handlers: list[Callable[[Any], Any]] = []
        self.sockets: dict[str, Any] = {}
        self.sent: list[Sent] = []
        self.queue_updates = 0
        self.prompt_queue = queue_class(self)

    def add_on_prompt_handler(self, handler: Callable[[Any], Any]) -> None:
        self.on_prompt_handlers.append(handler)

    def trigger_on_prompt(self, json_data: Any) -> Any:
        """A handler that raises is logged and passed over."""
        for handler in self.on_prompt_handlers:
            try:
                json_data = handler(json_data)
            except Exception:
                logging.warning("[ERROR] An error occurred during the on_prompt_handler processing", exc_info=True)
        return json_data

    def send_sync(self, event: str, data: Any, sid: str | None = None) -> None:
        """Recorded as it is at this moment; what is no JSON is refused here, where ComfyUI would stumble later."""
        self.sent.append(Sent(event, json.loads(json.dumps(data)), sid))

    def queue_updated(self) -> None:
        self.queue_updates += 1


class ComfyUIInside:
    """What a test does with the imitation, and what it sees of it."""

    def __init__(
        self,
        folder: Path,
        version: Version,
        validate: PromptCheck,
        sensitive_keys: bool,
        held: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.version = version
        self.validate = validate
        self.interrupts = Interrupts()
        self.blocked, self.unblocked = threading.Event(), threading.Event()
        recent = PromptQueue if version == "six" else FiveFieldQueue
        queue_class = EarlierPromptQueue if validate == "sync" else recent
        self.server = PromptServer(loop, queue_class)
        self.queue = self.server.prompt_queue
        self.folders = {name: folder / name for name in ("output", "input", "temp")}
        for place in self.folders.values():
            place.mkdir(parents=True, exist_ok=True)
        self.classes: dict[str, Any] = {
            "Colour": Colour,
            "Fails": Fails,
            "Blocks": blocking(self.blocked, self.unblocked, self.interrupts),
            "Save": saving(self.folders["output"]),
        }
        """ComfyUI's NODE_CLASS_MAPPINGS: nodes under test are added here."""
        self.loaded: set[str] = set()
        """The names of the packages that were loaded as custom nodes."""
        self.modules = _modules(self, queue_class, sensitive_keys)
        executor = PromptExecutor(self.server, self.classes, self.interrupts)
        self._worker = Worker(self.server, executor, fields=6 if version == "six" else 5, held=held)

    def post(self, json_data: Any) -> tuple[int, Any]:
        """POST /prompt: the status and the answer. The body travels as JSON, so that the caller's stays as it is."""
        return self.run(self._post(json.loads(json.dumps(json_data))))

    def request(self, method: str, path: str, json_data: Any = None) -> tuple[int, Any]:
        """Ask one of the routes that extensions have added, over HTTP; also found under /api."""
        return self.run(self._request(method, path, json_data))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on ComfyUI's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.server.loop).result(PATIENCE_SECONDS)

    def load(self, folder: Path) -> types.ModuleType:
        """Load a folder of custom_nodes as ComfyUI does: as a package named after its path, on the loop."""

        async def load() -> types.ModuleType:
            name = str(folder).replace(".", "_x_")
            spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
            assert spec is not None
            assert spec.loader is not None
            self.loaded.add(name)
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.classes.update(module.NODE_CLASS_MAPPINGS)
            self.modules["nodes"].NODE_DISPLAY_NAME_MAPPINGS.update(getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", {}))
            return module

        return self.run(load())

    def hold(self) -> None:
        """Start nothing more until told so. What runs already goes on."""
        self._worker.hold()

    def release(self) -> None:
        """Run whatever is queued, and whatever comes."""
        self._worker.release()

    def start_one(self) -> str:
        """While held: start the first that waits, and come back while it runs and can be interrupted. Its prompt id."""
        return self._worker.start_one()[0]

    def run_one(self) -> str:
        """While held: run the first that waits to its end. Its prompt id."""
        prompt_id, place = self._worker.start_one()
        self._worker.wait_finished(place)
        return prompt_id

    def wait_ended(self, prompt_id: str) -> dict[str, Any]:
        """What the history says of a prompt, once it has ended."""
        self._worker.wait(lambda: prompt_id in self._worker.ended(), f"{prompt_id} did not end")
        return self.history(prompt_id)

    def wait_idle(self) -> None:
        """Until nothing waits and nothing runs, at this moment: who feeds the queue may still have more."""
        self._worker.wait(self._worker.idle, "the queue was not worked off")

    def wait_blocked(self) -> None:
        """Until a Blocks node runs and waits."""
        assert self.blocked.wait(PATIENCE_SECONDS), f"no node blocked within {PATIENCE_SECONDS} s"

    def unblock(self) -> None:
        """Let every Blocks node go on, now and later."""
        self.unblocked.set()

    def history(self, prompt_id: str) -> dict[str, Any]:
        entry: dict[str, Any] = self.queue.get_history(prompt_id)[prompt_id]
        return entry

    def waiting(self) -> list[str]:
        """The ids of the prompts that wait, the next one first."""
        return [item[1] for item in sorted(self.queue.get_current_queue()[1], key=lambda item: item[:2])]

    def running(self) -> list[str]:
        return [item[1] for item in self.queue.get_current_queue()[0]]

    def sent(self, event: str) -> list[Any]:
        """The data of every message of this kind, in order."""
        return [message.data for message in list(self.server.sent) if message.event == event]

    @contextlib.contextmanager
    def watching_loop(self) -> Iterator[Callable[[], float]]:
        """Gives a function that says how long, in seconds, the loop was kept from other work at most, so far."""
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.001)
                longest, last = max(longest, time.perf_counter() - last - 0.001), time.perf_counter()

        watch_future = asyncio.run_coroutine_threadsafe(watch(), self.server.loop)
        try:
            yield lambda: longest
        finally:
            watch_future.cancel()

    def close(self) -> None:
        self.unblock()
        self._worker.close()

    async def judge(self, prompt_id: str, prompt: Prompt, targets: list[str] | None) -> Verdict:
        """Through the function that extensions find, in whichever form it has."""
        function = self.modules["execution"].validate_prompt
        arguments: tuple[Any, ...] = {
            "sync": (prompt,),
            "async2": (prompt_id, prompt),
            "async3": (prompt_id, prompt, targets),
        }[self.validate]
        answer = function(*arguments)
        verdict: Verdict = answer if self.validate == "sync" else await answer
        return verdict

    async def _post(self, json_data: Any) -> tuple[int, Any]:
        json_data = self.server.trigger_on_prompt(json_data)
        if json_data is None:
            return 500, None
        if "number" in json_data:
            number = float(json_data["number"])
        else:
            number = -self.server.number if json_data.get("front") else self.server.number
            self.server.number += 1
        if "prompt" not in json_data:
            return 400, {"error": {"type": "no_prompt", "message": "No prompt provided"}, "node_errors": {}}
        own_id = str(uuid.uuid4())
        prompt_id = own_id if self.validate == "sync" else str(json_data.get("prompt_id", own_id))
        prompt = json_data["prompt"]
        verdict = await self.judge(prompt_id, prompt, json_data.get("partial_execution_targets"))
        extra_data = json_data.get("extra_data", {})
        if "client_id" in json_data:
            extra_data["client_id"] = json_data["client_id"]
        if not verdict[0]:
            return 400, {"error": verdict[1], "node_errors": verdict[3]}
        item: Item = (number, prompt_id, prompt, extra_data, verdict[2])
        if self.version == "six":
            secret = [key for key in SENSITIVE_EXTRA_DATA_KEYS if key in extra_data]
            item = (*item, {key: extra_data.pop(key) for key in secret})
            extra_data["create_time"] = int(time.time() * 1000)
        self.queue.put(item)
        return 200, {"prompt_id": prompt_id, "number": number, "node_errors": verdict[3]}

    async def _request(self, method: str, path: str, json_data: Any) -> tuple[int, Any]:
        application = web.Application()
        for route in self.server.routes:
            assert isinstance(route, web.RouteDef)
            application.router.add_route(route.method, route.path, route.handler)
            application.router.add_route(route.method, "/api" + route.path, route.handler)
        async with TestClient(TestServer(application)) as client:
            answer = await client.request(method, path, json=json_data)
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text


@contextlib.contextmanager
def comfyui_inside(
    folder: Path,
    *,
    version: Version = "six",
    validate: PromptCheck = "async3",
    sensitive_keys: bool | None = None,
    held: bool = False,
) -> Iterator[ComfyUIInside]:
    """ComfyUI's insides, until the block ends. `held` starts with the worker on hold.

    `version` says how many fields an item of the queue has. `validate` says which form `validate_prompt` has; "sync" is
    ComfyUI up to 0.3.44, which also ignores a prompt id that is sent along, has no executing context, and a history
    that takes no function. `sensitive_keys` says whether there is `execution.SENSITIVE_EXTRA_DATA_KEYS`: by default
    only with six fields; from 0.3.45 to 0.3.67 it was there with five.
    """
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(_running_loop())
        keys = version == "six" if sensitive_keys is None else sensitive_keys
        inside = ComfyUIInside(folder, version, validate, keys, held, loop)
        stack.enter_context(_in_place(inside))
        stack.callback(inside.close)
        yield inside


@contextlib.contextmanager
def _in_place(inside: ComfyUIInside) -> Iterator[None]:
    """The modules can be imported; others of their names come back afterwards, and what was loaded inside goes."""

    def of_comfyui() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in inside.modules]

    before = {name: sys.modules.pop(name) for name in of_comfyui()}
    sys.modules.update(inside.modules)
    PromptServer.instance = inside.server
    try:
        yield
    finally:
        del PromptServer.instance
        loaded = [name for name in sys.modules if name.partition(".")[0] in inside.loaded]
        for name in [*of_comfyui(), *loaded]:
            del sys.modules[name]
        sys.modules.update(before)


@contextlib.contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), name="comfyui-inside-loop")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "something keeps ComfyUI's loop"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _modules(
    inside: ComfyUIInside, queue_class: type[PromptQueue], sensitive_keys: bool
) -> dict[str, types.ModuleType]:
    """The modules that extensions import, by name."""

    def judge(prompt: Prompt, targets: list[str] | None = None) -> Verdict:
        return Judge(inside.classes, prompt).verdict(targets)

    async def validate_async3(prompt_id: str, prompt: Prompt, partial_execution_list: list[str] | None) -> Verdict:
        return judge(prompt, partial_execution_list)

    async def validate_async2(prompt_id: str, prompt: Prompt) -> Verdict:
        return judge(prompt)

    def validate_sync(prompt: Prompt) -> Verdict:
        return judge(prompt)

    forms = {"async3": validate_async3, "async2": validate_async2, "sync": validate_sync}
    secrets = {"SENSITIVE_EXTRA_DATA_KEYS": SENSITIVE_EXTRA_DATA_KEYS} if sensitive_keys else {}
    management = {
        "InterruptProcessingException": InterruptProcessingException,
        "interrupt_current_processing": inside.interrupts.interrupt,
        "processing_interrupted": inside.interrupts.wanted,
        "throw_exception_if_processing_interrupted": inside.interrupts.check,
    }
    found = {
        "server": _module("server", PromptServer=PromptServer),
        "execution": _module("execution", PromptQueue=queue_class, validate_prompt=forms[inside.validate], **secrets),
        "nodes": _module(
            "nodes",
            NODE_CLASS_MAPPINGS=inside.classes,
            NODE_DISPLAY_NAME_MAPPINGS={},
            EXTENSION_WEB_DIRS={},
            interrupt_processing=inside.interrupts.interrupt,
            before_node_execution=inside.interrupts.check,
        ),
        "folder_paths": _module(
            "folder_paths",
            get_output_directory=lambda: str(inside.folders["output"]),
            get_input_directory=lambda: str(inside.folders["input"]),
            get_temp_directory=lambda: str(inside.folders["temp"]),
            get_directory_by_type=lambda kind: str(inside.folders[kind]) if kind in inside.folders else None,
            get_save_image_path=get_save_image_path,
        ),
        "comfy": _module("comfy", __path__=[]),
        "comfy.model_management": _module("comfy.model_management", **management),
        "comfy.cli_args": _module("comfy.cli_args", args=types.SimpleNamespace(disable_metadata=False)),
        "comfy_execution": _module("comfy_execution", __path__=[]),
    }
    if inside.validate != "sync":
        context = _module("comfy_execution.utils", get_executing_context=get_executing_context)
        found["comfy_execution.utils"] = context
    for name, module in found.items():
        package, _, last = name.rpartition(".")
        if package:
            setattr(found[package], last, module)
    return found


def _module(name: str, **members: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    return module
