"""Prompts: as clients post them, as a server answers, and as it lists them in queue and history."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

from comfyui_agent.domain.prompts import mint_prompt_id

Json = dict[str, Any]
SECRETS = ("auth_token_comfy_org", "api_key_comfy_org")


class QueueItem(NamedTuple):
    """One prompt in the queue. A tuple, compared as ComfyUI compares it: by number, then id."""

    number: float
    prompt_id: str
    prompt: Json
    extra_data: Json
    outputs: list[str]
    sensitive: Json

    def shown(self) -> list[Any]:
        """The five elements that clients may see."""
        return list(self[:5])


class Queue(NamedTuple):
    running: list[QueueItem]
    pending: list[QueueItem]


@dataclass(frozen=True)
class Submission:
    """A posted prompt. Id and number are None where the server chooses; `front` counts only without a number."""

    prompt: Any
    prompt_id: str | None
    number: float | None
    front: bool
    extra_data: Json
    targets: Any
    """The output nodes to run; None for all."""

    def queued(self, number: float, outputs: list[str], create_time: int | None) -> QueueItem:
        """The prompt as it waits, with an id, and with its secrets where no client sees them."""
        extra_data = self.extra_data
        secrets = {key: extra_data.pop(key) for key in SECRETS if key in extra_data}
        if create_time is not None:
            extra_data["create_time"] = create_time
        prompt_id = mint_prompt_id() if self.prompt_id is None else self.prompt_id
        return QueueItem(number, prompt_id, self.prompt, extra_data, outputs, secrets)


@dataclass(frozen=True)
class Accepted:
    """A prompt that was queued; `node_errors` tells which of its outputs will not run."""

    prompt_id: str
    number: float
    node_errors: Json


@dataclass(frozen=True)
class Rejected:
    """A prompt of which nothing can run."""

    error: Json
    node_errors: Json


def is_canonical(prompt_id: Any) -> bool:
    """Whether an id is a UUID in the one form that newer versions take."""
    try:
        return isinstance(prompt_id, str) and str(uuid.UUID(prompt_id)) == prompt_id
    except ValueError:
        return False


def history_slice(total: int, max_items: int | None, offset: int) -> slice:
    """Which of the entries, oldest first, a client asked for. The real server gives one for 0 items and fewer."""
    if offset < 0 and max_items is not None:
        offset = total - max_items
    start = max(0, offset)
    return slice(start, None if max_items is None else start + max(1, max_items))
