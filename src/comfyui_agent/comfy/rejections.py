"""Why a server does not run a prompt, or a part of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.comfy.shapes import optional_list, optional_object, shown
from comfyui_agent.domain.failures import Failure, FailureClass

MODEL_FILE = re.compile(r"\.(safetensors|sft|ckpt|pt|pth|bin|gguf|onnx|engine|patch)$", re.IGNORECASE)
NO_SUCH_NODE = re.compile(r"node .* does not exist|not found", re.IGNORECASE)
NODE_ID = re.compile(r"#([^']+)'")
NOT_OFFERED = "value_not_in_list"
LONGEST_DETAIL = 500
LONGEST_REASON = 200
MOST_PROBLEMS = 100


@dataclass(frozen=True)
class NodeProblem:
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
        return f"node {self.node_id} ({self.node_type}): {shown(self.reason, LONGEST_DETAIL)}"


def read_node_errors(document: Any) -> tuple[NodeProblem, ...]:
    """The `node_errors` of an answer. An entry that is not understood is still a problem of its node."""
    problems = []
    for node_id, entry in islice(optional_object(document).items(), MOST_PROBLEMS):
        entry = optional_object(entry)
        for error in optional_list(entry.get("errors"))[:MOST_PROBLEMS] or [{}]:
            problems.append(_problem(shown(node_id), shown(entry.get("class_type")), optional_object(error)))
    return tuple(problems[:MOST_PROBLEMS])


def _problem(node_id: str, node_type: str, error: dict[str, Any]) -> NodeProblem:
    info = optional_object(error.get("extra_info"))
    received = info.get("received_value")
    problem = shown(error.get("type"))
    return NodeProblem(
        node_id=node_id,
        node_type=node_type,
        problem=problem,
        message=shown(error.get("message"), LONGEST_DETAIL) or "the server names no reason",
        details=shown(error.get("details"), LONGEST_DETAIL),
        lacks_model=problem == NOT_OFFERED and isinstance(received, str) and bool(MODEL_FILE.search(received)),
        input_name=shown(info.get("input_name")),
        received=shown(received),
    )


def read_rejection(server: str, document: Any) -> PromptRejected:
    """The error of a 400: `missing` if another server may have what this one lacks, else `invalid`."""
    answer = optional_object(document)
    error = answer.get("error")
    error = {"message": error} if isinstance(error, str) else optional_object(error)
    error_type = shown(error.get("type"))
    message = shown(error.get("message"), LONGEST_DETAIL) or "no reason given"
    details = shown(error.get("details"), LONGEST_DETAIL)
    problems = read_node_errors(answer.get("node_errors"))
    info = optional_object(error.get("extra_info"))
    names_class = error_type == "missing_node_type" and info.get("class_type") is not None
    lacks_node = names_class or (error_type == "invalid_prompt" and NO_SUCH_NODE.search(message))
    lacks_model = bool(problems) and all(problem.lacks_model for problem in problems)
    choice = None
    if problems:
        first = problems[0]
        node_id, node_type, message = first.node_id, first.node_type, shown(first.reason, LONGEST_REASON)
        if first.problem == NOT_OFFERED:
            choice = (first.node_type, first.input_name, first.received)
    else:
        named = NODE_ID.search(details)
        node_id = shown(info.get("node_id")) or (named.group(1) if named else "")
        node_type = shown(info.get("class_type"))
    facts = Failure(
        FailureClass.MISSING if lacks_node or lacks_model else FailureClass.INVALID,
        f"{server} rejected the prompt: {message}",
        node_id=node_id,
        node_type=node_type,
        exception_type=error_type,
        details=tuple(problem.line() for problem in problems) or ((details,) if details else ()),
        by_choice=bool(problems) and all(problem.problem == NOT_OFFERED for problem in problems),
    )
    return PromptRejected(facts.message, facts, choice, answer if isinstance(answer.get("error"), dict) else None)
