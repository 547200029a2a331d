"""The checks of a prompt before it is queued, with errors in ComfyUI's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.sim.engine.definitions import Definitions, InputSpec
from comfyui_agent.sim.engine.tracebacks import validation_traceback
from comfyui_agent.sim.settings import Folders
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json

LONGEST_LIST_SHOWN = 20
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


@dataclass(frozen=True)
class ValidationResult:
    """The result for a prompt. `error` is set when nothing of it can run."""

    error: Json | None
    outputs: list[str]
    node_errors: Json


@dataclass(frozen=True)
class _Finding:
    """The result for one node. Not valid without errors means that something upstream is wrong."""

    valid: bool
    errors: list[Json]


@dataclass
class Validator:
    """Checks one prompt against node definitions. Literals are coerced in place, as the server does."""

    definitions: Definitions
    folders: Folders
    dialect: Dialect
    prompt: Any
    order: Callable[[str], Any]
    """The order of output nodes, as good as random and the same for all prompts of a server."""
    _findings: dict[str, _Finding] = field(default_factory=dict)
    _path: list[str] = field(default_factory=list)

    def check(self, targets: Any) -> ValidationResult:
        roots = []
        for node_id in self.prompt:  # an empty list or text is an empty prompt
            node = self.prompt[node_id]
            definition = self.definitions.get(node["class_type"]) if "class_type" in node else None
            if definition is None:
                return self._reject_node(node_id, node)
            if definition.is_output and (targets is None or node_id in targets):
                roots.append(node_id)
        if not roots:
            return ValidationResult(_problem("prompt_no_outputs", "Prompt has no outputs", ""), [], {})
        return self._check_roots(sorted(roots, key=self.order))

    def _check_roots(self, roots: list[str]) -> ValidationResult:
        good: list[str] = []
        own_errors: list[Json] = []
        node_errors: Json = {}
        for root in roots:
            finding = self._root(root)
            if finding.valid:
                good.append(root)
                continue
            own_errors += finding.errors
            for node_id, found in self._findings.items():
                if not found.valid and found.errors:
                    class_type = self.prompt[node_id]["class_type"]
                    entry = {"errors": found.errors, "dependent_outputs": [], "class_type": class_type}
                    node_errors.setdefault(node_id, entry)["dependent_outputs"].append(root)
        if good:
            return ValidationResult(None, good, node_errors)
        details = "\n".join(f"{error['message']}: {error['details']}" for error in own_errors)
        error = _problem("prompt_outputs_failed_validation", "Prompt outputs failed validation", details)
        return ValidationResult(error, [], node_errors)

    def _reject_node(self, node_id: str, node: Json) -> ValidationResult:
        details = f"Node ID '#{node_id}'"
        if not self.dialect.missing_node_type_error:
            message = "Cannot execute because a node is missing the class_type property."
            if "class_type" in node:
                message = f"Cannot execute because node {node['class_type']} does not exist."
            return ValidationResult(_problem("invalid_prompt", message, details), [], {})
        class_type = node.get("class_type")
        title = node.get("_meta", {}).get("title", class_type)
        message = f"Node '{title}' not found. The custom node may not be installed."
        if "class_type" not in node:
            name = title or f"ID #{node_id}"
            message = f"Node '{name}' has no class_type. The workflow may be corrupted or a custom node is missing."
        extra = {"node_id": node_id, "class_type": class_type, "node_title": title}
        return ValidationResult(_problem("missing_node_type", message, details, **extra), [], {})

    def _root(self, node_id: str) -> _Finding:
        try:
            return self._visit(node_id)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is part of the answer
            kind, message = "exception_during_validation", "Exception when validating node"
            extra = _exception(error, "validate_prompt", "validate_inputs")
            self._findings[node_id] = _Finding(False, [_problem(kind, message, str(error), **extra)])
            return self._findings[node_id]

    def _visit(self, node_id: str) -> _Finding:
        """One frame of Python's stack for each node of a chain: as at the server, hundreds in a row are fine."""
        if node_id in self._findings:
            return self._findings[node_id]
        if node_id in self._path:
            return self._cycle(node_id)
        definition = self.definitions[self.prompt[node_id]["class_type"]]
        inputs = self.prompt[node_id]["inputs"]
        checks_itself = {"image"} if definition.name in ("LoadImage", "LoadImageMask") else set()
        errors: list[Json | None] = []
        upstream_valid = True
        self._path.append(node_id)
        try:
            for spec in definition.inputs_for(inputs).values():
                if spec.name not in inputs:
                    errors.append(_missing(spec))
                elif not isinstance(inputs[spec.name], list):
                    errors.append(self._literal(spec, inputs, ranged=spec.name not in checks_itself))
                elif error := self._link(spec, inputs[spec.name]):
                    errors.append(error)
                else:
                    try:
                        upstream_valid = self._visit(inputs[spec.name][0]).valid and upstream_valid
                    except Exception as failure:  # noqa: BLE001 - whatever goes wrong is part of the answer
                        self._fail_upstream(spec, inputs[spec.name], failure)
                        upstream_valid = False
        finally:
            self._path.pop()
        errors += [self._missing_file(definition.inputs[name], inputs[name]) for name in checks_itself & set(inputs)]
        found = [error for error in errors if error is not None]
        if node_id in self._findings:  # it is part of a cycle
            found = [*self._findings[node_id].errors, *found]
        self._findings[node_id] = _Finding(upstream_valid and not found, found)
        return self._findings[node_id]

    def _cycle(self, node_id: str) -> _Finding:
        """Older versions find nothing wrong but refuse; later ones blame each node of the cycle."""
        if not self.dialect.dependency_cycle_error:
            return _Finding(False, [])
        nodes = self._path[self._path.index(node_id) :]
        details = " -> ".join(f"{each} ({self.prompt[each]['class_type']})" for each in [*nodes, node_id])
        for each in nodes:
            extra = {"node_id": each, "cycle_nodes": nodes}
            error = _problem("dependency_cycle", "Dependency cycle detected", details, **extra)
            self._findings[each] = _Finding(False, [error])
        return self._findings[node_id]

    def _literal(self, spec: InputSpec, inputs: Json, ranged: bool) -> Json | None:
        value = inputs[spec.name]
        if isinstance(value, dict) and "__value__" in value:
            value = inputs[spec.name] = value["__value__"]
        convert = CONVERSIONS.get(spec.type) if isinstance(spec.type, str) else None
        if convert is not None:
            try:
                value = inputs[spec.name] = convert(value)
            except Exception as error:  # noqa: BLE001 - whatever the conversion raises is part of the answer
                message = f"Failed to convert an input value to a {spec.type} value"
                extra = {"received_value": value, "exception_message": str(error)}
                return _input_problem(spec, "invalid_input_type", message, f"{spec.name}, {value}, {error}", **extra)
        return _out_of_range(spec, value, self.dialect) if ranged else None

    def _link(self, spec: InputSpec, link: list[Any]) -> Json | None:
        if len(link) != 2:
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            return _input_problem(spec, "bad_linked_input", message, spec.name, received_value=link)
        received = self.definitions[self.prompt[link[0]]["class_type"]].output[link[1]]
        if types_fit(received, spec.type):
            return None
        message = "Return type mismatch between linked nodes"
        details = f"{spec.name}, received_type({received}) mismatch input_type({spec.type})"
        extra = {"received_type": received, "linked_node": link}
        return _input_problem(spec, "return_type_mismatch", message, details, **extra)

    def _fail_upstream(self, spec: InputSpec, link: list[Any], error: Exception) -> None:
        kind, message = "exception_during_inner_validation", "Exception when validating inner node"
        exception = _exception(error, "validate_inputs", "validate_inputs")
        extra = {"exception_message": str(error), **exception, "linked_node": link}
        self._findings[link[0]] = _Finding(False, [_input_problem(spec, kind, message, str(error), **extra)])

    def _missing_file(self, spec: InputSpec, value: Any) -> Json | None:
        """A file that a user's own definitions list counts as there: the simulator paints one."""
        found = self.folders.locate(str(value))
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


