"""What a prompt must satisfy before it is queued, and how a server words what is wrong with it."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from comfyui_agent.sim.dialect import Dialect
from comfyui_agent.sim.engine.definitions import Definitions, InputSpec, NodeDefinition
from comfyui_agent.sim.engine.dynamic_inputs import inputs_for
from comfyui_agent.sim.ports import Json, ValidationResult
from comfyui_agent.sim.settings import Folders

LONGEST_LIST_SHOWN = 20
LONGEST_CHAIN = 980

T = TypeVar("T")


@dataclass(frozen=True)
class _Finding:
    """The verdict on one node: not valid with no errors means that something upstream of it is wrong."""

    valid: bool
    errors: list[Json]


Visit: TypeAlias = Generator[str, _Finding | None, T]


@dataclass
class Validator:
    """Checks prompts against node definitions. Literals are coerced in place, as the server does."""

    definitions: Definitions
    folders: Folders
    dialect: Dialect

    def check(self, prompt: Any, targets: Any) -> ValidationResult:
        roots = []
        for node_id in prompt:
            if "class_type" not in prompt[node_id]:
                return self._rejected_node(
                    node_id, prompt, "Cannot execute because a node is missing the class_type property."
                )
            class_type = prompt[node_id]["class_type"]
            definition = self.definitions.get(class_type)
            if definition is None:
                return self._unknown_class(node_id, prompt, class_type)
            if definition.is_output and (targets is None or node_id in targets):
                roots.append(node_id)
        if not roots:
            return _rejected("prompt_no_outputs", "Prompt has no outputs", "")
        return self._check_roots(prompt, roots)

    def _check_roots(self, prompt: Json, roots: list[str]) -> ValidationResult:
        walk = _Walk(self, prompt)
        good: list[str] = []
        own_errors: list[Json] = []
        node_errors: Json = {}
        for root in roots:
            finding = walk.root(root)
            if finding.valid:
                good.append(root)
                continue
            own_errors += finding.errors
            for node_id, found in walk.findings.items():
                if not found.valid and found.errors:
                    entry = node_errors.setdefault(
                        node_id,
                        {
                            "errors": found.errors,
                            "dependent_outputs": [],
                            "class_type": prompt[node_id]["class_type"],
                        },
                    )
                    entry["dependent_outputs"].append(root)
        if good:
            return ValidationResult(None, good, node_errors)
        details = "\n".join(f"{error['message']}: {error['details']}" for error in own_errors)
        rejection = _rejected("prompt_outputs_failed_validation", "Prompt outputs failed validation", details)
        return ValidationResult(rejection.error, [], node_errors)

    def _rejected_node(self, node_id: str, prompt: Json, message: str) -> ValidationResult:
        if self.dialect.missing_node_type_error:
            return _rejected("missing_node_type", message, f"Node ID '#{node_id}'", _named(node_id, prompt))
        return _rejected("invalid_prompt", message, f"Node ID '#{node_id}'")

    def _unknown_class(self, node_id: str, prompt: Json, class_type: Any) -> ValidationResult:
        if self.dialect.missing_node_type_error:
            title = prompt[node_id].get("_meta", {}).get("title", class_type)
            message = f"Node '{title}' not found. The custom node may not be installed."
            return _rejected("missing_node_type", message, f"Node ID '#{node_id}'", _named(node_id, prompt))
        return self._rejected_node(node_id, prompt, f"Cannot execute because node {class_type} does not exist.")


class _Walk:
    """One pass over the nodes that the outputs of one prompt need.

    A visit of a node is a generator that yields the nodes upstream whose findings it needs, so that the length of a
    chain has a limit of its own and not that of Python's stack.
    """

    def __init__(self, validator: Validator, prompt: Json) -> None:
        self.validator = validator
        self.prompt = prompt
        self.findings: dict[str, _Finding] = {}
        self._path: list[str] = []

    def root(self, node_id: str) -> _Finding:
        try:
            return self.node(node_id)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is part of the answer
            reason = _problem(
                "exception_during_validation",
                "Exception when validating node",
                str(error),
                exception_type=type(error).__qualname__,
                traceback=traceback.format_tb(error.__traceback__),
            )
            self.findings[node_id] = _Finding(False, [reason])
            return self.findings[node_id]

    def node(self, node_id: str) -> _Finding:
        visits = [self._visit(node_id)]
        finding: _Finding | None = None
        failure: Exception | None = None
        while visits:
            try:
                wanted = visits[-1].send(finding) if failure is None else visits[-1].throw(failure)
                visits.append(self._visit(wanted))
                finding = failure = None
            except StopIteration as ended:
                visits.pop()
                finding, failure = ended.value, None
            except Exception as error:  # noqa: BLE001 - handed to the visit that waits for this one
                visits.pop()
                finding, failure = None, error
        if failure is not None:
            raise failure
        assert finding is not None
        return finding

    def _visit(self, node_id: str) -> Visit[_Finding]:
        known = self.findings.get(node_id)
        if known is not None:
            return known
        if node_id in self._path:
            return self._cycle(node_id)
        if len(self._path) > LONGEST_CHAIN:
            raise RecursionError("maximum recursion depth exceeded while calling a Python object")
        self._path.append(node_id)
        try:
            finding = yield from self._inputs(node_id)
        finally:
            self._path.pop()
        return self.findings.setdefault(node_id, finding)

    def _cycle(self, node_id: str) -> _Finding:
        """0.7 blames nobody; later versions name the node that closes the circle."""
        if self.validator.dialect.dependency_cycle_error:
            circle = [*self._path[self._path.index(node_id) :], node_id]
            error = _problem(
                "dependency_cycle",
                "Dependency cycle detected",
                " -> ".join(circle),
                node_id=node_id,
                cycle_nodes=circle,
            )
            self.findings[node_id] = _Finding(False, [error])
        else:
            self.findings[node_id] = _Finding(False, [])
        return self.findings[node_id]

    def _inputs(self, node_id: str) -> Visit[_Finding]:
        node = self.prompt[node_id]
        definition = self.validator.definitions.get(node["class_type"])
        assert definition is not None
        inputs = node["inputs"]
        checks_itself = _checks_itself(definition)
        errors: list[Json] = []
        upstream_valid = True
        for spec in inputs_for(definition, inputs).values():
            if spec.name not in inputs:
                if spec.section == "required":
                    short = spec.name.rpartition(".")[2]
                    errors.append(
                        _problem("required_input_missing", "Required input is missing", short, input_name=spec.name)
                    )
                continue
            if isinstance(inputs[spec.name], list):
                error, linked_valid = yield from self._link(spec, inputs[spec.name])
                upstream_valid = upstream_valid and linked_valid
            else:
                error = _literal(spec, inputs, ranged=spec.name not in checks_itself)
            if error is not None:
                errors.append(error)
        for name in checks_itself & set(inputs):
            error = self._file_exists(definition.inputs[name], inputs[name])
            if error is not None:
                errors.append(error)
        return _Finding(upstream_valid and not errors, errors)

    def _link(self, spec: InputSpec, link: list[Any]) -> Visit[tuple[Json | None, bool]]:
        if len(link) != 2:
            return (
                _problem(
                    "bad_linked_input",
                    "Bad linked input, must be a length-2 list of [node_id, slot_index]",
                    spec.name,
                    input_name=spec.name,
                    input_config=spec.config,
                    received_value=link,
                ),
                True,
            )
        source = self.validator.definitions.get(self.prompt[link[0]]["class_type"])
        assert source is not None
        received = source.output[link[1]]
        if not types_fit(received, spec.type):
            return (
                _problem(
                    "return_type_mismatch",
                    "Return type mismatch between linked nodes",
                    f"{spec.name}, received_type({received}) mismatch input_type({spec.type})",
                    input_name=spec.name,
                    input_config=spec.config,
                    received_type=received,
                    linked_node=link,
                ),
                True,
            )
        try:
            finding = yield link[0]
            return None, finding is not None and finding.valid
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is part of the answer
            reason = _problem(
                "exception_during_inner_validation",
                "Exception when validating inner node",
                str(error),
                input_name=spec.name,
                input_config=spec.config,
                exception_message=str(error),
                exception_type=type(error).__qualname__,
                traceback=traceback.format_tb(error.__traceback__),
                linked_node=link,
            )
            self.findings[link[0]] = _Finding(False, [reason])
            return None, False

    def _file_exists(self, spec: InputSpec, value: Any) -> Json | None:
        """A file that a user's own definitions list is at the user's own server; a picture stands in for it."""
        found = self.validator.folders.locate(str(value))
        if (found is not None and found.exists()) or value in (spec.choices or []):
            return None
        return _problem(
            "custom_validation_failed",
            "Custom validation failed for node",
            f"{spec.name} - Invalid image file: {value}",
            input_name=spec.name,
        )


def types_fit(received: Any, wanted: Any) -> bool:
    """Whether an output type may feed an input type; both may be unions such as `INT,FLOAT`."""
    if received == wanted or "*" in (received, wanted):
        return True
    if isinstance(received, list) and wanted == "COMBO":
        return True
    if not isinstance(received, str) or not isinstance(wanted, str):
        return False
    left = {part.strip() for part in received.split(",")}
    right = {part.strip() for part in wanted.split(",")}
    return "*" in left | right or "COMFY_MATCHTYPE_V3" in left | right or bool(left & right)


def _literal(spec: InputSpec, inputs: Json, ranged: bool) -> Json | None:
    value = inputs[spec.name]
    if isinstance(value, dict) and "__value__" in value:
        value = inputs[spec.name] = value["__value__"]
    convert = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}.get(spec.type if _is_name(spec) else "")
    if convert is not None:
        try:
            value = inputs[spec.name] = convert(value)
        except Exception as error:  # noqa: BLE001 - whatever the value's type raises is part of the answer
            return _problem(
                "invalid_input_type",
                f"Failed to convert an input value to a {spec.type} value",
                f"{spec.name}, {value}, {error}",
                input_name=spec.name,
                input_config=spec.config,
                received_value=value,
                exception_message=str(error),
            )
    return _out_of_range(spec, value) if ranged else None


def _is_name(spec: InputSpec) -> bool:
    return isinstance(spec.type, str)


def _out_of_range(spec: InputSpec, value: Any) -> Json | None:
    described = {"input_name": spec.name, "input_config": spec.config, "received_value": value}
    least, most = spec.options.get("min"), spec.options.get("max")
    if least is not None and value < least:
        return _problem("value_smaller_than_min", f"Value {value} smaller than min of {least}", spec.name, **described)
    if most is not None and value > most:
        return _problem("value_bigger_than_max", f"Value {value} bigger than max of {most}", spec.name, **described)
    choices = spec.choices
    if choices is None or value in choices:
        return None
    shown = str(choices)
    if len(choices) > LONGEST_LIST_SHOWN:
        shown = f"(list of length {len(choices)})"
        described["input_config"] = None
    return _problem("value_not_in_list", "Value not in list", f"{spec.name}: '{value}' not in {shown}", **described)


def _checks_itself(definition: NodeDefinition) -> set[str]:
    """Inputs that a node's own check covers, so that lists and ranges do not."""
    return {"image"} if definition.name in ("LoadImage", "LoadImageMask") else set()


def _named(node_id: str, prompt: Json) -> Json:
    node = prompt[node_id]
    return {
        "node_id": node_id,
        "class_type": node.get("class_type"),
        "node_title": node.get("_meta", {}).get("title", node.get("class_type")),
    }


def _problem(kind: str, message: str, details: str, **extra_info: Any) -> Json:
    return {"type": kind, "message": message, "details": details, "extra_info": extra_info}


def _rejected(kind: str, message: str, details: str, extra_info: Json | None = None) -> ValidationResult:
    return ValidationResult(_problem(kind, message, details, **(extra_info or {})), [], {})
