"""/api/v1/jobs/…: from a result onwards. Again, varied, in another workflow; and the takes of one job."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field, StrictBool, model_validator

from comfyui_agent.config.settings import Priority
from comfyui_agent.domain.batches import BatchStatus, mint_batch_id
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases import variations as usecases
from comfyui_agent.usecases.sweeps import Defined, queue_sweep
from comfyui_agent.usecases.takes import choose_take, takes_of
from comfyui_agent.web.api.batches import BOUNDS, shown_plan
from comfyui_agent.web.api.job_models import JobRow, TakesShown
from comfyui_agent.web.api.models import BatchMade, SweepPlan
from comfyui_agent.web.api.parameters import PREFIX, By, ExternalId, Here, NamedJob, Said, User
from comfyui_agent.web.api.responses import shown_batch
from comfyui_agent.web.context import Context
from comfyui_agent.web.idempotency import IdempotentRequest, Key, once
from comfyui_agent.web.openapi import AsInteger, problems
from comfyui_agent.web.problems import JsonAnswer
from comfyui_agent.web.submissions import check_bytes
from comfyui_agent.web.sweep_planning import CallersPlanner

MOST_SEEDS = 100

router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["jobs"])
SaidPriority = Annotated[Priority, AsInteger] | None


class AgainSaid(Said):
    inputs: dict[str, Any] = Field(default={}, description="Values by name or place that differ from its own.")
    new_seed: bool = Field(default=False, description="Draw a new seed for every seed that `inputs` does not name.")
    priority: SaidPriority = Field(default=None, description="Lower runs earlier.")
    external_id: ExternalId = None


class VarySaid(Said):
    """What varies: inputs, as in a sweep, or so many new seeds, or both."""

    set: dict[str, Any] = Field(default={}, description='Axes and their values, such as {"cfg": "4..8"}.')
    seeds: Annotated[int, Field(ge=0, le=MOST_SEEDS), AsInteger] = Field(default=0, description="So many new seeds.")
    inputs: dict[str, Any] = Field(default={}, description="Values by name or place that differ from its own.")
    mode: Mode = Field(default=Mode.MATRIX, strict=False, description="matrix or linear.")
    priority: SaidPriority = None
    dry_run: StrictBool = Field(default=False, description="Only say what would be queued.")
    external_id: ExternalId = None

    @model_validator(mode="after")
    def _something(self) -> VarySaid:
        if not self.set and not self.seeds:
            raise ValueError("say what varies: set, or seeds")
        return self


class UseSaid(Said):
    workflow_id: str = Field(min_length=1, max_length=200, description="A workflow that takes a picture.")
    inputs: dict[str, Any] = Field(default={}, description="Values by name or place that differ from its own.")
    result: Annotated[int, Field(ge=1, le=9_999), AsInteger] = Field(default=1, description="Which result of the job.")
    external_id: ExternalId = None


class TakeSaid(Said):
    number: Annotated[int, Field(ge=1, le=1_000_000), AsInteger] = Field(
        description="The take that counts from now on."
    )


@router.post("/{name}/again", status_code=201, response_model=JobRow, responses=problems(404, 409, sends=True))
async def again(context: Here, by: By, caller: User, job: NamedJob, said: AgainSaid, key: Key = None) -> Response:
    """Queue a job like this one, with other values or a new seed. It is yours, whoever made the first one."""
    original = await usecases.original_of(context.store, context.submissions.intake, job)

    async def make(name: str) -> dict[str, Any]:
        made = await usecases.run_again(
            context.store,
            context.submissions.intake,
            by,
            original,
            said.inputs,
            new_seed=said.new_seed,
            name=name,
            priority=said.priority,
            external_id=said.external_id,
        )
        return made.as_json()

    return await _once(context, caller, said, f"{job.id}/again", original.name(), make, key)


@router.post("/{name}/use", status_code=201, response_model=JobRow, responses=problems(404, 409, sends=True))
async def use(context: Here, by: By, caller: User, job: NamedJob, said: UseSaid, key: Key = None) -> Response:
    """Queue another workflow whose input picture is a result of this job, to upscale it for instance."""
    await context.submissions.workflow(said.workflow_id)

    async def make(name: str) -> dict[str, Any]:
        intake = context.submissions.intake
        wanted = (said.workflow_id, said.inputs)
        made = await usecases.use_result(
            context.store, intake, by, job, *wanted, result=said.result, name=name, external_id=said.external_id
        )
        return made.as_json()

    name = mint_batch_id(f"{job.config_name}_{said.workflow_id}", "job")
    return await _once(context, caller, said, f"{job.id}/use", name, make, key)


async def _once(
    context: Context, caller: User, said: Said, what: str, name: str, make: Any, key: str | None
) -> Response:
    async def find(name: str) -> dict[str, Any] | None:
        job = await context.store.run(ops.find_job_by_name, name)
        return None if job is None else job.as_json()

    body = {"of": what, **said.model_dump(mode="json", exclude_unset=True)}
    return await once(context, caller, IdempotentRequest(key=key, route="jobs", body=body), name, make, find)


@router.post(
    "/{name}/vary",
    status_code=201,
    response_model=BatchMade,
    responses={200: {"model": SweepPlan, "description": "What would be queued"}, **problems(404, 409, sends=True)},
)
async def vary(
    context: Here, by: By, caller: User, request: Request, job: NamedJob, said: VarySaid, key: Key = None
) -> Response:
    """Queue a sweep around this job: over new seeds, over some of its inputs, or both."""
    intake = context.submissions.intake
    original = await usecases.original_of(context.store, intake, job)
    planner = CallersPlanner(context.planning, caller.scope, request)

    async def plan_as(batch_id: str) -> Defined:
        return await usecases.plan_variations(
            intake,
            original,
            said.set,
            planner,
            inputs=said.inputs,
            seeds=said.seeds,
            mode=said.mode,
            bounds=BOUNDS,
            priority=said.priority,
            batch_id=batch_id,
        )

    if said.dry_run:
        return JsonAnswer(shown_plan(await plan_as("")))

    async def make(batch_id: str) -> dict[str, Any]:
        by.check_priority(said.priority)
        plan = await plan_as(batch_id)
        check_bytes(plan.sweep.stored_bytes, f"{len(plan.sweep):,} jobs", "e3 vary")
        batch = await queue_sweep(context.store, context.workspace, by, plan.sweep, external_id=said.external_id)
        return shown_batch(batch) | {"warnings": list(plan.warnings)}

    async def find(batch_id: str) -> dict[str, Any] | None:
        batch = await context.store.run(ops.find_batch, batch_id)
        return None if batch is None or batch.status is BatchStatus.PENDING else shown_batch(batch) | {"warnings": []}

    body = {"of": job.id, **said.model_dump(mode="json", exclude_unset=True)}
    wanted = IdempotentRequest(key=key, route="batches", body=body)
    return await once(context, caller, wanted, original.name(), make, find)


@router.get("/{name}/takes", response_model=TakesShown, responses=problems(404))
async def list_takes(context: Here, _: User, job: NamedJob) -> Any:
    """Every result that this job has made, oldest first, and which of them counts."""
    takes = await takes_of(context.store, job)
    digests = await context.store.run(ops.digests_of, [path for take in takes for path in take.outputs])

    def shown() -> list[dict[str, Any]]:
        each_job = (job.of_take(take.number, take.outputs) for take in takes)
        results = (context.outputs.shown(each, None, digests) for each in each_job)
        return [{**asdict(take), "results": list(map(asdict, each))} for take, each in zip(takes, results, strict=True)]

    return JsonAnswer({"takes": await FILES.run(shown)})


@router.put("/{name}/take", response_model=JobRow, responses=problems(404, 409, sends=True))
async def choose(context: Here, by: By, job: NamedJob, said: TakeSaid) -> Any:
    """Let another result of this job count. All of them are kept."""
    return JsonAnswer((await choose_take(context.store, by, job, said.number)).as_json())
