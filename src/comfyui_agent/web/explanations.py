"""Explaining a failed job: what happened, where, what E3 did about it, and what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.address import name_of
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import DONE, Attempt, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import parsed

UNKNOWN = "It failed, and nothing more is known"


@dataclass(frozen=True)
class Explanation:
    """The explanation of a failure. `where` and `trace` may be empty. Templates have the texts for the rest."""

    what: str
    where: str
    runs: int
    servers: list[str]
    """Where it failed."""
    seen: set[str | None]
    """The failure classes of its runs."""
    remedy: str
    """What to do: a failure class, or a special case."""
    trace: str


def explain(job: Job, attempts: Sequence[Attempt] = ()) -> Explanation:
    """Explain the last failure of a job, with the facts of its attempts where they are given."""
    ended = [attempt for attempt in attempts if attempt.outcome not in (None, DONE)]
    recorded = parsed(ended[-1].error) if ended else None
    facts = recorded if isinstance(recorded, dict) else {}
    trace = (job.error_trace or "").strip()
    first = str(facts.get("message") or trace).partition("\n")[0]
    return Explanation(
        what=first.removeprefix(f"{job.failure_class}: ") or "It failed, and nothing more is known",
        where=_where(job, facts),
        runs=max(job.run_count, len(ended)),
        servers=list(dict.fromkeys(name_of(attempt.server) for attempt in ended if attempt.server)),
        seen={attempt.outcome for attempt in ended} | {job.failure_class},
        remedy=_remedy(job),
        trace=trace if "\n" in trace else "",
    )


def _where(job: Job, facts: Mapping[str, Any]) -> str:
    server = name_of(str(facts.get("server") or job.server or ""))
    if not facts.get("node_id"):
        return server
    kind = f" ({facts['node_type']})" if facts.get("node_type") else ""
    return f"Node {facts['node_id']}{kind}{f' at {server}' if server else ''}"


def _remedy(job: Job) -> str:
    if job.status is not JobStatus.FAILED:
        return "start_server" if job.waits_for_server else "retried"
    if job.state == "dismissed":
        return "dismissed"
    if not job.run_count and job.failure_class != FailureClass.CANCELLED:
        return "bad_file"
    return job.failure_class or ""
