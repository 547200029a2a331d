"""What the wire layer asks of the engine behind it, and what an engine may send back to the clients.

The wire layer knows HTTP and websockets; an engine knows prompts. Anything that offers `Engine` can stand behind the
same routes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from comfyui_agent.sim.dialect import Dialect
from comfyui_agent.sim.settings import Folders

Json = dict[str, Any]


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


@dataclass(frozen=True)
class ValidationResult:
    """What validation found: `error` is set when nothing of the prompt can run."""

    error: Json | None
    outputs: list[str]
    node_errors: Json


@dataclass(frozen=True)
class Preview:
    """A picture of unfinished work, as encoded bytes."""

    mimetype: str
    image: bytes
    metadata: Json


class Audience(Protocol):
    """Where an engine sends what happens. Callable from any thread; never blocks."""

    def tell(self, event: str, data: Json, client_id: str | None) -> None:
        """Send to one client, or to all when `client_id` is None."""

    def show(self, preview: Preview, client_id: str | None) -> None: ...

    def wants_preview_metadata(self, client_id: str | None) -> bool: ...


class Engine(Protocol):
    """A prompt engine: one queue, one history, one worker."""

    dialect: Dialect
    folders: Folders

    def take_number(self) -> int:
        """The next queue number; asked for even when the prompt is rejected later."""

    def validate(self, prompt: Any, targets: Any) -> ValidationResult: ...

    def put(self, item: QueueItem) -> None: ...

    def remaining(self) -> int: ...

    def queue(self) -> tuple[list[QueueItem], list[QueueItem]]:
        """Running and pending, the pending ones in heap order."""

    def delete_pending(self, prompt_id: Any) -> bool: ...

    def clear_pending(self) -> None: ...

    def history(self, max_items: int | None = None, offset: int = -1) -> Json: ...

    def history_of(self, prompt_id: str) -> Json: ...

    def delete_history(self, prompt_ids: Iterable[Any]) -> None: ...

    def clear_history(self) -> None: ...

    def interrupt(self) -> None: ...

    def free(self, unload_models: bool, free_memory: bool) -> None: ...

    def object_info(self, node_class: str | None = None) -> Json: ...

    def system_stats(self) -> Json: ...

    def models(self) -> dict[str, list[str]]: ...

    def executing_now(self) -> tuple[str | None, str | None]:
        """The client whose prompt runs, and the node it is at."""
