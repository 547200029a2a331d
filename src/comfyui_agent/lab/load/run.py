"""A load test from its first look at the servers to what was measured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.driver import GIVE_UP_SECONDS, Driver, Onlooker, run_together
from comfyui_agent.lab.load.measurement import LoadRun, percentile
from comfyui_agent.lab.load.plan import LoadPlan, Mode, level_text
from comfyui_agent.lab.load.prompt_runner import REJECTED, Rendering, Target, rejection, take_all_back
from comfyui_agent.lab.measurement.machine import GpuTrace, RunClock, server_facts
from comfyui_agent.lab.payloads import fitted, new_run_prefix
from comfyui_agent.lab.reports.load import RowStatus

POLL_SECONDS = 2.0
DEAF_POLL_SECONDS = 0.2
LOST_SECONDS = 10.0
"""A prompt fails when its server cannot be asked for so long."""
HOPELESS = 0.5
"""A ramp ends when more than this share of a level failed."""
LATE_SECONDS = 0.05
LATE_SHARE = 0.05


async def load_test(plan: LoadPlan, onlooker: Onlooker) -> LoadRun:
    """Run the plan. PayloadError or ComfyError if it cannot begin. If it is cancelled, it takes its prompts back and
    returns what was measured, marked as partial."""
    limits = Limits(
        poll_seconds=POLL_SECONDS,
        deaf_poll_seconds=DEAF_POLL_SECONDS,
        lost_after_seconds=LOST_SECONDS,
        connections=1024,
        downloads_at_once=512,
    )
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ComfyClient(server, limits=limits)) for server in plan.servers]
        targets = await asyncio.gather(*(_target(client, plan) for client in clients))
        try:
            return await _press(plan, onlooker, clients, targets)
        finally:
            await take_all_back(targets)


async def _target(client: ComfyClient, plan: LoadPlan) -> Target:
    return Target(client, tuple([await fitted(payload, client) for payload in plan.payloads]))


async def _press(
    plan: LoadPlan, onlooker: Onlooker, clients: Sequence[ComfyClient], targets: Sequence[Target]
) -> LoadRun:
    await asyncio.gather(*(client.wait_for_websocket() for client in clients))
    warnings = [note for target in targets for payload in target.payloads for note in payload.notes]
    warnings += await _queue_warnings(targets) + _seed_warnings(plan, targets[0])
    facts = list(await asyncio.gather(*(server_facts(client) for client in clients)))
    chance = random.Random(plan.seed)
    warmups = await _warm_up(plan, targets, chance, warnings)
    async with GpuTrace(clients) as trace:
        clock = RunClock()
        rendering = Rendering(clock, new_run_prefix(), chance, plan.timeout, plan.same_seeds)
        driver = Driver(plan, targets, rendering, onlooker)
        run = LoadRun(plan, clock, facts, trace, driver.levels, driver.lateness, warnings=warnings)
        run.warmup_seconds = warmups
        try:
            await _climb(plan, driver, onlooker, run)
        except asyncio.CancelledError:
            run.is_partial = run.was_stopped = True
            run.unfinished = driver.unfinished
            if driver.left:
                left = counted(len(driver.left), "prompt")
                run.warnings.append(f"{left} could not be taken back: see the queue of the server")
    run.warnings += _run_warnings(run, targets)
    return run


async def _climb(plan: LoadPlan, driver: Driver, onlooker: Onlooker, run: LoadRun) -> None:
    for level in plan.levels:
        onlooker.began(level, plan.jobs_of(level))
        done = await driver.drive(level)
        onlooker.ended_level(done)
        if driver.gave_up:
            run.is_partial = True
            run.warnings.append(f"no server answered for {GIVE_UP_SECONDS:g} s: what was left was not sent")
            return
        failed = sum(not row.is_completed for row in done.rows)
        if level != plan.levels[-1] and failed > HOPELESS * len(done.rows):
            where, jobs = level_text(level, plan.mode.unit), counted(len(done.rows), "prompt")
            run.warnings.append(f"the ramp ended at {where}: {failed} of {jobs} failed there")
            return


async def _warm_up(
    plan: LoadPlan, targets: Sequence[Target], chance: random.Random, warnings: list[str]
) -> list[float]:
    """Render each payload at each server before anything counts. PayloadError if one is rejected."""
    rendering = Rendering(RunClock(), new_run_prefix(), chance, plan.timeout)

    async def warm(target: Target) -> list[float]:
        seconds = []
        for number in range(plan.warmup * len(plan.payloads)):
            row = await rendering.render(target, number)
            if row.failure_class in REJECTED:
                raise rejection(row)
            if row.failure_class == FailureClass.SERVER_LOST.value:
                raise ComfyError(row.error or f"{target.name} was lost")
            if not row.is_completed:
                warnings.append(f"the warm-up of {row.workflow} at {target.name} failed, it was cold: {row.error}")
            seconds.append(row.duration_sec or 0.0)
        target.unheard = 0
        return seconds

    return [second for seconds in await run_together(warm(target) for target in targets) for second in seconds]


async def _queue_warnings(targets: Sequence[Target]) -> list[str]:
    warnings = []
    for target in targets:
        view = await target.client.queue()
        waiting = len(view.running) + len(view.pending)
        if waiting:
            others = counted(waiting, "prompt")
            warnings.append(f"{target.name} had {others} of others before the test: its times are not clean")
    return warnings


def _seed_warnings(plan: LoadPlan, target: Target) -> list[str]:
    if plan.same_seeds:
        return ["seeds were the same for each prompt, as asked: the server's cache may have answered"]
    without = [payload.name for payload in target.payloads if not payload.seed_places]
    return [f"{name} has no seed: its prompts differ by an input that the nodes do not see" for name in without]


def _server_warnings(targets: Sequence[Target]) -> Iterator[str]:
    for target in targets:
        if target.lost:
            lost = f"{counted(len(target.lost), 'prompt')}, first after {target.lost[0]:.0f} s"
            yield f"{target.name} was lost with {lost}; it got fewer from then on"
        if target.unheard:
            yield (
                f"{target.name}: the end of {counted(target.unheard, 'prompt')} was not heard on the websocket, but "
                f"found by asking every {DEAF_POLL_SECONDS:g} to {POLL_SECONDS:g} s: times are no more exact than that"
            )


def _run_warnings(run: LoadRun, targets: Sequence[Target]) -> Iterator[str]:
    lateness = percentile(run.lateness, 0.95) if run.lateness else 0.0
    if lateness > max(LATE_SECONDS, LATE_SHARE * 60.0 / max(run.plan.levels)):
        sent = f"arrivals were sent up to {lateness:.2f} s late (p95)"
        yield f"{sent}: this machine is too slow for the rate that was asked for"
    yield from _server_warnings(targets)
    late = sum(row.status is RowStatus.TIMEOUT for row in run.rows)
    if late:
        yield f"{counted(late, 'prompt')} timed out, later than any figure here: those are of completed ones"
    for level in run.levels:
        if run.plan.mode is Mode.CLOSED and level.is_whole and not level.is_reached:
            jobs = counted(len(level.rows), "prompt")
            yield f"{level.level:g} prompts at once were never reached: {jobs} in all"
