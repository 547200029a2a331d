"""Names of files, given once and kept in the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from comfyui_agent.comfy.shapes import optional_object
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.gateway.presentation import RunNames, history_entry, names_of
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.store.store import Store
from comfyui_agent.wire.prompts import Json

ENTRIES_KEPT = 2_000
NO_PATHS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Listed:
    """A history entry, and the server that it came from. None: the prompt left no trace."""

    entry: Json | None
    server: str | None

    @property
    def finished(self) -> float:
        """When it ended, by the clock of its server."""
        messages = self.entry["status"].get("messages") if self.entry else None
        timestamp = messages[-1][1].get("timestamp") if messages else None
        return timestamp if isinstance(timestamp, (int, float)) else 0.0


def in_order(listed: Sequence[Listed]) -> list[Listed]:
    """Entries in the order in which they were stored; those of one server in the order in which it executed them, which
    may differ by milliseconds."""
    ordered = list(listed)
    for server in {each.server for each in listed}:
        places = [number for number, each in enumerate(listed) if each.server == server]
        for number, each in zip(places, sorted((listed[at] for at in places), key=lambda it: it.finished), strict=True):
            ordered[number] = each
    return ordered


class Entries:
    """History entries of ended prompts, with the names that clients see. They do not change any more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[JobId, str], Listed] = OrderedDict()

    async def named(self, names: RunNames, job_id: JobId, outputs: Json) -> RunNames:
        """The names of a run, with those of the files in these outputs."""
        files = names.new_files(outputs, datetime.now(timezone.utc))
        return replace(names, paths=await self._store.run(ops.name_files, job_id, files)) if files else names

    async def entry(self, prompt: PostedPrompt) -> Json | None:
        return (await self.listed(prompt)).entry

    async def listed(self, prompt: PostedPrompt, paths: Mapping[str, str] = NO_PATHS) -> Listed:
        """The entry of an ended prompt. `paths`: names of its files that are known already."""
        key = prompt.job_id, prompt.ended_at or ""
        if key not in self._kept:
            names = await self.named(
                names_of(prompt, paths), prompt.job_id, optional_object(prompt.entry.get("outputs"))
            )
            self._kept[key] = Listed(history_entry(prompt, names.paths), prompt.server)
            if len(self._kept) > ENTRIES_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def known(self) -> dict[JobId, Listed]:
        return {job_id: listed for (job_id, _), listed in self._kept.items()}
