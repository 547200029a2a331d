"""A stand-in for ComfyUI as its extensions see it, for tests of the node pack.

`with comfyui_inside(tmp_path) as inside:` puts the modules that an extension imports (`server`, `execution`, `nodes`,
`folder_paths`, …) in place and takes them out again. A loop runs in one thread and a worker runs prompts in another;
`start_one()` and `run_one()` let a test decide when. The tests marked real_comfyui run the pack in ComfyUI itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from support.comfyui_execution import Execution, Item, OldPromptQueue, Prompt, PromptQueue, validate
from support.comfyui_nodes import Colour, Fails, blocking, saving

T = TypeVar("T")
PATIENCE_SECONDS = 20.0
SENSITIVE_EXTRA_DATA_KEYS = ("auth_token_comfy_org", "api_key_comfy_org")


class Sent(NamedTuple):
    """One message to pages; `sid` None goes to all of them."""

    event: str
    data: Any
    sid: str | None


class PromptServer:
    instance: PromptServer

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: OldPromptQueue) -> None:
        self.loop = loop
        self.prompt_queue = queue
        self.number = 0
        self.routes = web.RouteTableDef()
        self.on_prompt_handlers: list[Callable[[Any], Any]] = []
        self.sent: list[Sent] = []

    def add_on_prompt_handler(self, handler: Callable[[Any], Any]) -> None:
        self.on_prompt_handlers.append(handler)

    def send_sync(self, event: str, data: Any, sid: str | None = None) -> None:
        self.sent.append(Sent(event, json.loads(json.dumps(data)), sid))


class ComfyUIInside:
    """What a test does with the stand-in, and what it sees of it."""

    def __init__(self, folder: Path, is_old: bool, held: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.is_old = is_old
        self.queue = OldPromptQueue() if is_old else PromptQueue()
        self.server = PromptServer(loop, self.queue)
        self.interrupted, self.unblocked = threading.Event(), threading.Event()
        self.folders = {name: folder / name for name in ("output", "input", "temp")}
        for place in self.folders.values():
            place.mkdir(parents=True, exist_ok=True)
        self.classes: dict[str, Any] = {
            "Colour": Colour,
            "Fails": Fails,
            "Blocks": blocking(self.unblocked, self.interrupted),
            "Save": saving(get_save_image_path, str(self.folders["output"])),
        }
        """ComfyUI's NODE_CLASS_MAPPINGS: nodes under test are added here."""
        self.loaded: set[str] = set()
        self.executing = threading.local()
        self.modules = _modules(self)
        self._allowed: int | None = 0 if held else None
        self._closing = False
        self._started: list[str] = []
        self._worker = threading.Thread(target=self._work, name="comfyui-inside-worker")
        self._worker.start()

    def post(self, json_data: Any) -> tuple[int, Any]:
        """POST /prompt: the status and the answer. The body travels as JSON."""
        return self.run(self._post(json.loads(json.dumps(json_data))))

    def request(self, method: str, path: str) -> tuple[int, Any]:
        """Ask a route that an extension has added, also below /api."""
        return self.run(self._request(method, path))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on ComfyUI's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.server.loop).result(PATIENCE_SECONDS)

    def load(self, folder: Path) -> types.ModuleType:
        """Load a folder of custom_nodes as ComfyUI does: as a package named after its path."""
        name = str(folder).replace(".", "_x_")
        spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        self.loaded.add(name)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.classes.update(module.NODE_CLASS_MAPPINGS)
        return module

    def release(self) -> None:
        """Run whatever is queued, and whatever comes."""
        with self.queue.changed:
            self._allowed = None
            self.queue.changed.notify_all()

    def start_one(self) -> str:
        """While held: start the first prompt that waits. Its id."""
        with self.queue.changed:
            assert self._allowed is not None
            count = len(self._started)
            self._allowed += 1
            self.queue.changed.notify_all()
            self._wait(lambda: len(self._started) > count)
            return self._started[count]

    def run_one(self) -> str:
        """While held: run the first prompt that waits to its end. Its id."""
        prompt_id = self.start_one()
        self.wait_ended(prompt_id)
        return prompt_id

    def wait_ended(self, prompt_id: str) -> dict[str, Any]:
        """The history of a prompt, once it has ended."""
        self._wait(lambda: prompt_id in self._started and prompt_id not in self.queue.currently_running)
        return self.queue.history.get(prompt_id, {})

    def wait_idle(self) -> None:
        self._wait(lambda: not self.queue.queue and not self.queue.currently_running)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        with self.queue.changed:
            assert self.queue.changed.wait_for(is_so, PATIENCE_SECONDS)

    def waiting(self) -> list[str]:
        """The ids of the prompts that wait, the next one first."""
        return [item[1] for item in self.queue.get_current_queue()[1]]

    def running(self) -> list[str]:
        return list(self.queue.currently_running)

    def sent(self, event: str) -> list[Any]:
        """The data of every message of this kind."""
        return [message.data for message in list(self.server.sent) if message.event == event]

    def close(self) -> None:
        self.unblocked.set()
        with self.queue.changed:
            self._closing = True
            self.queue.changed.notify_all()
        self._worker.join(PATIENCE_SECONDS)
        assert not self._worker.is_alive(), "a node does not end"

    async def validate(self, prompt_id: str, prompt: Prompt, targets: Any) -> Any:
        """Through the function that extensions find."""
        function = self.modules["execution"].validate_prompt
        return function(prompt) if self.is_old else await function(prompt_id, prompt, targets)

    async def _post(self, json_data: Any) -> tuple[int, Any]:
        for handler in self.server.on_prompt_handlers:
            json_data = handler(json_data)
        if "number" in json_data:
            number = float(json_data["number"])
        else:
            number = -self.server.number if json_data.get("front") else self.server.number
            self.server.number += 1
        own_id = str(uuid.uuid4())
        prompt_id = own_id if self.is_old else str(json_data.get("prompt_id", own_id))
        prompt, extra_data = json_data["prompt"], json_data.get("extra_data", {})
        is_valid, error, outputs, node_errors = await self.validate(
            prompt_id, prompt, json_data.get("partial_execution_targets")
        )
        if "client_id" in json_data:
            extra_data["client_id"] = json_data["client_id"]
        if not is_valid:
            return 400, {"error": error, "node_errors": node_errors}
        item: Item = (number, prompt_id, prompt, extra_data, outputs)
        if not self.is_old:
            secrets = {key: extra_data.pop(key) for key in SENSITIVE_EXTRA_DATA_KEYS if key in extra_data}
            item = (*item, secrets)
            extra_data["create_time"] = int(time.time() * 1000)
        self.queue.put(item)
        return 200, {"prompt_id": prompt_id, "number": number, "node_errors": node_errors}

    async def _request(self, method: str, path: str) -> tuple[int, Any]:
        application = web.Application()
        for route in self.server.routes:
            assert isinstance(route, web.RouteDef)
            application.router.add_route(route.method, route.path, route.handler)
            application.router.add_route(route.method, "/api" + route.path, route.handler)
        async with TestClient(TestServer(application)) as client:
            answer = await client.request(method, path)
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    def _work(self) -> None:
        while True:
            with self.queue.changed:
                self.queue.changed.wait_for(lambda: self._closing or bool(self.queue.queue and self._allowed != 0))
                if self._closing:
                    return
                item = self.queue.get()
                self._allowed = None if self._allowed is None else self._allowed - 1
                self.interrupted.clear()
                self._started.append(item[1])
                self.queue.changed.notify_all()
            assert len(item) == (5 if self.is_old else 6)
            self._execute(item)

    def _execute(self, item: Item) -> None:
        prompt_id, client_id = item[1], item[3].get("client_id")

        def executed(node_id: str, output: Any) -> None:
            if client_id is not None:
                data = {"node": node_id, "display_node": node_id, "output": output, "prompt_id": prompt_id}
                self.server.send_sync("executed", data, client_id)

        execution = Execution(self.classes, item, executed)
        self.executing.prompt_id = prompt_id
        messages: list[tuple[str, dict[str, Any]]] = [("execution_start", {})]
        try:
            for output in item[4]:
                execution.run(output, self.interrupted)
            messages.append(("execution_success", {}))
        except Exception as error:  # noqa: BLE001 - nodes raise anything
            messages.append(execution.failure(error))
        is_good = messages[-1][0] == "execution_success"
        status = {"status_str": "success" if is_good else "error", "completed": is_good, "messages": messages}
        self.queue.task_done(prompt_id, execution.outputs, status)


