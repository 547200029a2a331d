"""Why a server does not run a prompt, or a part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.domain.failures import FailureClass

MODEL_FILE = re.compile(r"\.(safetensors|sft|ckpt|pt|pth|bin|gguf|onnx|engine|patch)$", re.IGNORECASE)
NO_SUCH_NODE = re.compile(r"node .* does not exist|not found", re.IGNORECASE)
NOT_OFFERED = "value_not_in_list"
LONGEST_DETAIL = 500
LONGEST_REASON = 200
MOST_PROBLEMS = 100


@dataclass(frozen=True)
class NodeProblem:
    """A problem that a server found in one node."""

    node_id: str
    node_type: str
    problem: str
    message: str
    details: str
    lacks_model: bool
    input_name: str = ""
    received: str = ""

    @property
    def reason(self) -> str:
        return f"{self.message}: {self.details}" if self.details else self.message

    def line(self) -> str:
        return f"node {self.node_id} ({self.node_type}): {shapes.shown(self.reason, LONGEST_DETAIL)}"


def read_node_errors(document: Any) -> tuple[NodeProblem, ...]:
    """The `node_errors` of an answer. An entry that is not understood is still a problem of its node."""
    problems = []
    nodes = document if isinstance(document, dict) else {}
    for node_id, entry in islice(nodes.items(), MOST_PROBLEMS):
        entry = entry if isinstance(entry, dict) else {}
        node_type = shapes.shown(entry.get("class_type"))
        errors = entry.get("errors")
        for error in errors[:MOST_PROBLEMS] if isinstance(errors, list) and errors else [{}]:
            problems.append(_problem(shapes.shown(node_id), node_type, error if isinstance(error, dict) else {}))
    return tuple(problems[:MOST_PROBLEMS])


def _problem(node_id: str, node_type: str, error: Mapping[str, Any]) -> NodeProblem:
    info = error.get("extra_info")
    info = info if isinstance(info, dict) else {}
    received = info.get("received_value")
    problem = shapes.shown(error.get("type"))
    return NodeProblem(
        node_id=node_id,
        node_type=node_type,
        problem=problem,
        message=shapes.shown(error.get("message"), LONGEST_DETAIL) or "the server names no reason",
        details=shapes.shown(error.get("details"), LONGEST_DETAIL),
        lacks_model=problem == NOT_OFFERED and isinstance(received, str) and bool(MODEL_FILE.search(received)),
        input_name=shapes.shown(info.get("input_name")),
        received=shapes.shown(received),
    )


def read_rejection(server: str, document: Any) -> PromptRejected:
    """The error of a 400: `missing` if another server may have what this one lacks, else `invalid`."""
    answer = document if isinstance(document, dict) else {}
    error = answer.get("error")
    if isinstance(error, str):
        error = {"message": error}
    error = error if isinstance(error, dict) else {}
    error_type = shapes.shown(error.get("type"))
    message = shapes.shown(error.get("message"), LONGEST_DETAIL) or "no reason given"
    details = shapes.shown(error.get("details"), LONGEST_DETAIL)
    problems = read_node_errors(answer.get("node_errors"))
    first = problems[0] if problems else None
    info = error.get("extra_info")
    info = info if isinstance(info, dict) else {}
    is_choice = first is not None and first.problem == NOT_OFFERED
    lines = tuple(problem.line() for problem in problems) or ((details,) if details else ())
    reason = shapes.shown(first.reason, LONGEST_REASON) if first else message
    return PromptRejected(
        f"{server} rejected the prompt: {reason}",
        kind=_kind(error_type, message, problems),
        error_type=error_type,
        node_id=first.node_id if first else shapes.shown(info.get("node_id")) or _node_id_in(details),
        node_type=first.node_type if first else shapes.shown(info.get("class_type")),
        details=lines,
        by_choice=bool(problems) and all(problem.problem == NOT_OFFERED for problem in problems),
        choice=(first.node_type, first.input_name, first.received) if first and is_choice else None,
    )


def _kind(error_type: str, message: str, problems: tuple[NodeProblem, ...]) -> FailureClass:
    if error_type == "missing_node_type" or (error_type == "invalid_prompt" and NO_SUCH_NODE.search(message)):
        return FailureClass.MISSING
    if problems and all(problem.lacks_model for problem in problems):
        return FailureClass.MISSING
    return FailureClass.INVALID


def _node_id_in(details: str) -> str:
    found = re.search(r"#([^']+)'", details)
    return found.group(1) if found else ""
