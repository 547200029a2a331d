"""Runs one prompt: node after node, from the cache where possible, and sends each step to its client."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from comfyui_agent.sim.engine.behaviours import is_known, run_node
from comfyui_agent.sim.engine.behaviours.images import file_fingerprint
from comfyui_agent.sim.engine.card import OutOfMemoryError
from comfyui_agent.sim.engine.definitions import NodeDefinition
from comfyui_agent.sim.engine.graph import ExecutionOrder, cache_keys, is_link
from comfyui_agent.sim.engine.pace import InterruptProcessingException
from comfyui_agent.sim.engine.progress import Progress
from comfyui_agent.sim.engine.tracebacks import execution_traceback
from comfyui_agent.sim.engine.values import Model, NodeRun, Result
from comfyui_agent.wire.prompts import Json, QueueItem

if TYPE_CHECKING:
    from comfyui_agent.sim.engine.simulated import SimulatedEngine

log = logging.getLogger(__name__)

OOM_TIP = (
    "This error means you ran out of memory on your GPU.\n\nTIPS: If the workflow worked before you might have "
    "accidentally set the batch_size to a large number."
)


class PromptRun:
    def __init__(self, engine: SimulatedEngine, item: QueueItem) -> None:
        self.engine = engine
        self.prompt_id = item.prompt_id
        self.prompt = {node_id: dict(node) for node_id, node in item.prompt.items()}
        self.roots = item.outputs
        extra_data = {**item.extra_data, **item.sensitive}
        self.metadata = {"prompt": self.prompt, **(extra_data.get("extra_pnginfo") or {})}
        self.client_id: str | None = extra_data.get("client_id")
        preview_method = extra_data.get("preview_method")
        self.progress = Progress(engine.audience, self.prompt_id, self.client_id, preview_method)
        self.messages: list[list[Any]] = []
        self.shown: Json = {}
        self.meta: Json = {}
        self.executed: set[str] = set()
        self.keys: dict[str, str] = {}
        self.inputs: Json = {}

    def run(self) -> Json:
        """The outputs, meta and status of the prompt, for its history."""
        engine = self.engine
        engine.pace.interrupted.clear()
        engine.client_id = self.client_id
        self._record("execution_start", {"prompt_id": self.prompt_id})
        self.keys = cache_keys(self.prompt, self._fingerprint)
        engine.cache.start_prompt(self.keys)
        engine.memory.keep_only({value.name for value in engine.cache.values() if isinstance(value, Model)})
        cached = [node_id for node_id in self.prompt if self._is_cached(node_id)]
        self._record("execution_cached", {"nodes": cached, "prompt_id": self.prompt_id})
        success = self._run_nodes()
        if success:
            self._record("execution_success", {"prompt_id": self.prompt_id})
        engine.node_id = None
        status = {"status_str": "success" if success else "error", "completed": success, "messages": self.messages}
        return {"outputs": self.shown, "status": status, "meta": self.meta}

    def _run_nodes(self) -> bool:
        samplers = [each for each in self.prompt if self._definition(each).is_sampler and not self._is_cached(each)]
        self.engine.pace.start_prompt(len(samplers), self.progress.step)
        order = ExecutionOrder(self.prompt, self._is_cached, lambda node_id: self._definition(node_id).is_output)
        for root in self.roots:
            order.add(root)
        while (node_id := order.pick()) is not None:
            try:
                cached = self.engine.cache.get(node_id)
                if cached is not None:
                    self._repeat(node_id, cached)
                else:
                    self._run_node(node_id)
            except InterruptProcessingException:
                self._record("execution_interrupted", self._place(node_id), broadcast=True)
                return False
            except Exception as error:
                log.debug("node %s failed", node_id, exc_info=error)
                self._record("execution_error", self._error(node_id, error))
                return False
            order.finish(node_id)
        return True

    def _run_node(self, node_id: str) -> None:
        engine = self.engine
        definition = self._definition(node_id)
        self.inputs = {}
        self.progress.start(node_id)
        if self.client_id is not None:
            engine.node_id = node_id
            self._send("executing", {"node": node_id, "display_node": node_id, "prompt_id": self.prompt_id})
        engine.pace.enter(node_id)
        key = self.keys[node_id]
        show = partial(self.progress.show, node_id, form="PNG")
        run = NodeRun(definition, key, self.metadata, engine.folders, engine.memory, engine.pace, engine.dice, show)
        self.inputs = self._inputs(node_id, definition)
        result = run_node(run, self.inputs)
        if result.shown:
            meta = {"node_id": node_id, "display_node": node_id, "parent_node": None, "real_node_id": node_id}
            result = replace(result, meta=meta)
            self.shown[node_id], self.meta[node_id] = result.shown, meta
            self._send_executed(node_id, result.shown)
        engine.cache.set(node_id, result)
        self.progress.finish(node_id)
        self.executed.add(node_id)

    def _repeat(self, node_id: str, cached: Result) -> None:
        """Send the old output of a cached output node again. Nothing is written."""
        self._send_executed(node_id, cached.shown)
        keeps = self.client_id is not None or self.engine.dialect.cached_outputs_without_client
        if keeps and cached.shown is not None and cached.meta is not None:
            self.shown[node_id], self.meta[node_id] = cached.shown, cached.meta
        self.progress.finish(node_id)

    def _inputs(self, node_id: str, definition: NodeDefinition) -> Json:
        given = self.prompt[node_id]["inputs"]
        declared = definition.inputs_for(given)
        inputs: Json = {}
        for name, value in given.items():
            if is_link(value):
                if name not in declared and is_known(definition.name):  # others may take whatever is linked
                    raise TypeError(f"{definition.name} got an unexpected keyword argument '{name}'")
                source = self.engine.cache.get(value[0])
                inputs[name] = source.values[int(value[1])] if source else None
            elif name in declared:
                inputs[name] = value
        return inputs

    def _definition(self, node_id: str) -> NodeDefinition:
        return self.engine.definitions[self.prompt[node_id]["class_type"]]

    def _is_cached(self, node_id: str) -> bool:
        return self.engine.cache.get(node_id) is not None

    def _fingerprint(self, node_id: str) -> Any:
        node = self.prompt[node_id]
        if node["class_type"] not in ("LoadImage", "SaveImageWebsocket"):
            return False
        if "is_changed" not in node:
            try:
                is_file = node["class_type"] == "LoadImage"
                current = file_fingerprint(self.engine.folders, node["inputs"]["image"]) if is_file else time.time()
                node["is_changed"] = [current]
            except Exception:  # noqa: BLE001 - what cannot be fingerprinted always runs again
                node["is_changed"] = float("nan")
                return f"never the same: {self.prompt_id}"
        return node["is_changed"]

    def _place(self, node_id: str) -> Json:
        return {
            "prompt_id": self.prompt_id,
            "node_id": node_id,
            "node_type": self.prompt[node_id]["class_type"],
            "executed": list(self.executed),
        }

    def _error(self, node_id: str, error: Exception) -> Json:
        tip = OOM_TIP if isinstance(error, OutOfMemoryError) else ""
        kind, definition = type(error), self._definition(node_id)
        return {
            **self._place(node_id),
            "exception_message": f"{error}\n{tip}",
            "exception_type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
            "traceback": execution_traceback(definition.name, definition.info.get("python_module", "nodes")),
            "current_inputs": {name: [_plain(value)] for name, value in self.inputs.items()},
            "current_outputs": list(self.prompt),
        }

    def _record(self, event: str, data: Json, broadcast: bool = False) -> None:
        """Keep an event for the history, and send it to the client."""
        data = {**data, "timestamp": int(time.time() * 1000)}
        self.messages.append([event, data])
        if self.client_id is not None or broadcast:
            self._send(event, data)

    def _send(self, event: str, data: Json) -> None:
        self.engine.audience.send(event, data, self.client_id)

    def _send_executed(self, node_id: str, shown: Json | None) -> None:
        if self.client_id is not None:
            data = {"node": node_id, "display_node": node_id, "output": shown, "prompt_id": self.prompt_id}
            self._send("executed", data)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)
