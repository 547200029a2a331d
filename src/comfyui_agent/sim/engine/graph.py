"""The order in which the nodes of a prompt run, and the keys under which their results are cached."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any

from comfyui_agent.sim.prompt_queue import Json


def is_link(value: Any) -> bool:
    """`[node_id, slot]`; a literal list of another shape is a value."""
    return (
        isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int | float)
    )


class ExecutionOrder:
    """The nodes that still have to run. Ready output nodes come first, then those nearest to an output node."""

    def __init__(self, prompt: Json, is_cached: Callable[[str], bool], is_output: Callable[[str], bool]) -> None:
        self._prompt = prompt
        self._is_cached = is_cached
        self._is_output = is_output
        self._waiting: dict[str, int] = {}
        self._feeds: dict[str, set[str]] = {}

    def add(self, node_id: str) -> None:
        stack = [node_id]
        links = []
        while stack:
            current = stack.pop()
            if current in self._waiting:
                continue
            self._waiting[current] = 0
            self._feeds[current] = set()
            for value in self._prompt[current]["inputs"].values():
                if is_link(value):
                    if not self._is_cached(value[0]):
                        stack.append(value[0])
                    links.append((value[0], current))
        for source, target in links:
            if not self._is_cached(source) and target not in self._feeds[source]:
                self._feeds[source].add(target)
                self._waiting[target] += 1

    def pick(self) -> str | None:
        """The next node to run; None when all have run."""
        ready = [node_id for node_id, blocked in self._waiting.items() if blocked == 0]
        if not ready:
            return None
        for node_id in ready:
            if self._is_output(node_id):
                return node_id
        for node_id in ready:
            if any(self._is_output(target) for target in self._feeds[node_id]):
                return node_id
        for node_id in ready:
            if any(self._is_output(last) for target in self._feeds[node_id] for last in self._feeds[target]):
                return node_id
        return ready[0]

    def finish(self, node_id: str) -> None:
        del self._waiting[node_id]
        for target in self._feeds.pop(node_id):
            self._waiting[target] -= 1


def cache_keys(prompt: Json, fingerprint: Callable[[str], Any]) -> dict[str, str]:
    """A key for each node, made of class, fingerprint and literals of the node and of all its ancestors.

    Node ids and titles do not count.
    """
    return {node_id: _key(prompt, node_id, fingerprint) for node_id in prompt}


def _key(prompt: Json, node_id: str, fingerprint: Callable[[str], Any]) -> str:
    ancestors: dict[str, int] = {}
    _collect(prompt, node_id, ancestors)
    parts = [_own_part(prompt, member, ancestors, fingerprint) for member in (node_id, *ancestors)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _collect(prompt: Json, node_id: str, ancestors: dict[str, int]) -> None:
    if node_id not in prompt:
        return
    inputs = prompt[node_id]["inputs"]
    for name in sorted(inputs):
        if is_link(inputs[name]):
            source = inputs[name][0]
            if source not in ancestors:
                ancestors[source] = len(ancestors)
                _collect(prompt, source, ancestors)


def _own_part(prompt: Json, node_id: str, ancestors: dict[str, int], fingerprint: Callable[[str], Any]) -> list[Any]:
    if node_id not in prompt:
        return ["missing", node_id]
    inputs = prompt[node_id]["inputs"]
    part: list[Any] = [prompt[node_id]["class_type"], fingerprint(node_id)]
    for name in sorted(inputs):
        value = inputs[name]
        part.append([name, ["ANCESTOR", ancestors[value[0]], value[1]] if is_link(value) else _literal(value)])
    return part


def _literal(value: Any) -> Any:
    """NaN is not equal to itself, so a node with one is never found in the cache."""
    return uuid.uuid4().hex if value != value else value
