"""The simulated engine behind the wire."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.wire.application import MAX_UPLOAD_BYTES
from comfyui_agent.wire.jobs import JobPage, JobQuery, detailed_job, select_jobs, waiting_jobs
from comfyui_agent.wire.places import FilePlace, Roots, Upload, names_to_try
from comfyui_agent.wire.prompts import Accepted, Json, Queue, Rejected, Submission

FEATURES: Json = {
    "supports_preview_metadata": True,
    "supports_model_type_tags": True,
    "max_upload_size": MAX_UPLOAD_BYTES,
    "extension": {"manager": {"supports_v4": True}},
    "node_replacements": True,
    "assets": False,
}
SINCE = {"supports_model_type_tags": "0.28", "node_replacements": "0.14", "assets": "0.17"}
"""The first versions with some of the features."""


class SimulatedBackend:
    """One queue, one history and three folders for everybody who asks."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._prompts = engine.prompts
        self.roots: Roots = engine.folders.roots

    async def submit(self, submission: Submission) -> Accepted | Rejected:
        number = submission.number
        if number is None:
            number = next(self._prompts.numbers) * (-1 if submission.front else 1)
        verdict = self._engine.validate(submission.prompt, submission.targets)
        if verdict.error is not None:
            return Rejected(verdict.error, verdict.node_errors)
        now = int(time.time() * 1000) if self._engine.dialect.create_time else None
        item = submission.queued(number, verdict.outputs, now)
        self._prompts.put(item)
        return Accepted(item.prompt_id, number, verdict.node_errors)

    async def skip_number(self) -> None:
        next(self._prompts.numbers)

    async def queue(self) -> Queue:
        return self._prompts.running_and_pending()

    async def remaining(self) -> int:
        return self._prompts.remaining()

    async def delete(self, prompt_ids: Iterable[Any] | None) -> None:
        if prompt_ids is None:
            self._prompts.clear()
        for prompt_id in prompt_ids or ():
            self._prompts.delete(prompt_id)

    async def interrupt(self, prompt_id: Any | None) -> None:
        if prompt_id is None or self._prompts.is_running(prompt_id):
            self._engine.interrupt()

    async def cancel(self, prompt_id: Any) -> bool:
        if self._prompts.delete(prompt_id):
            return True
        is_running = self._prompts.is_running(prompt_id)
        if is_running:
            self._engine.interrupt()
        return is_running

    async def history(self, max_items: int | None, offset: int) -> Json:
        return self._prompts.history(max_items, offset)

    async def history_of(self, prompt_id: str) -> Json | None:
        return self._prompts.history_of(prompt_id)

    async def forget(self, prompt_ids: Iterable[Any] | None) -> None:
        self._prompts.forget(prompt_ids)

    async def jobs(self, query: JobQuery) -> JobPage:
        queue = self._prompts.running_and_pending()  # before the history: what ends meanwhile is in one of them
        return select_jobs(query, queue, self._prompts.history().values(), self._engine.dialect)

    async def job(self, job_id: str) -> Json | None:
        entry = self._prompts.history_of(job_id)
        if entry is not None:
            return detailed_job(entry, self._engine.dialect)
        waiting = waiting_jobs(self._prompts.running_and_pending(), self._engine.dialect)
        return next((job for job in waiting if job["id"] == job_id), None)

    async def free(self, unload_models: bool, free_memory: bool) -> None:
        for flag, is_set in (("unload_models", unload_models), ("free_memory", free_memory)):
            if is_set:
                self._prompts.set_flag(flag)

    async def object_info(self, node_class: str | None) -> Json:
        return self._engine.object_info(node_class)

    async def system_stats(self) -> Json:
        return self._engine.system_stats()

    async def features(self) -> Json:
        return {key: FEATURES[key] for key in FEATURES if self._engine.dialect.since(SINCE.get(key, "0"))}

    async def models(self) -> dict[str, list[str]]:
        return self._engine.definitions.offered_models()

    async def find_file(self, place: FilePlace) -> Path | None:
        path = self.roots[place.kind] / place.subfolder / place.name
        return path if os.path.isfile(path) else None  # noqa: PTH113 - a name that is too long is not there either

    async def save_upload(self, upload: Upload) -> str:
        folder = self.roots[upload.place.kind] / upload.place.subfolder
        folder.mkdir(parents=True, exist_ok=True)
        name = upload.place.name
        if not upload.overwrite:
            for name in names_to_try(upload.place.name):
                if not (folder / name).exists():
                    break
                if (folder / name).read_bytes() == upload.sent:
                    return name
        content = upload.sent if upload.content is None else await upload.content()
        if content is not None:
            (folder / name).write_bytes(content)
        return name

    async def greeting(self, client_id: str) -> list[tuple[str, Json]]:
        engine = self._engine
        is_running = engine.client_id == client_id and engine.node_id is not None
        return [("executing", {"node": engine.node_id})] if is_running else []
