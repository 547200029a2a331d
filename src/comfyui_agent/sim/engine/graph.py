"""Which nodes of a prompt run, in which order, and which are answered from the cache."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from comfyui_agent.sim.engine.values import Result
from comfyui_agent.wire.prompts import Json


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
                if is_link(value) and not self._is_cached(value[0]):
                    stack.append(value[0])
                    links.append((value[0], current))
        for source, target in links:
            if target not in self._feeds[source]:
                self._feeds[source].add(target)
                self._waiting[target] += 1

    def pick(self) -> str | None:
        """The next node to run; None when all have run."""
        ready = [node_id for node_id, blocked in self._waiting.items() if blocked == 0]
        for steps in range(3):
            for node_id in ready:
                if self._leads_to_output(node_id, steps):
                    return node_id
        return ready[0] if ready else None

    def _leads_to_output(self, node_id: str, steps: int) -> bool:
        if steps == 0:
            return self._is_output(node_id)
        return any(self._leads_to_output(target, steps - 1) for target in self._feeds[node_id])

    def finish(self, node_id: str) -> None:
        del self._waiting[node_id]
        for target in self._feeds.pop(node_id):
            self._waiting[target] -= 1


class OutputCache:
    """Results by the key of their node. Those that a prompt does not use are dropped when it starts."""

    def __init__(self) -> None:
        self._entries: dict[str, Result] = {}
        self._keys: dict[str, str] = {}

    def start_prompt(self, keys: dict[str, str]) -> None:
        self._keys = keys
        used = set(keys.values())
        self._entries = {key: entry for key, entry in self._entries.items() if key in used}

    def get(self, node_id: str) -> Result | None:
        return self._entries.get(self._keys.get(node_id, ""))

    def set(self, node_id: str, entry: Result) -> None:
        self._entries[self._keys[node_id]] = entry

    def values(self) -> Iterator[Any]:
        return (value for entry in self._entries.values() for value in entry.values)

    def drop(self) -> None:
        self._entries.clear()


def cache_keys(prompt: Json, fingerprint: Callable[[str], Any]) -> dict[str, str]:
    """A key for each node, made of class, fingerprint and literals of the node and its ancestors, not of ids and
    titles."""
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
    for _, value in sorted(prompt[node_id]["inputs"].items()):
        if is_link(value) and value[0] not in ancestors:
            ancestors[value[0]] = len(ancestors)
            _collect(prompt, value[0], ancestors)


def _own_part(prompt: Json, node_id: str, ancestors: dict[str, int], fingerprint: Callable[[str], Any]) -> list[Any]:
    if node_id not in prompt:
        return ["missing", node_id]
    part: list[Any] = [prompt[node_id]["class_type"], fingerprint(node_id)]
    for name, value in sorted(prompt[node_id]["inputs"].items()):
        if is_link(value):
            value = ["ANCESTOR", ancestors[value[0]], value[1]]
        elif value != value:  # NaN is not equal to itself, so a node with one is never found in the cache
            value = uuid.uuid4().hex
        part.append([name, value])
    return part
