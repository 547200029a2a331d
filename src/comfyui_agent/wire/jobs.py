"""Jobs: prompts of queue and history as `/api/jobs` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json, Queue, QueueItem

OLDER_KINDS = ("images", "video", "audio")
KINDS = (*OLDER_KINDS, "3d", "text")
SOLIDS = (".obj", ".fbx", ".gltf", ".glb", ".usdz")
TEXTS = (".txt", ".md", ".json")
LONGEST_TEXT = 1024


@dataclass(frozen=True)
class JobQuery:
    """Which jobs, sorted by duration or else by the time they came, and which part of that list."""

    states: Sequence[str]
    workflow_id: str | None
    by_duration: bool
    descending: bool
    limit: int | None
    offset: int


@dataclass(frozen=True)
class JobPage:
    """The jobs of one page, and how many there are on all."""

    jobs: list[Json]
    total: int


def job_states(dialect: Dialect) -> list[str]:
    states = ["pending", "in_progress", "completed", "failed"]
    return [*states, "cancelled"] if dialect.jobs_cancelled_status else states


def select_jobs(query: JobQuery, queue: Queue, history: Iterable[Json], dialect: Dialect) -> JobPage:
    """A page of the jobs in a queue and a history that are in memory."""
    jobs = waiting_jobs(queue, dialect) + [ended_job(entry, dialect) for entry in history]
    jobs = [job for job in jobs if job["status"] in query.states]
    if query.workflow_id:
        jobs = [job for job in jobs if job.get("workflow_id") == query.workflow_id]
    jobs.sort(key=_duration if query.by_duration else lambda job: job.get("create_time", 0), reverse=query.descending)
    end = None if query.limit is None else query.offset + query.limit
    return JobPage(jobs[query.offset : end], len(jobs))


def waiting_jobs(queue: Queue, dialect: Dialect) -> list[Json]:
    running = [_job(item, "in_progress", dialect) for item in queue.running]
    return running + [_job(item, "pending", dialect) for item in queue.pending]


def ended_job(entry: Json, dialect: Dialect) -> Json:
    status = "failed" if entry["status"]["status_str"] == "error" else "completed"
    times: Json = {}
    for event, data in entry["status"]["messages"]:
        if event == "execution_start":
            times["execution_start_time"] = data["timestamp"]
        elif event in ("execution_success", "execution_error", "execution_interrupted"):
            times["execution_end_time"] = data["timestamp"]
            if event == "execution_error":
                times["execution_error"] = data
            if event == "execution_interrupted" and dialect.jobs_cancelled_status:
                status = "cancelled"
    item = QueueItem._make([*entry["prompt"], {}])
    return _job(item, status, dialect) | times | _summary(entry["outputs"], dialect)


def detailed_job(entry: Json, dialect: Dialect) -> Json:
    """An ended job with its outputs and its workflow."""
    return {
        **ended_job(entry, dialect),
        "outputs": entry["outputs"],
        "execution_status": entry["status"],
        "workflow": {"prompt": entry["prompt"][2], "extra_data": entry["prompt"][3]},
    }


def _job(item: QueueItem, status: str, dialect: Dialect) -> Json:
    workflow_id = item.extra_data.get("extra_pnginfo", {}).get("workflow", {}).get("id")
    optional = {"create_time": item.extra_data.get("create_time"), "workflow_id": workflow_id}
    described = {key: value for key, value in optional.items() if value is not None}
    counts = {"outputs_count": 0, **({"previewable_outputs_count": 0} if dialect.jobs_count_previews else {})}
    return {"id": item.prompt_id, "status": status, "priority": item.number, **described, **counts}


def _summary(outputs: Json, dialect: Dialect) -> Json:
    """How many results there are, and the one to show: a saved picture before others, and pictures before texts."""
    items = [
        (node_id, kind, item)
        for node_id, shown in outputs.items()
        for kind, listed in shown.items()
        if kind != "animated" and isinstance(listed, list)
        for item in listed
    ]
    files = [(node_id, kind, item) for node_id, kind, item in items if isinstance(item, dict)]
    ranked = [
        (_rank(kind, item), {**item, "nodeId": node_id, "mediaType": kind})
        for node_id, kind, item in files
        if _is_previewed(kind, item, dialect)
    ]
    previews = [preview for _, preview in sorted(ranked, key=lambda each: each[0])]
    if not previews and dialect.jobs_show_texts:
        texts = ((node_id, item) for node_id, kind, item in items if kind == "text" and isinstance(item, str))
        previews = [{**_shortened(text), "nodeId": node_id, "mediaType": "text"} for node_id, text in texts]
    counts = {"outputs_count": len(files)}
    if dialect.jobs_count_previews:
        counts["previewable_outputs_count"] = len(ranked)
    return {**counts, **({"preview_output": previews[0]} if previews else {})}


def _is_previewed(kind: str, item: Json, dialect: Dialect) -> bool:
    kinds, endings = (KINDS, SOLIDS + TEXTS) if dialect.jobs_show_texts else (OLDER_KINDS, SOLIDS)
    is_media = str(item.get("format", "")).startswith(("video/", "audio/"))
    return kind in kinds or is_media or _name(item).endswith(endings)


def _rank(kind: str, item: Json) -> int:
    if kind == "text" or _name(item).endswith(TEXTS):
        return 2
    return 0 if item.get("type") == "output" else 1


def _name(item: Json) -> str:
    return str(item.get("filename", "")).lower()


def _shortened(text: str) -> Json:
    return {"content": text[:LONGEST_TEXT], **({"truncated": True} if len(text) > LONGEST_TEXT else {})}


def _duration(job: Json) -> Any:
    start, end = job.get("execution_start_time"), job.get("execution_end_time")
    return end - start if start and end else 0
