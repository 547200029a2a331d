"""A scenario as a load test: the pages of the agent under test are the rows of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.chaos.suite import Scenario, facts_of, run_scenario
from comfyui_agent.lab.load.measurement import figures, short_figures
from comfyui_agent.lab.measurement.machine import RunClock, environment_of
from comfyui_agent.lab.reports.chaos import ScenarioResult
from comfyui_agent.lab.reports.environment import ReportKind, ServerFacts
from comfyui_agent.lab.reports.fields import as_moment
from comfyui_agent.lab.reports.load import LoadReport, LoadSummary, Row, RowStatus, ServerSummary


async def load_test_with_scenario(
    scenario: Scenario, plan: ChaosPlan, folder: Path, sla: Sla, parameters: Mapping[str, Any]
) -> LoadReport:
    """Run a scenario and report its pages as a load test. The result of the scenario is part of the summary."""
    clock = RunClock()
    rows: list[Row] = []
    servers: list[ServerFacts] = []

    async def look(sandbox: Sandbox) -> None:
        for index, job in enumerate(await sandbox.jobs()):
            rows.append(await _row(sandbox, clock, index, job))
        servers.append(await facts_of(sandbox))

    result = await run_scenario(scenario, plan, folder, sla, look)
    environment = environment_of(
        ReportKind.LOAD,
        clock,
        sla=sla.model_dump(),
        servers=servers,
        workflow=plan.payload.facts,
        parameters=dict(parameters),
        gpu_source="none",
        gpu_trace=[],
        metrics_log=None,
    )
    return LoadReport(summary=_summary(result, rows, servers), results=rows, environment=environment)


async def _row(sandbox: Sandbox, clock: RunClock, index: int, job: Job) -> Row:
    """A page, from the first time it was sent to its end, with all its retries."""
    attempts = [attempt for attempt in await sandbox.attempts(job) if attempt.started_at]
    began = as_moment(attempts[0].started_at) if attempts else None
    ended = as_moment(attempts[-1].ended_at) if attempts else None
    seconds = clock.seconds_of_time(began) if began is not None else 0.0
    duration = ended - began if began is not None and ended is not None else None
    is_done = job.status is JobStatus.DONE
    status = {JobStatus.DONE: RowStatus.COMPLETED, JobStatus.FAILED: RowStatus.FAILED}
    return Row(
        index=index,
        prompt_id=job.prompt_id or "",
        status=status.get(job.status, RowStatus.TIMEOUT),
        duration_sec=duration,
        queue_sec=None,
        exec_sec=job.duration if is_done else None,
        transfer_sec=None,
        cached=False,
        error=None if is_done else _reason(attempts[-1].error if attempts else None, job),
        failure_class=job.failure_class,
        server=str(sandbox.server.address),
        workflow=sandbox.plan.payload.name,
        level=0.0,
        started_at=clock.at(seconds),
        ended_at=clock.at(seconds + (duration or 0.0)),
        seconds=seconds,
        images=len(job.outputs) if is_done else 0,
        bytes=0,
    )


def _reason(error: str | None, job: Job) -> str:
    if job.error_trace:
        return job.error_trace.partition("\n")[0]
    try:
        return str(json.loads(error or "{}").get("message") or "it did not end")
    except (ValueError, AttributeError):
        return "it did not end"


def _summary(result: ScenarioResult, rows: Sequence[Row], servers: Sequence[ServerFacts]) -> LoadSummary:
    wall = max((row.ended_seconds for row in rows), default=0.0) - min((row.sent_seconds for row in rows), default=0.0)
    found = figures(rows, wall)
    if result.recovery_sec is not None:
        found["recovery_sec"] = result.recovery_sec
    return LoadSummary(
        **found,
        mode="scenario",
        partial=False,
        unfinished=0,
        warnings=[],
        levels=[],
        knee=None,
        servers=[ServerSummary(server=each.server or "", **short_figures(rows, wall)) for each in servers],
        peak_gpu_mem_mb=None,
        avg_gpu_util=None,
        scenario=result,
    )