def _missing(spec: InputSpec) -> Json | None:
    if spec.section != "required":
        return None
    short = spec.name.rpartition(".")[2]
    return _problem("required_input_missing", "Required input is missing", short, input_name=spec.name)


def _out_of_range(spec: InputSpec, value: Any, dialect: Dialect) -> Json | None:
    least, most, choices = spec.options.get("min"), spec.options.get("max"), spec.choices
    if least is not None and value < least:
        kind, message = "value_smaller_than_min", f"Value {value} smaller than min of {least}"
        return _input_problem(spec, kind, message, spec.name, received_value=value)
    if most is not None and value > most:
        kind, message = "value_bigger_than_max", f"Value {value} bigger than max of {most}"
        return _input_problem(spec, kind, message, spec.name, received_value=value)
    if choices is None or value in choices:
        return None
    is_long = len(choices) > LONGEST_LIST_SHOWN
    given = repr(value) if dialect.wrong_choices_as_written else f"'{value}'"
    details = f"{spec.name}: {given} not in {f'(list of length {len(choices)})' if is_long else choices}"
    problem = _input_problem(spec, "value_not_in_list", "Value not in list", details, received_value=value)
    if is_long:
        problem["extra_info"]["input_config"] = None
    return problem


def _exception(error: Exception, *calls: str) -> Json:
    return {"exception_type": type(error).__qualname__, "traceback": validation_traceback(*calls)}


def _problem(kind: str, message: str, details: str, **extra_info: Any) -> Json:
    return {"type": kind, "message": message, "details": details, "extra_info": extra_info}


def _input_problem(spec: InputSpec, kind: str, message: str, details: str, **extra_info: Any) -> Json:
    return _problem(kind, message, details, input_name=spec.name, input_config=[spec.type, spec.options], **extra_info)
