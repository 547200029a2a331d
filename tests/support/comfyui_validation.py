"""How ComfyUI judges a prompt before it queues it, for the imitation of its insides."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Prompt = dict[str, dict[str, Any]]
Verdict = tuple[bool, "dict[str, Any] | None", list[str], dict[str, Any]]
"""Whether it may run, what is wrong otherwise, the outputs that may run, and what is wrong by node."""


def is_link(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], (int, float))
    )


def declared(node_class: Any, *kinds: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Inputs a class declares, each with its type and options; a list of choices is the type COMBO."""
    types = node_class.INPUT_TYPES()
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for kind in kinds:
        for name, info in types.get(kind, {}).items():
            options = dict(info[1]) if len(info) > 1 and isinstance(info[1], dict) else {}
            if isinstance(info[0], list):
                found[name] = ("COMBO", {**options, "options": info[0]})
            else:
                found[name] = (info if isinstance(info, str) else info[0], options)
    return found


def _fault(kind: str, message: str, details: str = "", **extra: Any) -> dict[str, Any]:
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


CONVERSIONS: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


class Judge:
    """Judges one prompt: from its outputs upwards, along declared inputs only, converting values in place."""

    def __init__(self, classes: Mapping[str, Any], prompt: Prompt) -> None:
        self._classes = classes
        self._prompt = prompt
        self._judged: dict[str, tuple[bool, list[dict[str, Any]]]] = {}

    def verdict(self, targets: list[str] | None = None) -> Verdict:
        for node_id, node in self._prompt.items():
            if "class_type" not in node:
                message = "Cannot execute because a node is missing the class_type property."
                return False, _fault("invalid_prompt", message, f"Node ID '#{node_id}'"), [], {}
            if node["class_type"] not in self._classes:
                message = f"Cannot execute because node {node['class_type']} does not exist."
                return False, _fault("invalid_prompt", message, f"Node ID '#{node_id}'"), [], {}
        outputs = [
            node_id
            for node_id, node in self._prompt.items()
            if getattr(self._classes[node["class_type"]], "OUTPUT_NODE", False) is True
            and (targets is None or node_id in targets)
        ]
        if not outputs:
            return False, _fault("prompt_no_outputs", "Prompt has no outputs"), [], {}
        return self._of_outputs(outputs)

    def _of_outputs(self, outputs: list[str]) -> Verdict:
        good: list[str] = []
        lines: list[str] = []
        node_errors: dict[str, Any] = {}
        for output in outputs:
            if self._guarded(output, "exception_during_validation"):
                good.append(output)
                continue
            lines += [f"{fault['message']}: {fault['details']}" for fault in self._judged[output][1]]
            for node_id, (_, faults) in self._judged.items():
                if faults:
                    class_type = self._prompt[node_id]["class_type"]
                    entry = {"errors": faults, "dependent_outputs": [], "class_type": class_type}
                    node_errors.setdefault(node_id, entry)["dependent_outputs"].append(output)
        if good:
            return True, None, good, node_errors
        fault = _fault("prompt_outputs_failed_validation", "Prompt outputs failed validation", "\n".join(lines))
        return False, fault, [], node_errors

    def _guarded(self, node_id: str, kind: str) -> bool:
        try:
            return self._node(node_id)
        except Exception as failure:  # noqa: BLE001 - nodes of others may raise anything
            faults = [_fault(kind, "Exception when validating node", str(failure), exception_message=str(failure))]
            self._judged[node_id] = (False, faults)
            return False

    def _node(self, node_id: str) -> bool:
        if node_id in self._judged:
            return self._judged[node_id][0]
        node_class, inputs = self._classes[self._prompt[node_id]["class_type"]], self._prompt[node_id]["inputs"]
        own = getattr(node_class, "VALIDATE_INPUTS", None)
        asked = inspect.getfullargspec(own) if own else None
        required = declared(node_class, "required")
        faults: list[dict[str, Any]] = []
        sound = True
        for name, (kind, options) in declared(node_class, "required", "optional").items():
            if name not in inputs:
                if name in required:
                    faults.append(_fault("required_input_missing", "Required input is missing", name, input_name=name))
            elif isinstance(inputs[name], list):
                fault = self._link_fault(name, kind, inputs[name])
                faults += [fault] if fault else []
                if not fault and not self._guarded(inputs[name][0], "exception_during_inner_validation"):
                    sound = False
            else:
                checked = asked is None or (name not in asked.args and asked.varkw is None)
                fault = self._value_fault(inputs, name, kind, options, checked)
                faults += [fault] if fault else []
        if own and asked:
            known = declared(node_class, "required", "optional")
            wanted = {name for name in inputs if name in known and (asked.varkw or name in asked.args)}
            answer = own(**{name: None if is_link(inputs[name]) else inputs[name] for name in wanted})
            if answer is not True:
                faults += [_fault("custom_validation_failed", "Custom validation failed for node", f"{answer}")]
        self._judged[node_id] = (sound and not faults, faults)
        return self._judged[node_id][0]

    def _link_fault(self, name: str, kind: str, link: list[Any]) -> dict[str, Any] | None:
        if len(link) != 2:
            return _fault("bad_linked_input", "Bad linked input", name, input_name=name, received_value=link)
        given = self._classes[self._prompt[link[0]]["class_type"]].RETURN_TYPES[link[1]]
        if given != kind and "*" not in (given, kind) and not set(given.split(",")) & set(kind.split(",")):
            details = f"{name}, received_type({given}) mismatch input_type({kind})"
            return _fault("return_type_mismatch", "Return type mismatch between linked nodes", details, input_name=name)
        return None

    def _value_fault(
        self, inputs: dict[str, Any], name: str, kind: str, options: dict[str, Any], checked: bool
    ) -> dict[str, Any] | None:
        value = inputs[name]
        extra = {"input_name": name, "input_config": (kind, options), "received_value": value}
        try:
            if isinstance(value, dict) and "__value__" in value:
                value = value["__value__"]
            value = inputs[name] = CONVERSIONS.get(kind, lambda same: same)(value)
        except Exception as failure:  # noqa: BLE001 - whatever the conversion says
            message = f"Failed to convert an input value to a {kind} value"
            return _fault("invalid_input_type", message, f"{name}, {value}, {failure}", **extra)
        if checked and "min" in options and value < options["min"]:
            return _fault(
                "value_smaller_than_min", f"Value {value} smaller than min of {options['min']}", name, **extra
            )
        if checked and "max" in options and value > options["max"]:
            return _fault("value_bigger_than_max", f"Value {value} bigger than max of {options['max']}", name, **extra)
        if checked and kind == "COMBO" and value not in options.get("options", []):
            return _fault("value_not_in_list", "Value not in list", f"{name}: '{value}' not in {options}", **extra)
        return None
