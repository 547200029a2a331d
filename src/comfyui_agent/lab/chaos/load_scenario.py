"""A scenario as a load test: the pages of the agent under test as rows, with the verdict and the recovery time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.chaos.sandbox import Sandbox, moment_of
from comfyui_agent.lab.chaos.scenarios import Scenario
from comfyui_agent.lab.chaos.suite import facts_of, run_scenario
from comfyui_agent.lab.chaos.target import Ground
from comfyui_agent.lab.chaos.verdicts import ScenarioVerdict
from comfyui_agent.lab.load.rows import Row, RowStatus, RunClock
from comfyui_agent.lab.load.summary import figures, short_figures
from comfyui_agent.lab.measurement.machine import this_machine


async def press(
    scenario: Scenario, ground: Ground, folder: Path, sla: Sla, plan: Mapping[str, Any]
) -> tuple[ScenarioVerdict, dict[str, Any]]:
    """Run a scenario, and the report of a load test about its pages. `plan` is what was asked for."""
    clock = RunClock()
    rows: list[Row] = []
    facts: list[dict[str, Any]] = []

    async def look(arena: Sandbox) -> None:
        rows.extend(await _rows(arena, clock))
        facts.append(await facts_of(arena))

    verdict = await run_scenario(scenario, ground, folder, sla, look)
    return verdict, _report(verdict, rows, facts, ground, sla, clock, plan)


async def _rows(arena: Sandbox, clock: RunClock) -> list[Row]:
    """A page each, from the first time it was sent to its end, with all its retries."""
    return [await _row(arena, clock, index, job) for index, job in enumerate(await arena.jobs())]


async def _row(arena: Sandbox, clock: RunClock, index: int, job: Job) -> Row:
    attempts = [attempt for attempt in await arena.attempts(job) if attempt.started_at]
    began = moment_of(attempts[0].started_at or "") if attempts else None
    ended = moment_of(attempts[-1].ended_at) if attempts and attempts[-1].ended_at else None
    seconds = clock.seconds_of_time(began) if began is not None else 0.0
    duration = ended - began if began is not None and ended is not None else None
    is_done = job.status is JobStatus.DONE
    status = RowStatus.COMPLETED if is_done else RowStatus.FAILED
    if job.status not in (JobStatus.DONE, JobStatus.FAILED):
        status = RowStatus.TIMEOUT
    error = None if is_done else _reason(attempts[-1].error if attempts else None, job)
    return Row(
        index,
        job.prompt_id or "",
        status,
        duration_sec=duration,
        exec_sec=job.duration if is_done else None,
        error=error,
        failure_class=job.failure_class,
        server=str(arena.server.address),
        workflow=arena.ground.payload.name,
        started_at=clock.at(seconds),
        ended_at=clock.at(seconds + (duration or 0.0)),
        seconds=seconds,
        images=len(job.outputs) if is_done else 0,
    )


def _reason(error: str | None, job: Job) -> str:
    if job.error_trace:
        return job.error_trace.partition("\n")[0]
    try:
        return str(json.loads(error or "{}").get("message") or "it did not end")
    except (ValueError, AttributeError):
        return "it did not end"


def _report(
    verdict: ScenarioVerdict,
    rows: Sequence[Row],
    facts: list[dict[str, Any]],
    ground: Ground,
    sla: Sla,
    clock: RunClock,
    plan: Mapping[str, Any],
) -> dict[str, Any]:
    wall = max((row.ended_seconds for row in rows), default=0.0) - min((row.seconds for row in rows), default=0.0)
    summary = figures(rows, wall) | {
        "mode": "scenario",
        "partial": False,
        "unfinished": 0,
        "warnings": [],
        "levels": [],
        "knee": None,
        "servers": [{"server": each["server"], **short_figures(rows, wall)} for each in facts],
        "peak_gpu_mem_mb": None,
        "avg_gpu_util": None,
        "scenario": verdict.as_json(),
    }
    if verdict.findings.recovery_sec is not None:
        summary["recovery_sec"] = verdict.findings.recovery_sec
    return {
        "summary": summary,
        "results": [row.as_json() for row in rows],
        "environment": {
            "kind": "loadtest",
            "e3": __version__,
            "started_at": clock.at(0.0),
            "ended_at": clock.at(clock.seconds),
            "machine": this_machine(),
            "servers": facts,
            "workflow": ground.payload.as_json(),
            "parameters": dict(plan),
            "sla": sla.model_dump(),
            "gpu_source": "none",
            "gpu_trace": [],
            "metrics_log": None,
        },
    }