@contextlib.contextmanager
def comfyui_inside(folder: Path, *, is_old: bool = False, held: bool = False) -> Iterator[ComfyUIInside]:
    """The stand-in, until the block ends. `held` starts with the worker on hold.

    It is 0.7.0, or with `is_old` 0.3.44: queue items have five fields, the validation is not async, a prompt id that is
    sent along is ignored, there is no executing context, and the history takes no function.
    """
    with _running_loop() as loop:
        inside = ComfyUIInside(folder, is_old, held, loop)
        before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in inside.modules}
        sys.modules.update(inside.modules)
        PromptServer.instance = inside.server
        try:
            yield inside
        finally:
            inside.close()
            del PromptServer.instance
            ours = {*(name.partition(".")[0] for name in inside.modules), *inside.loaded}
            for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
                del sys.modules[name]
            sys.modules.update(before)


@contextlib.contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="comfyui-inside-loop")
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


def get_save_image_path(
    prefix: str, output_dir: str, width: int = 0, height: int = 0
) -> tuple[str, str, int, str, str]:
    """Folder, name, next free number, subfolder and prefix for `name_00001_.png`, as ComfyUI counts them."""
    prefix = prefix.replace("%width%", str(width)).replace("%height%", str(height))
    subfolder, name = os.path.split(os.path.normpath(prefix))
    folder = Path(os.path.abspath(Path(output_dir, subfolder)))
    if not folder.is_relative_to(output_dir):
        raise Exception("**** ERROR: Saving image outside the output folder is not allowed.")
    folder.mkdir(parents=True, exist_ok=True)
    digits = [file[len(name) + 1 :].split("_")[0] for file in os.listdir(folder) if file.startswith(f"{name}_")]
    return str(folder), name, max([int(each) for each in digits if each.isdigit()], default=0) + 1, subfolder, prefix


