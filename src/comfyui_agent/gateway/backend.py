"""The gateway's side of ComfyUI's protocol: the store is the queue and the history, the fleet is the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.gateway.context import DIALECT, Caller
from comfyui_agent.gateway.names import in_order
from comfyui_agent.gateway.presentation import item_at, kept_results, queue_item
from comfyui_agent.gateway.submissions import submit_prompt
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import OpenPrompt, PostedPrompt
from comfyui_agent.wire.jobs import JobPage, JobQuery, detailed_job, select_jobs, waiting_jobs
from comfyui_agent.wire.places import FilePlace, Roots, Upload
from comfyui_agent.wire.prompts import Accepted, Json, Queue, Rejected, Submission, history_slice

MOST_LISTED = 1_000
"""The history lists so many of the newest prompts. Each older one is found by its id."""
MOST_OPEN = 10_000
ROOTS: Roots = {kind: Path("/") / kind for kind in ("output", "input", "temp")}


@dataclass(frozen=True)
class GatewayBackend(Caller):
    """What one caller may see and change."""

    @property
    def roots(self) -> Roots:
        return ROOTS

    # Queueing.

    async def skip_number(self) -> None:
        """Numbers are those of jobs: a prompt that is refused has none."""

    async def submit(self, submission: Submission) -> Accepted | Rejected:
        return await submit_prompt(self, submission)

    # Reading back.

    async def queue(self) -> Queue:
        opened = sorted(await self._open(), key=lambda each: (each.priority, each.job_id))
        found = await self.gateway.store.run(ops.find_prompts, [each.job_id for each in opened])
        running = [prompt for prompt in found if self.is_running(prompt)]
        waiting = [prompt for prompt in found if prompt not in running and prompt.ended_at is None]
        return Queue(list(map(queue_item, running)), list(map(queue_item, waiting)))

    def is_running(self, prompt: PostedPrompt | OpenPrompt) -> bool:
        """Whether a server executes it. One that was handed to a server and waits there is still pending."""
        is_heard = self.gateway.relay.started(prompt.prompt_id) is not None
        return prompt.status == "processing" and (is_heard or prompt.has_run)

    async def _open(self) -> list[OpenPrompt]:
        return await self.gateway.store.run(ops.open_prompts, self.owner, MOST_OPEN)

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
        prompt = await self.find(prompt_id)
        return await self.gateway.entries.entry(prompt) if prompt is not None and prompt.ended_at is not None else None

    async def forget(self, prompt_ids: Iterable[Any] | None) -> None:
        """Take prompts out of what clients see. Jobs and results stay."""
        store = self.gateway.store
        if prompt_ids is None:
            ids: Sequence[JobId] = await store.run(ops.ended_prompts, self.owner, MOST_OPEN)
        else:
            found = [await self.find(prompt_id) for prompt_id in prompt_ids]
            ids = [prompt.job_id for prompt in found if prompt is not None]
        if ids:
            await store.run(ops.hide_prompts, ids)

    async def jobs(self, query: JobQuery) -> JobPage:
        return select_jobs(query, await self.queue(), (await self._history()).values(), DIALECT)

    async def job(self, job_id: str) -> Json | None:
        prompt = await self.find(job_id)
        if prompt is None:
            return None
        if prompt.ended_at is not None:
            entry = await self.gateway.entries.entry(prompt)
            return None if entry is None else detailed_job(entry, DIALECT)
        item = queue_item(prompt)
        queue = Queue([item], []) if self.is_running(prompt) else Queue([], [item])
        return waiting_jobs(queue, DIALECT)[0]

    # Stopping.

    async def delete(self, prompt_ids: Iterable[Any] | None) -> None:
        """Take back prompts that wait, also those that wait at a server."""
        wanted = None if prompt_ids is None else set(map(str, prompt_ids))
        if wanted is None or wanted:
            found = [each for each in await self._open() if wanted is None or each.prompt_id in wanted]
            running = [each.prompt_id for each in found if self.is_running(each)]
            await self.stop([each for each in found if each.prompt_id not in running])
            if wanted is not None and running:
                self.gateway.not_deleted[self._caller] = running[-1]

    async def interrupt(self, prompt_id: Any | None) -> None:
        """Stop one prompt that runs. Without an id, the one that the caller last tried to delete while it ran, which is
        how comfy-cli cancels; else the one that has run longest of those the caller may stop."""
        running = [each for each in await self._open() if self.is_running(each)]
        running.sort(key=lambda each: self.gateway.relay.started(each.prompt_id) or 0)
        if prompt_id is None:
            not_deleted = self.gateway.not_deleted.pop(self._caller, None)
            chosen = [each for each in running if each.prompt_id == not_deleted] or running
        else:
            chosen = [each for each in running if each.prompt_id == prompt_id]
        await self.stop(chosen[:1])

    @property
    def _caller(self) -> str:
        return f"{self.actor.address} {self.actor.token_id}"

    async def cancel(self, prompt_id: Any) -> bool:
        return bool(await self.stop([each for each in await self._open() if each.prompt_id == prompt_id]))

    async def stop(self, prompts: Sequence[OpenPrompt | PostedPrompt]) -> Sequence[JobId]:
        """Cancel prompts, whatever they are at. Returns the jobs of those that had not ended."""
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
        return await self.gateway.offered_uploads.offer(info)

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
            return await gateway.result_file(kept)
        shown = await gateway.facts.view(prompt.server, item_at(origin)) if prompt.server is not None else None
        return None if shown is None else shown[0]

    async def save_upload(self, upload: Upload) -> str:
        return await self.gateway.uploads.save(upload)
