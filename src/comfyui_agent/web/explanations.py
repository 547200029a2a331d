"""Explaining a failed job: what happened, where, what E3 did about it, and what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.server_names import name_of
from comfyui_agent.domain.attempts import DONE, Attempt
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import parsed

STEPS: Mapping[str, str] = {
    FailureClass.OOM: "Had the server free its memory before each new try.",
    FailureClass.MISSING: "Looked for another server that has what is missing.",
    FailureClass.TIMEOUT: "Stopped the prompt at its server.",
    FailureClass.INTERRUPTED: "Ran it again at once: someone else had stopped it.",
    FailureClass.SERVER_LOST: "Left the server alone that went away.",
    FailureClass.OUTPUT: "Rendered it again without the server's cache.",
    FailureClass.POISON: "Ran it alone, so that it took no other job along.",
}
REMEDIES: Mapping[str, str] = {
    FailureClass.INVALID: "Change the input that the server names, or the workflow, then retry.",
    FailureClass.MISSING: "Install the model or node on a server, or name one that is there, then retry.",
    FailureClass.OOM: "Make it smaller (size, frames, batch), or add a server with more memory, then retry.",
    FailureClass.EXECUTION: "Read what the node says. If it names an input, change it; else retry. "
    "If it comes again, try the workflow in ComfyUI itself.",
    FailureClass.TIMEOUT: "Give it a larger timeout_seconds, or fewer steps, then retry.",
    FailureClass.OUTPUT: "See that the workflow saves a result and that there is room on the disk, then retry.",
    FailureClass.CANCELLED: "Retry, if you want it after all.",
    FailureClass.POISON: "Servers went away while it ran. Read the log of the server before you retry.",
}
BAD_FILE = "Change what is named here. A job file is read again when it changes; else retry."
NOTHING = "Nothing: it is tried again by itself."
START_SERVER = (
    "Start that ComfyUI, or see why it cannot be reached: the job goes on by itself then, or at another server."
)
DISMISSED = "Nothing: it was dismissed. Retry, if you want it after all."


@dataclass(frozen=True)
class Explanation:
    """The explanation of a failure. `where`, `did` and `trace` may be empty."""

    what: str
    where: str
    did: str
    remedy: str
    trace: str


def explain(job: Job, attempts: Sequence[Attempt] = ()) -> Explanation:
    """Explain the last failure of a job, with the facts of its attempts where they are given."""
    ended = [attempt for attempt in attempts if attempt.outcome not in (None, DONE)]
    facts = _facts(ended[-1]) if ended else {}
    trace = (job.error_trace or "").strip()
    return Explanation(
        what=_first(str(facts.get("message") or "") or trace, job.failure_class),
        where=_where(job, facts),
        did=_did(job, ended),
        remedy=_remedy(job),
        trace=trace if "\n" in trace else "",
    )


def _facts(attempt: Attempt) -> Mapping[str, Any]:
    found = parsed(attempt.error)
    return found if isinstance(found, dict) else {}


def _first(trace: str, failure_class: str | None) -> str:
    line = trace.partition("\n")[0]
    return line.removeprefix(f"{failure_class}: ") or "It failed, and nothing more is known"


def _where(job: Job, facts: Mapping[str, Any]) -> str:
    server = facts.get("server") or job.server
    node = f"node {facts['node_id']}" if facts.get("node_id") else ""
    if node and facts.get("node_type"):
        node += f" ({facts['node_type']})"
    place = f"{node} at {name_of(str(server))}" if node and server else node or (name_of(str(server)) if server else "")
    return place[:1].upper() + place[1:] if node else place


def _did(job: Job, ended: Sequence[Attempt]) -> str:
    runs = max(job.run_count, len(ended))
    if not runs:
        return "Nothing: it was not sent to a server." if job.status is JobStatus.FAILED else ""
    servers = list(dict.fromkeys(name_of(attempt.server) for attempt in ended if attempt.server))
    runs_text = f"Ran it {'once' if runs == 1 else f'{runs} times'}{f', at {_listed(servers)}' if servers else ''}."
    seen = {attempt.outcome for attempt in ended} | {job.failure_class}
    steps = [step for kind, step in STEPS.items() if kind in seen and (runs > 1 or kind == FailureClass.TIMEOUT)]
    return " ".join([runs_text, *steps])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _remedy(job: Job) -> str:
    if job.status is not JobStatus.FAILED:
        return START_SERVER if job.waits_for_server else NOTHING
    if job.state == "dismissed":
        return DISMISSED
    if not job.run_count and job.failure_class != FailureClass.CANCELLED:
        return BAD_FILE
    return REMEDIES.get(job.failure_class or "", "Retry.")
