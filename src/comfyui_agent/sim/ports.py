"""The interface between the wire, which knows HTTP and websockets, and the engine, which knows prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from comfyui_agent.sim.dialect import Dialect
from comfyui_agent.sim.prompt_queue import Json, PromptQueue
from comfyui_agent.sim.settings import Folders


@dataclass(frozen=True)
class ValidationResult:
    """The result of a validation. `error` is set when nothing of the prompt can run."""

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
    """Where an engine sends events. Callable from any thread; never blocks."""

    def tell(self, event: str, data: Json, client_id: str | None) -> None:
        """Send to one client, or to all when `client_id` is None."""

    def show(self, preview: Preview, client_id: str | None) -> None: ...

    def wants_preview_metadata(self, client_id: str | None) -> bool: ...


class Engine(Protocol):
    """A prompt engine with one worker."""

    dialect: Dialect
    folders: Folders
    prompts: PromptQueue

    def validate(self, prompt: Any, targets: Any) -> ValidationResult: ...

    def interrupt(self) -> None: ...

    def object_info(self, node_class: str | None = None) -> Json: ...

    def system_stats(self) -> Json: ...

    def models(self) -> dict[str, list[str]]: ...

    def executing_now(self) -> tuple[str | None, str | None]:
        """The client whose prompt runs, and the node that runs."""
