"""Scenarios with a page that cannot be rendered: a malformed one, and one that needs too much memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import DONE, Attempt, Job
from comfyui_agent.domain.prompts import Graph, inputs_of, place
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.chaos.findings import Findings, Skipped
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.reports.fields import as_moment

MALFORMED: Graph = {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "e3_lab/malformed"}}}
"""A save node without a picture: every ComfyUI rejects it, and nothing of it runs."""
HEAVY = {"width": 1024, "height": 1024, "batch_size": 1}
OVERSIZED = {"width": 16384, "height": 16384, "batch_size": 4096}
"""As large as a node takes, and larger than any memory: the server fails at once, and survives it."""
LARGEST_MEMORY = 4 * 1024**4
"""With more memory than this the oversized picture might fit."""
SIMULATED = "simulated"
SHORTEST_BACKOFF = 0.4
"""The backoff of half a second, spread by a fifth to either side."""


async def prompt_validation(sandbox: Sandbox, findings: Findings) -> None:
    """One page among others is malformed."""
    good = await sandbox.healthy(sandbox.plan.amount(3, 8))
    jobs = await sandbox.queue([*good[:1], MALFORMED, *good[1:]])
    malformed = jobs[1].id
    sandbox.start_agent()
    await findings.check_all_end(sandbox)
    job = await sandbox.job(malformed)
    outcomes = [attempt.outcome for attempt in await sandbox.attempts(job)]
    rejected = await sandbox.first(0.0, EventName.JOB_RETRY, malformed)
    if rejected is not None:
        findings.begin(rejected, "the server rejects the page")
    failed = await sandbox.first(0.0, EventName.JOB_FAILED, malformed)
    findings.stage("gave up", failed, "the page needs attention")
    is_twice = outcomes == [FailureClass.INVALID.value] * 2
    findings.check("tries of the malformed page", "2, both rejected", _listed(outcomes), is_twice)
    is_invalid = job.status is JobStatus.FAILED and job.failure_class == FailureClass.INVALID.value
    findings.check("the malformed page", "failed as invalid", f"{job.status}, {job.failure_class}", is_invalid)
    findings.check("needs_regeneration", "set", "set" if job.needs_regeneration else "not set", job.needs_regeneration)
    findings.check("its reason", "says what is wrong", _first_line(job), bool(job.error_trace))
    await findings.check_others_done(sandbox, {malformed})


async def gpu_oom(sandbox: Sandbox, findings: Findings) -> None:
    """One page among others needs more memory than there is: until memory is freed, or at all."""
    good = await sandbox.healthy(sandbox.plan.amount(3, 8))
    fits_later = sandbox.plan.is_simulated
    heavy = place(good[0], _sizes(good[0], HEAVY)) if fits_later else await _oversized(sandbox, good[0])
    jobs = await sandbox.queue([good[0], heavy, *good[1:]])
    heavy_id = jobs[1].id
    sandbox.start_agent()
    await findings.check_all_end(sandbox)
    job = await sandbox.job(heavy_id)
    attempts = await sandbox.attempts(job)
    outcomes = [attempt.outcome for attempt in attempts]
    is_short = FailureClass.OOM.value in outcomes
    findings.check("the heavy page", "runs out of memory", _listed(outcomes), is_short)
    await _check_memory_was_freed(sandbox, findings, attempts)
    alerts = [event.message for event in await sandbox.events() if event.name == EventName.ALERT_MEMORY]
    findings.check("memory", "seen to come free", alerts[0] if alerts else "no alert", not alerts)
    if fits_later and outcomes == [DONE]:
        raise Skipped("this workflow takes no graphics memory in the simulator: give one with a sampler")
    if fits_later:
        findings.check("the heavy page", "done in the end", f"{job.status}", job.status is JobStatus.DONE)
    else:
        is_oom = job.status is JobStatus.FAILED and job.failure_class == FailureClass.OOM.value
        seen = f"{job.status}, {job.failure_class}: {_first_line(job)}"
        findings.check("the heavy page", "failed as oom, with its reason", seen, is_oom)
    await findings.check_others_done(sandbox, {heavy_id})


async def _check_memory_was_freed(sandbox: Sandbox, findings: Findings, attempts: Sequence[Attempt]) -> None:
    """Between the failure and the next try the server was told to free memory, and the wait was longer than usual."""
    short = next((attempt for attempt in attempts if attempt.outcome == FailureClass.OOM.value), None)
    began = as_moment(short.started_at) if short is not None else None
    if short is None or began is None:
        findings.check("memory", "freed before the next try", "never short", False)
        return
    starts = [as_moment(attempt.started_at) for attempt in attempts if attempt.number > short.number]
    next_start = next((start for start in starts if start is not None), None)
    freed = [each for each in sandbox.proxy.when("POST /free", began) if next_start is None or each <= next_start]
    findings.begin(began, "the page that is too large is sent")
    findings.stage("freed", freed[0] if freed else None, "the server is told to free memory")
    findings.stage("requeue", as_moment(short.ended_at), "the page waits for its next try")
    findings.stage("refill", next_start, "it is tried again")
    findings.check("memory", "freed before the next try", counted(len(freed), "time"), bool(freed))
    findings.check("the next try", "after a while", "none" if next_start is None else "made", next_start is not None)
    waited = next_start - freed[0] if next_start is not None and freed else 0.0
    expected = f"freeing and backoff, {SHORTEST_BACKOFF:g} s or more"
    findings.check("the wait before it", expected, f"{waited:.2f} s", waited >= SHORTEST_BACKOFF)
    since = began if next_start is None else next_start
    findings.recovered(next((moment for moment, _ in await sandbox.finished() if moment >= since), None))


async def _oversized(sandbox: Sandbox, graph: Graph) -> Graph:
    """A picture of a size that no memory holds: the server fails at once. A simulator needs a sampler for that."""
    async with sandbox.client() as client:
        stats = await client.system_stats()
    if stats.pytorch == SIMULATED:
        return place(graph, _sizes(graph, OVERSIZED))
    if stats.ram_total > LARGEST_MEMORY:
        raise Skipped("the server has so much memory that no picture is surely too large for it")
    save = {"images": ["1", 0], "filename_prefix": "e3_lab/oversized"}
    return {
        "1": {"class_type": "EmptyImage", "inputs": {**OVERSIZED, "color": 0}},
        "2": {"class_type": "SaveImage", "inputs": save},
    }


def _sizes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The sizes at every place where a graph has all of them: `4.width` and so on."""
    found: dict[str, Any] = {}
    for node_id in graph:
        inputs = inputs_of(graph, node_id)
        if all(isinstance(inputs.get(name), int) for name in sizes):
            found |= {f"{node_id}.{name}": value for name, value in sizes.items()}
    return found


def _first_line(job: Job) -> str:
    return (job.error_trace or "no reason").partition("\n")[0]


def _listed(outcomes: Sequence[str | None]) -> str:
    return ", ".join(outcome or "no end" for outcome in outcomes) or "none"
