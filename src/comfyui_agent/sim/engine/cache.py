"""Results of nodes that need not run again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from comfyui_agent.sim.prompt_queue import Json


@dataclass(frozen=True)
class Cached:
    """The result of one run of a node: values for other nodes, and what it shows."""

    values: tuple[Any, ...]
    shown: Json | None
    meta: Json | None


class OutputCache:
    """The classic cache keeps what the last prompt used. The roomy one keeps the newest results of all prompts."""

    ROOM = 500

    def __init__(self, roomy: bool) -> None:
        self._roomy = roomy
        self._entries: OrderedDict[str, Cached] = OrderedDict()
        self._keys: dict[str, str] = {}

    def start_prompt(self, keys: dict[str, str]) -> None:
        self._keys = keys
        if not self._roomy:
            used = set(keys.values())
            self._entries = OrderedDict((key, entry) for key, entry in self._entries.items() if key in used)

    def get(self, node_id: str) -> Cached | None:
        return self._entries.get(self._keys.get(node_id, ""))

    def set(self, node_id: str, entry: Cached) -> None:
        key = self._keys[node_id]
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while self._roomy and len(self._entries) > self.ROOM:
            self._entries.popitem(last=False)

    def drop(self) -> None:
        self._entries.clear()
