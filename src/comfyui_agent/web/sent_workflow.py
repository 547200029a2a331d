"""What was sent for a job, or would be: its template, its values and their names."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.sent_prompt import Sending, describe
from comfyui_agent.store import operations as ops
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import Problem
from comfyui_agent.web.threads import FILES


async def sending_of(context: Context, job: Job, attempts: Sequence[Attempt]) -> Sending:
    batch = await context.store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    graph, names = await _graph(context, job), await _names(context, job.workflow_id)
    return describe(job, effective_inputs(job, batch), attempts, graph, names)


async def _graph(context: Context, job: Job) -> Graph:
    """The template of a job, else the current one of its workflow."""
    template = await context.store.run(ops.find_template, job.template_hash) if job.template_hash else None
    if template is not None:
        return await FILES.run(template.graph)
    try:
        return (await context.submissions.workflow(job.workflow_id)).graph
    except Problem:
        return {}


async def _names(context: Context, workflow_id: str) -> dict[str, str]:
    """The name of each place that has one."""
    try:
        recipe = (await context.submissions.recipes()).get(workflow_id)
    except Problem:
        recipe = None
    return recipe.names if recipe else {}
