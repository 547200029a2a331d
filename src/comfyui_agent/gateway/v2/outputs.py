"""The results of a job as outputs, which are assets whose ids say which result of which job they are."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from comfyui_agent.comfy.results import TEXTS, Results
from comfyui_agent.comfy.shapes import optional_list, optional_object
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.gateway.context import Caller
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import PostedPrompt
from comfyui_agent.wire.file_routes import TYPES

FILE_TYPE = "application/octet-stream"
TEXT_TYPE = "text/plain"
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
    kept: str = ""
    text: str = ""

    @property
    def content_type(self) -> str:
        return (TYPES.guess_type(self.name)[0] or FILE_TYPE) if self.kept else TEXT_TYPE

    @property
    def kind(self) -> str:
        kind = self.content_type.partition("/")[0]
        return "latent" if self.name.endswith(".latent") else kind if kind in KINDS else "file"

    async def content(self, caller: Caller) -> Path | bytes:
        """OSError if the file is gone."""
        return await caller.gateway.result_file(self.kept) if self.kept else self.text.encode()


def output_id(prompt: PostedPrompt, take: int, number: int) -> str:
    """A UUID with the job, the take and the number of a result, and a check that needs the id of the prompt, which
    nobody can guess."""
    told = f"{prompt.prompt_id} {prompt.job_id} {take} {number}".encode()
    check = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big") >> (64 - CHECK_BITS)
    found = (((prompt.job_id << 4 | 8) << SMALL_BITS | number) << 2 | 2) << SMALL_BITS | take
    return str(uuid.UUID(int=found << CHECK_BITS | check))


async def find_output(caller: Caller, asset_id: str) -> JobOutput | None:
    """The result that an id speaks of, while its job is kept and the caller may see it."""
    try:
        number = uuid.UUID(asset_id).int
    except ValueError:
        return None
    take, index = number >> CHECK_BITS & (MOST - 1), number >> (CHECK_BITS + SMALL_BITS + 2) & (MOST - 1)
    prompts = await caller.gateway.store.run(ops.find_prompts, [JobId(number >> 80)])
    if not prompts or caller.owner not in (None, prompts[0].created_by):
        return None
    prompt = prompts[0]
    if take == (prompt.take or 1):
        return next((each for each in await outputs_of(caller, prompt) if each.id == asset_id), None)
    takes = await caller.gateway.store.run(ops.list_takes, prompt.job_id)
    kept = next((each.outputs for each in takes if each.number == take), ())
    if index >= len(kept) or asset_id != output_id(prompt, take, index):
        return None
    return JobOutput(asset_id, prompt, "", PurePosixPath(kept[index]).name, kept[index])


async def outputs_of(caller: Caller, prompt: PostedPrompt) -> list[JobOutput]:
    """What a job that is done has made, under the names that its client chose."""
    if prompt.status != "done":
        return []
    shown = optional_object(((await caller.gateway.entries.entry(prompt)) or {}).get("outputs"))
    files = Results.read(shown).kept
    found: list[dict[str, Any]] = []
    for index, kept in enumerate(prompt.outputs):
        file = files[index] if index < len(files) else None
        node_id = file.node_id if file is not None else next(iter(prompt.targets), "")
        name = PurePosixPath(file.filename if file is not None else kept).name
        found.append({"node_id": node_id, "name": name, "kept": kept})
    found += _texts(shown)
    take = prompt.take or 1
    return [JobOutput(output_id(prompt, take, n), prompt, **facts) for n, facts in enumerate(found[:MOST])]


def _texts(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"node_id": node_id, "name": f"{node_id}_{key}_{number}.txt", "text": text}
        for node_id, node in shown.items()
        for key in TEXTS
        for number, text in enumerate(optional_list(optional_object(node).get(key)))
        if isinstance(text, str)
    ]