def _modules(inside: ComfyUIInside) -> dict[str, types.ModuleType]:
    """The modules that extensions import, by name."""

    async def validate_prompt(prompt_id: str, prompt: Prompt, partial_execution_list: Any) -> Any:
        return validate(inside.classes, prompt, partial_execution_list)

    def validate_old(prompt: Prompt) -> Any:
        return validate(inside.classes, prompt, None)

    def executing_context() -> Any:
        prompt_id = getattr(inside.executing, "prompt_id", None)
        return types.SimpleNamespace(prompt_id=prompt_id) if prompt_id else None

    members: dict[str, dict[str, Any]] = {
        "server": {"PromptServer": PromptServer},
        "execution": {"validate_prompt": validate_old if inside.is_old else validate_prompt},
        "nodes": {"NODE_CLASS_MAPPINGS": inside.classes, "interrupt_processing": inside.interrupted.set},
        "folder_paths": {
            **{f"get_{name}_directory": lambda path=path: str(path) for name, path in inside.folders.items()},
            "get_save_image_path": get_save_image_path,
        },
        "comfy": {"__path__": []},
        "comfy.cli_args": {"args": types.SimpleNamespace(disable_metadata=False)},
        "comfy_execution": {"__path__": []},
    }
    if not inside.is_old:
        members["execution"]["SENSITIVE_EXTRA_DATA_KEYS"] = SENSITIVE_EXTRA_DATA_KEYS
        members["comfy_execution.utils"] = {"get_executing_context": executing_context}
    modules = {name: types.ModuleType(name) for name in members}
    for name, module in modules.items():
        vars(module).update(members[name])
    return modules
