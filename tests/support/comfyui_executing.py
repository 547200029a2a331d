"""How ComfyUI runs a prompt, for the imitation of its insides.

Every node runs every time: nothing is cached between prompts. Node objects stay, by node id and class, as in ComfyUI.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from support.comfyui_queue import InterruptProcessingException, Interrupts, Server
from support.comfyui_validation import Prompt, declared, is_link


class ExecutionContext(NamedTuple):
    prompt_id: str
    node_id: str
    list_index: int | None


executing: contextvars.ContextVar[ExecutionContext | None] = contextvars.ContextVar("executing", default=None)


def get_executing_context() -> ExecutionContext | None:
    return executing.get()


class PromptExecutor:
    """Runs one prompt at a time, in the calling thread and inside a loop of its own, as ComfyUI runs nodes."""

    def __init__(self, server: Server, classes: Mapping[str, Any], interrupts: Interrupts) -> None:
        self._server = server
        self._classes = classes
        self._interrupts = interrupts
        self._objects: dict[tuple[str, str], Any] = {}
        self.success = True
        self.status_messages: list[tuple[str, dict[str, Any]]] = []
        self.history_result: dict[str, Any] = {}

    def execute(
        self,
        prompt: Prompt,
        prompt_id: str,
        extra_data: dict[str, Any],
        outputs: list[str],
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Run it to its end. An interrupt that came earlier is forgotten; `begun` is called when one counts."""
        self._interrupts.interrupt(False)
        begun()
        asyncio.run(self._execute(prompt, prompt_id, extra_data, outputs))

    async def _execute(self, prompt: Prompt, prompt_id: str, extra_data: dict[str, Any], outputs: list[str]) -> None:
        self._server.client_id = extra_data.get("client_id")
        self.success, self.status_messages = True, []
        keys = {(node_id, node["class_type"]) for node_id, node in prompt.items()}
        self._objects = {key: node for key, node in self._objects.items() if key in keys}
        self._message("execution_start", {"prompt_id": prompt_id})
        self._message("execution_cached", {"nodes": [], "prompt_id": prompt_id})
        results: dict[str, list[list[Any]]] = {}
        shown: dict[str, dict[str, Any]] = {}
        for node_id in _order(prompt, outputs):
            given: dict[str, list[Any]] = {}
            try:
                given.update(self._given(prompt, node_id, results, extra_data))
                results[node_id], ui = self._run(prompt, prompt_id, node_id, given)
            except Exception as failure:  # noqa: BLE001 - nodes raise anything
                self.success = False
                self._report(prompt, prompt_id, node_id, list(results), given, failure)
                break
            if ui:
                shown[node_id] = ui
                said = {"node": node_id, "display_node": node_id, "output": ui, "prompt_id": prompt_id}
                self._tell("executed", said)
        else:
            self._message("execution_success", {"prompt_id": prompt_id})
        meta = {
            name: {"node_id": name, "display_node": name, "parent_node": None, "real_node_id": name} for name in shown
        }
        self.history_result = {"outputs": shown, "meta": meta}
        self._server.last_node_id = None

    def _given(
        self, prompt: Prompt, node_id: str, results: dict[str, list[list[Any]]], extra_data: dict[str, Any]
    ) -> dict[str, list[Any]]:
        """The values of a node's inputs: undeclared links are followed, other undeclared values dropped."""
        node_class = self._classes[prompt[node_id]["class_type"]]
        known = declared(node_class, "required", "optional", "hidden")
        given: dict[str, list[Any]] = {}
        for name, value in prompt[node_id]["inputs"].items():
            if is_link(value):
                given[name] = results[value[0]][int(value[1])]
            elif name in known:
                given[name] = [value]
        hidden = {"PROMPT": prompt, "EXTRA_PNGINFO": extra_data.get("extra_pnginfo"), "UNIQUE_ID": node_id}
        for name, kind in node_class.INPUT_TYPES().get("hidden", {}).items():
            if kind in hidden:
                given[name] = [hidden[kind]]
        return given

    def _run(
        self, prompt: Prompt, prompt_id: str, node_id: str, given: dict[str, list[Any]]
    ) -> tuple[list[list[Any]], dict[str, list[Any]]]:
        """Call the node, once for each value of a list; what it gives on, by slot, and what it shows."""
        class_type = prompt[node_id]["class_type"]
        if self._server.client_id is not None:
            self._server.last_node_id = node_id
        self._tell("executing", {"node": node_id, "display_node": node_id, "prompt_id": prompt_id})
        if (node_id, class_type) not in self._objects:
            self._objects[node_id, class_type] = self._classes[class_type]()
        node = self._objects[node_id, class_type]
        calls: list[dict[str, Any]] = [dict(given)]
        if not getattr(node, "INPUT_IS_LIST", False):
            often = max((len(values) for values in given.values()), default=1)
            calls = [{name: values[min(i, len(values) - 1)] for name, values in given.items()} for i in range(often)]
        answers = []
        for index, call in enumerate(calls):
            self._interrupts.check()
            token = executing.set(ExecutionContext(prompt_id, node_id, index))
            try:
                answers.append(getattr(node, node.FUNCTION)(**call))
            finally:
                executing.reset(token)
        uis = [answer["ui"] for answer in answers if isinstance(answer, dict) and "ui" in answer]
        slots = [answer.get("result", ()) if isinstance(answer, dict) else answer for answer in answers]
        as_lists = getattr(node, "OUTPUT_IS_LIST", (False,) * len(slots[0]))
        merged = [
            [value for slot in slots for value in (slot[place] if as_lists[place] else [slot[place]])]
            for place in range(len(slots[0]))
        ]
        return merged, {key: [entry for ui in uis for entry in ui[key]] for key in (uis[0] if uis else ())}

    def _report(
        self,
        prompt: Prompt,
        prompt_id: str,
        node_id: str,
        ran: list[str],
        given: dict[str, list[Any]],
        failure: Exception,
    ) -> None:
        where = {
            "prompt_id": prompt_id,
            "node_id": node_id,
            "node_type": prompt[node_id]["class_type"],
            "executed": ran,
        }
        if isinstance(failure, InterruptProcessingException):
            self._message("execution_interrupted", where, broadcast=True)
            return
        kind = type(failure)
        about = {
            "exception_message": f"{failure}\n",
            "exception_type": kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}",
            "traceback": traceback.format_tb(failure.__traceback__),
            "current_inputs": {name: [_plain(value) for value in values] for name, values in given.items()},
            "current_outputs": [],
        }
        self._message("execution_error", {**where, **about})

    def _message(self, event: str, data: dict[str, Any], broadcast: bool = False) -> None:
        """Note it for the history, and tell the page that sent the prompt; a broadcast goes to all where none did."""
        stamped = {**data, "timestamp": int(time.time() * 1000)}
        self.status_messages.append((event, stamped))
        if self._server.client_id is not None or broadcast:
            self._server.send_sync(event, stamped, self._server.client_id)

    def _tell(self, event: str, data: dict[str, Any]) -> None:
        if self._server.client_id is not None:
            self._server.send_sync(event, data, self._server.client_id)


def _order(prompt: Prompt, outputs: list[str]) -> list[str]:
    """The nodes that the outputs need, each behind all that it is linked to."""
    order: dict[str, None] = {}

    def visit(node_id: str) -> None:
        if node_id not in order:
            for value in prompt[node_id]["inputs"].values():
                if is_link(value):
                    visit(value[0])
            order[node_id] = None

    for output in outputs:
        visit(output)
    return list(order)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (int, float, bool, str)) else str(value)
