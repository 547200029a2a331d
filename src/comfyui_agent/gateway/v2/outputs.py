"""Assets as their ids name them: uploads, and results of jobs, whose ids say which result of which job they are."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.comfy.results import TEXTS, Results
from comfyui_agent.comfy.shapes import optional_list, optional_object
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.gateway.context import Caller
from comfyui_agent.gateway.v2.errors import not_found
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.wire.file_routes import TYPES

CHECK_BITS, SMALL_BITS = 50, 12
MOST = 1 << SMALL_BITS
KINDS = ("image", "video", "audio", "text")


@dataclass(frozen=True)
class JobOutput:
    """One result of a job: a kept file, or a text that a node showed."""

    id: str
    prompt: PostedPrompt
    node_id: str
    name: str
    kept: str
    text: str

    @property
    def content_type(self) -> str:
        return TYPES.guess_type(self.name)[0] or "application/octet-stream"

    @property
    def kind(self) -> str:
        kind = self.content_type.partition("/")[0]
        return "latent" if self.name.endswith(".latent") else kind if kind in KINDS else "file"


async def find_asset(caller: Caller, asset_id: str) -> Asset | JobOutput:
    """404 if there is none that the caller may see."""
    asset = await caller.gateway.store.run(ops.find_asset, asset_id, caller.owner)
    if asset is not None:
        return asset
    try:
        number = uuid.UUID(asset_id).int
    except ValueError:
        raise not_found("asset") from None
    prompts = await caller.gateway.store.run(ops.find_prompts, [JobId(number >> 80)])
    if prompts and caller.owner in (None, prompts[0].created_by):
        for output in await outputs_of(caller, prompts[0]):
            if output.id == asset_id:
                return output
    raise not_found("asset")


async def content_of(caller: Caller, found: Asset | JobOutput) -> Path | bytes:
    """A file on this machine, or a text. FileNotFoundError if it is gone."""
    if isinstance(found, JobOutput):
        if not found.kept:
            return found.text.encode()
        path: Path | None = await caller.gateway.result_file(found.kept)
    else:
        path = await caller.gateway.uploads.local(found.kept)
    if path is None or not path.is_file():
        raise FileNotFoundError(found.id)
    return path


async def outputs_of(caller: Caller, prompt: PostedPrompt) -> list[JobOutput]:
    """What a job that is done has made, under the names that its client chose."""
    entry = await caller.gateway.entries.entry(prompt) if prompt.status == "done" else None
    facts = list(_results(prompt, optional_object((entry or {}).get("outputs"))))
    return [JobOutput(_id(prompt, n), prompt, *each) for n, each in enumerate(facts[:MOST])]


def _results(prompt: PostedPrompt, shown: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Node, name, kept file and text of each result: files first."""
    files = Results.read(shown).kept
    for index, path in enumerate(prompt.outputs if prompt.status == "done" else ()):
        file = files[index] if index < len(files) else None
        node_id = file.node_id if file else next(iter(prompt.targets), "")
        yield node_id, PurePosixPath(file.filename if file else path).name, path, ""
    for node_id, node in shown.items():
        for text in (each for key in TEXTS for each in optional_list(optional_object(node).get(key))):
            if isinstance(text, str):
                yield node_id, f"{node_id}.txt", "", text


def _id(prompt: PostedPrompt, number: int) -> str:
    """A UUID with job, take and number, and a check that needs the id of the prompt, which nobody can guess."""
    told = f"{prompt.prompt_id} {prompt.job_id} {prompt.take} {number}".encode()
    check = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big") >> (64 - CHECK_BITS)
    found = (((prompt.job_id << 4 | 8) << SMALL_BITS | number) << 2 | 2) << SMALL_BITS | (prompt.take or 1) % MOST
    return str(uuid.UUID(int=found << CHECK_BITS | check))
