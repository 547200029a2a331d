"""The outcome of a prompt. A status of `success` alone is not a success."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.answers import HistoryEntry, Message
from comfyui_agent.comfy.rejections import NodeProblem
from comfyui_agent.comfy.results import Results, nodes_with_results
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.node_classes import LISTED, UNLISTED
from comfyui_agent.domain.prompts import Graph, class_of, natural_order

ENDINGS = ("execution_success", "execution_error", "execution_interrupted")
OUT_OF_MEMORY = (
    "out of memory",
    "out_of_memory",
    "out_of_device_memory",
    "allocation on device",
    "alloc_failed",
    "can't allocate memory",
    "not enough memory",
    "not enough gpu video memory",
)
MOST_NAMED = 5
LONGEST_REASON = 500
LONGEST_MESSAGE = 2_000
LONGEST_TRACEBACK = 16_000


@dataclass(frozen=True)
class Succeeded:
    """The prompt ran to its end and has every expected output."""

    prompt_id: str
    results: Results
    cached_nodes: frozenset[str] = frozenset()
    started_at: float | None = None
    ended_at: float | None = None
    evidence: str = "history"
    entry: HistoryEntry | None = field(default=None, compare=False)

    @property
    def seconds(self) -> float | None:
        """Execution time by the server's own clock."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, self.ended_at - self.started_at)

    @property
    def is_cached(self) -> bool:
        """Whether nothing was executed but the nodes that save."""
        made = set(self.entry.graph) - set(self.entry.outputs_to_execute) if self.entry else set()
        return bool(made) and made <= self.cached_nodes


@dataclass(frozen=True)
class Failed:
    """The prompt gave no usable result. `partial` is what it left before it failed."""

    prompt_id: str
    failure: Failure
    partial: Results = field(default_factory=Results)
    cached_nodes: frozenset[str] = frozenset()
    entry: HistoryEntry | None = field(default=None, compare=False)


Outcome = Succeeded | Failed


@dataclass(frozen=True)
class PromptFacts:
    """Facts about a prompt that its history does not have."""

    node_errors: tuple[NodeProblem, ...] = ()
    dropped: frozenset[str] = frozenset()
    expected: frozenset[str] | None = None
    cancel_requested: bool = False
    heard_errors: tuple[Mapping[str, Any], ...] = field(default=())


def read_outcome(entry: HistoryEntry, known: PromptFacts) -> Outcome:
    """The outcome of an ended prompt by its last known ending. A failure does not name server and prompt yet."""
    results = Results.read(entry.outputs)
    ending = next((message for message in reversed(entry.messages) if message.event in ENDINGS), None)
    failure = (
        _bad_ending(entry, ending, known)
        or _dropped_outputs(entry, known)
        or _missing_outputs(entry, results, known)
        or _nothing_at_all(entry, results, known)
    )
    cached_message = next((message for message in entry.messages if message.event == "execution_cached"), None)
    nodes = shapes.optional_list(cached_message.data.get("nodes")) if cached_message else []
    cached = frozenset(node_id for node_id in nodes if isinstance(node_id, str))
    if failure is not None:
        return Failed(entry.prompt_id, failure, results, cached, entry)
    started = next((m.timestamp for m in entry.messages if m.event == "execution_start"), None)
    ended = ending.timestamp if ending else None
    return Succeeded(entry.prompt_id, results, cached, started, ended, entry=entry)


def read_error(data: Mapping[str, Any]) -> Failure:
    exception_type = shapes.shown(data.get("exception_type"))
    message = shapes.optional_text(data.get("exception_message")).strip()[:LONGEST_MESSAGE]
    traceback = tuple(filter(None, map(shapes.optional_text, shapes.optional_list(data.get("traceback")))))
    text = "".join(traceback)
    is_out_of_memory = exception_type.endswith("MemoryError") or any(each in message.lower() for each in OUT_OF_MEMORY)
    return Failure(
        FailureClass.OOM if is_out_of_memory else FailureClass.EXECUTION,
        message or exception_type or "the server names no reason",
        node_id=shapes.shown(data.get("node_id")),
        node_type=shapes.shown(data.get("node_type")),
        exception_type=exception_type,
        traceback=traceback if len(text) <= LONGEST_TRACEBACK else ("…\n" + text[-LONGEST_TRACEBACK:],),
    )


def _bad_ending(entry: HistoryEntry, ending: Message | None, known: PromptFacts) -> Failure | None:
    if ending is not None and ending.event == "execution_error":
        return read_error(ending.data)
    if ending is not None and ending.event == "execution_interrupted":
        kind, message = FailureClass.INTERRUPTED, "someone else interrupted it"
        if known.cancel_requested:
            kind, message = FailureClass.CANCELLED, "cancelled while it ran"
        node_id, node_type = (shapes.shown(ending.data.get(name)) for name in ("node_id", "node_type"))
        return Failure(kind, message, node_id=node_id, node_type=node_type)
    agrees = entry.status != "error" if ending is not None else entry.status == "success" and entry.completed
    if not agrees:
        message = f"the prompt ended with status {shapes.shown(entry.status) or 'unknown'!r} and without a reason"
        return Failure(FailureClass.EXECUTION, message)
    return None


def _dropped_outputs(entry: HistoryEntry, known: PromptFacts) -> Failure | None:
    """The failure of a prompt of which the server left out invalid outputs."""
    if known.node_errors:
        first = known.node_errors[0]
        lacking = all(problem.lacks_model for problem in known.node_errors)
        kind = FailureClass.MISSING if lacking else FailureClass.INVALID
        message = f"the server ran only a part of the prompt: {first.line()}"
        details = tuple(problem.line() for problem in known.node_errors)
        return Failure(kind, message, node_id=first.node_id, node_type=first.node_type, details=details)
    if known.dropped:
        message = f"the server ran only a part of the prompt, without {_nodes(entry.graph, known.dropped)}"
        return Failure(FailureClass.INVALID, message)
    return None


def _missing_outputs(entry: HistoryEntry, results: Results, known: PromptFacts) -> Failure | None:
    expected = known.expected
    if expected is None:  # the executed nodes of classes that always list what they save
        executed = entry.outputs_to_execute
        expected = frozenset(node_id for node_id in executed if class_of(entry.graph, node_id) in LISTED)
    missing = expected - {file.node_id for file in results.files}
    missing = missing - nodes_with_results(entry.outputs) if missing else missing
    if not missing:
        return None
    blocked = next((data for data in known.heard_errors if data.get("node_id")), None)
    reason = shapes.shown(blocked.get("exception_message"), LONGEST_REASON) if blocked else ""
    message = f"the server reports success, but {_nodes(entry.graph, missing)} left no result"
    return Failure(FailureClass.OUTPUT, f"{message} ({reason})" if reason else message)


def _nothing_at_all(entry: HistoryEntry, results: Results, known: PromptFacts) -> Failure | None:
    wants_nothing = all(class_of(entry.graph, node_id) in UNLISTED for node_id in entry.outputs_to_execute)
    if not results.is_empty or known.expected == frozenset() or (entry.outputs_to_execute and wants_nothing):
        return None
    return Failure(FailureClass.OUTPUT, "the server reports success, but no node left a result")


def _nodes(graph: Graph, node_ids: Iterable[str]) -> str:
    ordered = natural_order(node_ids)
    names = [f"node {shapes.shown(each)} ({shapes.shown(class_of(graph, each))})" for each in ordered[:MOST_NAMED]]
    return ", ".join(names) + (f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else "")
