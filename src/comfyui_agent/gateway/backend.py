"""The gateway's side of ComfyUI's protocol: the store is the queue and the history, the fleet is the server."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from comfyui_agent.config.sealing import SecretBox
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, GATEWAY, JobId, NewJob, Template
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.prompts import lift_values, mint_prompt_id
from comfyui_agent.files.connect import open_files
from comfyui_agent.gateway.names import Entries, in_order
from comfyui_agent.gateway.presentation import item_at, kept_results, names_of, queue_item
from comfyui_agent.gateway.relay import Relay
from comfyui_agent.gateway.uploads import Uploads
from comfyui_agent.gateway.validation import (
    FleetDefinitions,
    check_prompt,
    has_own_checks,
    may_be_wrong,
    named_files,
    output_nodes,
    upload_path,
)
from comfyui_agent.pools import OBJECTS
from comfyui_agent.sim.engine.validation import ValidationResult
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import NewPrompt, OpenPrompt, PostedPrompt
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.jobs import JobPage, JobQuery, detailed_job, select_jobs, waiting_jobs
from comfyui_agent.wire.places import FilePlace, Roots, Upload
from comfyui_agent.wire.prompts import Accepted, Json, Queue, Rejected, Submission, history_slice

DIALECT = Dialect("0.33.0")
MOST_LISTED = 1_000
"""The history lists so many of the newest prompts. Each older one is found by its id."""
MOST_OPEN = 10_000
FRONT, LAST = 10, 90
VERDICT_SECONDS = 2.0
"""How long the answer to a post waits for a free server's own."""
ROOTS: Roots = {kind: Path("/") / kind for kind in ("output", "input", "temp")}


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


