"""ComfyUI's queue, validation and execution, as far as the node pack sees them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Item = tuple[Any, ...]
"""(number, prompt id, prompt, extra data, outputs), and since 0.3.68 a sixth: secrets."""
Prompt = dict[str, dict[str, Any]]


class OldPromptQueue:
    """The queue up to 0.3.44. The lowest number runs first."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.changed = threading.Condition(self.mutex)
        self.queue: list[Item] = []
        self.currently_running: dict[str, Item] = {}
        self.history: dict[str, dict[str, Any]] = {}

    def put(self, item: Item) -> None:
        with self.changed:
            self.queue.append(item)
            self.queue.sort(key=lambda each: each[:2])
            self.changed.notify_all()

    def get(self) -> Item:
        with self.mutex:
            item = self.queue.pop(0)
            self.currently_running[item[1]] = item
            return item

    def task_done(self, item_id: Any, history_result: Any, status: Any) -> None:
        with self.changed:
            item = self.currently_running.pop(item_id)
            self.history[item_id] = {"prompt": item[:5], "outputs": history_result, "status": status}
            self.changed.notify_all()

    def get_current_queue(self) -> tuple[list[Item], list[Item]]:
        with self.mutex:
            return list(self.currently_running.values()), list(self.queue)

    def wipe_queue(self) -> None:
        with self.mutex:
            self.queue.clear()

    def wipe_history(self) -> None:
        with self.mutex:
            self.history.clear()

    def delete_queue_item(self, function: Callable[[Item], bool]) -> bool:
        with self.mutex:
            for item in self.queue:
                if function(item):
                    self.queue.remove(item)
                    return True
        return False

    def get_history(self, prompt_id: str | None = None, max_items: int | None = None) -> dict[str, Any]:
        with self.mutex:
            names = list(self.history)[-(max_items or 0) :]
            if prompt_id is not None:
                names = [prompt_id] if prompt_id in self.history else []
            return {name: copy.deepcopy(self.history[name]) for name in names}


class PromptQueue(OldPromptQueue):
    """The queue of 0.7.0."""

    def task_done(self, item_id: Any, history_result: Any, status: Any, process_item: Any = None) -> None:  # noqa: ARG002
        super().task_done(item_id, history_result, status)

    def get_current_queue_volatile(self) -> tuple[list[Item], list[Item]]:
        return self.get_current_queue()

    def get_history(
        self, prompt_id: str | None = None, max_items: int | None = None, map_function: Any = None
    ) -> dict[str, Any]:
        found = super().get_history(prompt_id, max_items)
        return {name: map_function(entry) for name, entry in found.items()} if map_function else found


def is_link(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2


def declared(node_class: Any, *sections: str) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """Section, name, type and options of each input."""
    types = node_class.INPUT_TYPES()
    for section in sections:
        for name, info in types.get(section, {}).items():
            yield section, name, info[0], info[1] if len(info) > 1 else {}


def validate(classes: Mapping[str, Any], prompt: Prompt, targets: list[str] | None) -> tuple[bool, Any, Any, Any]:
    """Whether a prompt may run, the error, the outputs that run, and the errors by node. Converts INT in place."""

    def error(message: str, details: str = "") -> dict[str, Any]:
        return {"type": "invalid", "message": message, "details": details, "extra_info": {}}

    def problems(node_id: str) -> list[dict[str, Any]]:
        node = prompt[node_id]
        found = []
        for section, name, kind, options in declared(classes[node["class_type"]], "required", "optional"):
            value = node["inputs"].get(name)
            if value is None:
                found += [error("Required input is missing", name)] if section == "required" else []
            elif is_link(value):
                check(value[0])
            elif kind == "INT":
                try:
                    number = node["inputs"][name] = int(value)
                except ValueError as failure:
                    found.append(error("Failed to convert an input value to a INT value", f"{name}, {failure}"))
                    continue
                if number > options.get("max", number):
                    found.append(error(f"Value {number} bigger than max of {options['max']}", name))
        return found

    def check(node_id: str) -> None:
        found = problems(node_id)
        if found:
            node_errors[node_id] = {"errors": found, "class_type": prompt[node_id]["class_type"]}

    unknown = [node["class_type"] for node in prompt.values() if node["class_type"] not in classes]
    if unknown:
        return False, error(f"Cannot execute because node {unknown[0]} does not exist."), [], {}
    outputs = [each for each, node in prompt.items() if getattr(classes[node["class_type"]], "OUTPUT_NODE", False)]
    outputs = [each for each in outputs if targets is None or each in targets]
    good, all_errors = [], {}
    for output in outputs:
        node_errors: dict[str, Any] = {}
        check(output)
        all_errors.update(node_errors)
        if not node_errors:
            good.append(output)
    if good:
        return True, None, good, all_errors
    return False, error("Prompt outputs failed validation" if outputs else "Prompt has no outputs"), [], all_errors


class Execution:
    """One run of a prompt: its outputs by node, and the status for its history."""

    def __init__(self, classes: Mapping[str, Any], item: Item, executed: Callable[[str, Any], None]) -> None:
        self._classes = classes
        self._prompt: Prompt = item[2]
        self._extra_data: dict[str, Any] = item[3]
        self._executed = executed
        self._results: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self.node_id = ""

    def run(self, node_id: str, interrupted: threading.Event) -> None:
        """Run what a node needs, then the node."""
        if node_id in self._results:
            return
        node = self._prompt[node_id]
        for value in node["inputs"].values():
            if is_link(value):
                self.run(value[0], interrupted)
        self.node_id = node_id
        if interrupted.is_set():
            raise InterruptedError
        instance = self._classes[node["class_type"]]()
        answer = getattr(instance, instance.FUNCTION)(**self._inputs(node_id, type(instance)))
        self._results[node_id] = answer.get("result", ()) if isinstance(answer, dict) else answer
        if isinstance(answer, dict) and answer.get("ui"):
            self.outputs[node_id] = answer["ui"]
            self._executed(node_id, answer["ui"])

    def _inputs(self, node_id: str, node_class: Any) -> dict[str, Any]:
        """Undeclared links are followed and undeclared values dropped, as in ComfyUI."""
        known = {name for _, name, _, _ in declared(node_class, "required", "optional")}
        given = self._prompt[node_id]["inputs"].items()
        inputs = {name: self._results[value[0]][value[1]] for name, value in given if is_link(value)}
        inputs |= {name: value for name, value in given if name in known and not is_link(value)}
        pnginfo = self._extra_data.get("extra_pnginfo")
        hidden = {"PROMPT": self._prompt, "EXTRA_PNGINFO": pnginfo, "UNIQUE_ID": node_id}
        return inputs | {name: hidden[kind] for name, kind in node_class.INPUT_TYPES().get("hidden", {}).items()}

    def failure(self, error: Exception) -> tuple[str, dict[str, Any]]:
        where = {"node_id": self.node_id, "node_type": self._prompt[self.node_id]["class_type"]}
        if type(error).__name__ in ("InterruptedError", "InterruptProcessingException"):
            return "execution_interrupted", where
        return "execution_error", {**where, "exception_message": f"{error}\n"}
