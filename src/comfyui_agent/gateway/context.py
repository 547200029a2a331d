"""What all callers of the gateway share, and one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.files.connect import open_files
from comfyui_agent.gateway.names import Entries
from comfyui_agent.gateway.offered_uploads import OfferedUploads
from comfyui_agent.gateway.relay import Relay
from comfyui_agent.gateway.validation import FleetDefinitions
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.uploads import Uploads
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json

DIALECT = Dialect("0.33.0")


class Facts(Protocol):
    """What is asked of the fleet."""

    @property
    def servers(self) -> int: ...
    async def object_info(self, node_class: str | None) -> Json: ...
    async def system_stats(self) -> Json: ...
    async def features(self) -> Json: ...
    async def models(self) -> dict[str, list[str]]: ...
    async def free(self, unload_models: bool, free_memory: bool) -> None: ...
    async def view(self, server: str, params: Mapping[str, str]) -> tuple[bytes, str] | None: ...


@dataclass
class Gateway:
    """What all callers share."""

    store: Store
    workspace: Workspace
    facts: Facts
    relay: Relay
    entries: Entries
    hears: Callable[[], bool]
    """Whether frames of agents reach this gateway."""
    definitions: FleetDefinitions = field(default_factory=FleetDefinitions)
    not_deleted: dict[str, str] = field(default_factory=dict)
    """By caller, the prompt that it last tried to delete while it ran."""

    def __post_init__(self) -> None:
        self.uploads = Uploads(self.store, self.workspace)
        self.offered_uploads = OfferedUploads(self.uploads)

    async def result_file(self, kept: str) -> Path:
        """A result on this machine, where it may have to be fetched. OSError or ValueError if that cannot be."""
        files = open_files(self.workspace.results, kept)
        return await OBJECTS.run(files.local, kept) if files.is_remote else self.workspace.inside(kept)


@dataclass(frozen=True)
class Caller:
    """Who asks: they see everything, or what was made with their token."""

    gateway: Gateway
    actor: Actor

    @property
    def owner(self) -> int | None:
        """The token that prompts belong to; None for who may see all."""
        return self.actor.rights.token_id

    async def remaining(self) -> int:
        return await self.gateway.store.run(ops.count_open_prompts)

    async def find(self, prompt_id: Any) -> PostedPrompt | None:
        if not isinstance(prompt_id, str):
            return None
        prompt = await self.gateway.store.run(ops.find_prompt, prompt_id)
        return prompt if prompt is not None and self.owner in (None, prompt.created_by) else None