@dataclass(frozen=True)
class GatewayBackend:
    """What one caller may see and change: everything, or what was made with their token."""

    gateway: Gateway
    actor: Actor

    @property
    def owner(self) -> int | None:
        """The token that prompts belong to; None for who may see all."""
        return self.actor.rights.token_id

    @property
    def roots(self) -> Roots:
        return ROOTS

    # Queueing.

    async def skip_number(self) -> None:
        """Numbers are those of jobs: a prompt that is refused has none."""

    async def submit(self, submission: Submission) -> Accepted | Rejected:
        gateway, prompt = self.gateway, submission.prompt
        prompt_id = submission.prompt_id or mint_prompt_id()
        gateway.definitions.use(await gateway.facts.object_info(None))
        named = named_files(prompt)
        uploads = await gateway.uploads.find({upload_path(value) for value in named.values()})
        verdict = check_prompt(gateway.definitions, prompt, submission.targets, uploads, DIALECT)
        if may_be_wrong(gateway.definitions, prompt, verdict):  # a server has the last word
            verdict = ValidationResult(None, output_nodes(gateway.definitions, prompt, submission.targets), {})
        if verdict.error is not None:
            return await self._known(prompt_id) or Rejected(verdict.error, verdict.node_errors)
        pictures = {
            place: uploads[upload_path(value)] for place, value in named.items() if upload_path(value) in uploads
        }
        is_asked = has_own_checks(gateway.definitions, prompt) and await self._is_server_free()
        with gateway.relay.awaiting_verdict(prompt_id) as judged:
            made = await self._post(submission, prompt_id, verdict.outputs, pictures)
            if made is None:
                return await self._known(prompt_id) or _refused("prompt_id_taken", "a job of E3 has this name already")
            if is_asked:
                await asyncio.wait({judged}, timeout=VERDICT_SECONDS)
                if (rejected := await self._rejection(prompt_id)) is not None:
                    return rejected
        return Accepted(prompt_id, made, verdict.node_errors)

    async def _post(
        self, submission: Submission, prompt_id: str, targets: list[str], pictures: Mapping[str, str]
    ) -> float | None:
        """Commit the prompt as a job. Returns its number; None if a job has that name."""
        item = submission.queued(submission.number or 0.0, targets, round(time.time() * 1000))
        bare, values = lift_values(item.prompt)
        template = Template.of(bare)
        client_id = item.extra_data.get("client_id")
        job = NewJob(
            prompt_id,
            job_type_of(item.prompt),
            f"wf_{template.hash[:8]}",
            template,
            values,
            priority=await self._priority(submission),
            retry_limit=0,
            source=GATEWAY,
            pictures=pictures,
            created_by=self.actor.token_id,
        )
        secrets = None
        if item.sensitive:
            secrets = await OBJECTS.run(SecretBox(self.gateway.workspace.secrets_key).seal, item.sensitive)
        posted = NewPrompt(
            str(client_id) if client_id is not None else None,
            submission.number,
            submission.front,
            item.extra_data,
            targets,
            secrets,
        )
        audit = Event(EventName.AUDIT_JOB_SUBMIT, actor=self.actor.name, address=self.actor.address)
        self.gateway.store.hurry()
        async with self.actor.room(1):
            made = await self.gateway.store.run_eagerly(ops.post_prompt, job, posted, audit)
        self.gateway.relay.wake()
        if made is None:
            return None
        self.gateway.relay.expect(prompt_id, made[0], item.prompt)
        return made[1]

    async def _is_server_free(self) -> bool:
        return self.gateway.hears() and await self.remaining() < self.gateway.facts.servers

    async def _rejection(self, prompt_id: str) -> Rejected | None:
        """The answer of the server that refused a prompt. The caller hears of it once: clients see no such prompt."""
        prompt = await self._find(prompt_id)
        answer = prompt.entry.get("rejected") if prompt is not None and prompt.ended_at is not None else None
        if prompt is None or not isinstance(answer, dict):
            return None
        await self.gateway.store.run(ops.hide_prompts, [prompt.job_id])
        await self.gateway.store.run(ops.note_told, [prompt.job_id])
        said = names_of(prompt).text(answer)
        return Rejected(said["error"], said.get("node_errors", {}))

    async def _known(self, prompt_id: str) -> Accepted | Rejected | None:
        """The answer to an id that was posted before: the same job, never a second one."""
        known = await self._find(prompt_id)
        return None if known is None else Accepted(prompt_id, known.number, {})

    async def _priority(self, submission: Submission) -> int:
        """Lower numbers come first. Without one, a prompt comes behind what is there, or in front of all. Users get no
        further than `ui.user_priority_floor`."""
        wanted, floor = await self._wanted_priority(submission), self.actor.lowest_priority
        return wanted if floor is None else max(wanted, floor)

    async def _wanted_priority(self, submission: Submission) -> int:
        if submission.number is None:
            return await self._in_front() if submission.front else DEFAULT_PRIORITY
        if not math.isfinite(submission.number):
            return LAST if submission.number > 0 else FRONT
        waiting = await self.gateway.store.run(ops.open_prompts, None, 1)
        ahead = submission.number - (waiting[0].job_id if waiting else 0)
        return max(FRONT, min(LAST, DEFAULT_PRIORITY + math.floor(ahead)))

    async def _in_front(self) -> int:
        first = await self.gateway.store.run(ops.first_posted_priority)
        return min(FRONT, first - 1) if first is not None else FRONT

    # Reading back.

    async def remaining(self) -> int:
        return await self.gateway.store.run(ops.count_open_prompts)

    async def queue(self) -> Queue:
        opened = sorted(await self._open(), key=lambda each: (each.priority, each.job_id))
        found = await self.gateway.store.run(ops.find_prompts, [each.job_id for each in opened])
        running = [prompt for prompt in found if self._is_running(prompt)]
        waiting = [prompt for prompt in found if prompt not in running and prompt.ended_at is None]
        return Queue(list(map(queue_item, running)), list(map(queue_item, waiting)))

    def _is_running(self, prompt: PostedPrompt | OpenPrompt) -> bool:
        """Whether a server executes it. One that was handed to a server and waits there is still pending."""
        is_heard = self.gateway.relay.started(prompt.prompt_id) is not None
        return prompt.status == "processing" and (is_heard or prompt.has_run)

    async def _open(self) -> list[OpenPrompt]:
        return await self.gateway.store.run(ops.open_prompts, self.owner, MOST_OPEN)

    async def _find(self, prompt_id: Any) -> PostedPrompt | None:
        if not isinstance(prompt_id, str):
            return None
        prompt = await self.gateway.store.run(ops.find_prompt, prompt_id)
        return prompt if prompt is not None and self.owner in (None, prompt.created_by) else None

    async def history(self, max_items: int | None, offset: int) -> Json:
        entries = await self._history()
        part = history_slice(len(entries), max_items, offset)
        return dict(list(entries.items())[part])

    async def _history(self) -> dict[str, Json]:
        """The newest entries, oldest first."""
        store, gateway = self.gateway.store, self.gateway
        ids = list(reversed(await store.run(ops.ended_prompts, self.owner, MOST_LISTED)))
        known = gateway.entries.known()
        missing = [job_id for job_id in ids if job_id not in known]
        for prompt in await store.run(ops.find_prompts, missing) if missing else ():
            known[prompt.job_id] = await gateway.entries.listed(prompt)
        found = in_order([known[job_id] for job_id in ids if job_id in known])
        return {each.entry["prompt"][1]: each.entry for each in found if each.entry is not None}

    async def history_of(self, prompt_id: str) -> Json | None:
        prompt = await self._find(prompt_id)
        return await self.gateway.entries.entry(prompt) if prompt is not None and prompt.ended_at is not None else None

    async def forget(self, prompt_ids: Iterable[Any] | None) -> None:
        """Take prompts out of what clients see. Jobs and results stay."""
        store = self.gateway.store
        if prompt_ids is None:
            ids: Sequence[JobId] = await store.run(ops.ended_prompts, self.owner, MOST_OPEN)
        else:
            found = [await self._find(prompt_id) for prompt_id in prompt_ids]
            ids = [prompt.job_id for prompt in found if prompt is not None]
        if ids:
            await store.run(ops.hide_prompts, ids)

    async def jobs(self, query: JobQuery) -> JobPage:
        return select_jobs(query, await self.queue(), (await self._history()).values(), DIALECT)

    async def job(self, job_id: str) -> Json | None:
        prompt = await self._find(job_id)
        if prompt is None:
            return None
        if prompt.ended_at is not None:
            entry = await self.gateway.entries.entry(prompt)
            return None if entry is None else detailed_job(entry, DIALECT)
        item = queue_item(prompt)
        queue = Queue([item], []) if self._is_running(prompt) else Queue([], [item])
        return waiting_jobs(queue, DIALECT)[0]

    # Stopping.

    async def delete(self, prompt_ids: Iterable[Any] | None) -> None:
        """Take back prompts that wait, also those that wait at a server."""
        wanted = None if prompt_ids is None else set(map(str, prompt_ids))
        if wanted is None or wanted:
            found = [each for each in await self._open() if wanted is None or each.prompt_id in wanted]
            running = [each.prompt_id for each in found if self._is_running(each)]
            await self._cancel([each for each in found if each.prompt_id not in running])
            if wanted is not None and running:
                self.gateway.not_deleted[self._caller] = running[-1]

    async def interrupt(self, prompt_id: Any | None) -> None:
        """Stop one prompt that runs. Without an id, the one that the caller last tried to delete while it ran, which is
        how comfy-cli cancels; else the one that has run longest of those the caller may stop."""
        running = [each for each in await self._open() if self._is_running(each)]
        running.sort(key=lambda each: self.gateway.relay.started(each.prompt_id) or 0)
        if prompt_id is None:
            not_deleted = self.gateway.not_deleted.pop(self._caller, None)
            chosen = [each for each in running if each.prompt_id == not_deleted] or running
        else:
            chosen = [each for each in running if each.prompt_id == prompt_id]
        await self._cancel(chosen[:1])

    @property
    def _caller(self) -> str:
        return f"{self.actor.address} {self.actor.token_id}"

    async def cancel(self, prompt_id: Any) -> bool:
        return bool(await self._cancel([each for each in await self._open() if each.prompt_id == prompt_id]))

    async def _cancel(self, prompts: Sequence[OpenPrompt]) -> Sequence[JobId]:
        if not prompts:
            return []
        for each in prompts:
            await self.gateway.relay.note_interrupted(each.prompt_id)
        cancelled = await self.gateway.store.run(ops.cancel_jobs, [each.job_id for each in prompts])
        self.gateway.relay.wake()
        for job_id in cancelled:
            await self.actor.audit(self.gateway.store, EventName.AUDIT_JOB_CANCEL, job_id=job_id)
        return cancelled

    # The fleet.

    async def free(self, unload_models: bool, free_memory: bool) -> None:
        await self.gateway.facts.free(unload_models, free_memory)

    async def object_info(self, node_class: str | None) -> Json:
        info = await self.gateway.facts.object_info(node_class)
        return await self.gateway.uploads.offer(info)

    async def system_stats(self) -> Json:
        return await self.gateway.facts.system_stats()

    async def features(self) -> Json:
        return await self.gateway.facts.features()

    async def models(self) -> dict[str, list[str]]:
        return await self.gateway.facts.models()

    async def greeting(self, client_id: str) -> list[tuple[str, Json]]:
        return self.gateway.relay.greet(client_id)

    # Files.

    async def find_file(self, place: FilePlace) -> Path | bytes | None:
        """An upload; a result, where it is kept; or what a server has of a prompt that runs, or only showed."""
        gateway = self.gateway
        upload = await gateway.uploads.read(f"{place.kind}/{place.path}")
        if upload is not None:
            return upload
        owner = await gateway.store.run(ops.owner_of_file_seen, f"{place.kind}/{place.path}")
        found = await gateway.store.run(ops.find_prompts, [owner[0]]) if owner is not None else []
        if owner is None or not found or self.owner not in (None, found[0].created_by):
            return None
        (prompt,), (_, origin) = found, owner
        kept = kept_results(prompt).get(origin) if prompt.status == "done" else None
        if kept is not None:
            files = open_files(gateway.workspace.results, kept)
            return await OBJECTS.run(files.local, kept) if files.is_remote else gateway.workspace.inside(kept)
        shown = await gateway.facts.view(prompt.server, item_at(origin)) if prompt.server is not None else None
        return None if shown is None else shown[0]

    async def save_upload(self, upload: Upload) -> str:
        return await self.gateway.uploads.save(upload)


def _refused(kind: str, message: str) -> Rejected:
    return Rejected({"type": kind, "message": message, "details": message, "extra_info": {}}, {})
