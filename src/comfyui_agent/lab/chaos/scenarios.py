"""The five scenarios: what is broken, what an agent must do about it, and how that is seen."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.lookup import Ended
from comfyui_agent.domain.attempts import DONE, Attempt
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.placement import place
from comfyui_agent.domain.prompts import Graph, inputs_of, saving_nodes
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.chaos.netem import lossy
from comfyui_agent.lab.chaos.sandbox import Sandbox, moment_of
from comfyui_agent.lab.chaos.verdicts import Findings, Skipped
from comfyui_agent.lab.fault_proxy import Delay, Loss, Reset
from comfyui_agent.lab.measurement.statistics import percentile

MALFORMED: Graph = {"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "e3_lab/malformed"}}}
"""A save node without a picture: every ComfyUI rejects it, and nothing of it runs."""
LOST_SHARE = 0.1
FEEDS = 5
TOO_QUICK = "the pages are rendered too quickly for the server to be caught at work: give a heavier workflow"
LONGEST_PAUSE = 30.0
LOST_POSTS = 2
LARGEST_MEMORY = 4 * 1024**4
"""More than this and the oversized picture might fit."""
LARGEST_EDGE, LARGEST_BATCH = 16384, 4096
SIMULATED = "simulated"
SHORTEST_BACKOFF = 0.4
"""Half a second, which is spread by a fifth to either side."""
OVERSIZED = {"width": LARGEST_EDGE, "height": LARGEST_EDGE, "batch_size": LARGEST_BATCH}
"""As large as a node takes, and larger than any memory: the server fails at once, and survives it."""


@dataclass(frozen=True)
class Scenario:
    """One way to break things. `flags` are those of the simulator, where one stands in."""

    name: str
    trigger: str
    expected: str
    run: Callable[[Sandbox, Findings], Awaitable[None]]
    flags: tuple[str, ...] = ()


# A prompt that the server rejects.


async def prompt_validation(arena: Sandbox, findings: Findings) -> None:
    """One page among others is malformed."""
    others = arena.ground.amount(3, 8)
    good = await arena.healthy(others)
    jobs = await arena.queue_book([*good[:1], MALFORMED, *good[1:]])
    malformed = jobs[1].id
    arena.start_agent()
    ended = await arena.until_all_ended()
    await _nothing_waits(arena, findings, ended)
    job = next(job for job in await arena.jobs() if job.id == malformed)
    outcomes = [attempt.outcome for attempt in await arena.attempts(job)]
    events = [event for event in await arena.events() if event.job_id == malformed]
    rejected = [moment_of(event.timestamp) for event in events if event.name == EventName.JOB_RETRY]
    failed = [moment_of(event.timestamp) for event in events if event.name == EventName.JOB_FAILED]
    if rejected:
        findings.begin(rejected[0], "the server rejects the page")
    findings.stage("gave up", failed[0] if failed else None, "the page needs attention")
    findings.check(
        "tries of the malformed page",
        "2, both rejected",
        _listed(outcomes),
        outcomes == [FailureClass.INVALID.value] * 2,
    )
    findings.check(
        "the malformed page",
        "failed as invalid",
        f"{job.status}, {job.failure_class}",
        job.status is JobStatus.FAILED and job.failure_class == FailureClass.INVALID.value,
    )
    findings.check("needs_regeneration", "set", "set" if job.needs_regeneration else "not set", job.needs_regeneration)
    findings.check("its reason", "says what is wrong", _first_line(job), bool(job.error_trace))
    await _others_done(arena, findings, {malformed})


# Not enough memory.


async def gpu_oom(arena: Sandbox, findings: Findings) -> None:
    """One page among others needs more memory than there is: until memory is freed, or at all."""
    good = await arena.healthy(arena.ground.amount(3, 8))
    fits_later = arena.ground.is_simulated
    heavy = place(good[0], _sizes(good[0], HEAVY)) if fits_later else await _oversized(arena, good[0])
    jobs = await arena.queue_book([good[0], heavy, *good[1:]])
    heavy_id = jobs[1].id
    arena.start_agent()
    ended = await arena.until_all_ended()
    await _nothing_waits(arena, findings, ended)
    job = next(job for job in await arena.jobs() if job.id == heavy_id)
    attempts = await arena.attempts(job)
    short = [attempt for attempt in attempts if attempt.outcome == FailureClass.OOM.value]
    findings.check("the heavy page", "runs out of memory", _listed([each.outcome for each in attempts]), bool(short))
    await _memory_was_freed(arena, findings, attempts)
    alerts = [event.message for event in await arena.events() if event.name == EventName.ALERT_MEMORY]
    findings.check("memory", "seen to come free", alerts[0] if alerts else "no alert", not alerts)
    if fits_later and [each.outcome for each in attempts] == [DONE]:
        raise Skipped("this workflow takes no graphics memory in the simulator: give one with a sampler")
    if fits_later:
        findings.check("the heavy page", "done in the end", f"{job.status}", job.status is JobStatus.DONE)
    else:
        findings.check(
            "the heavy page",
            "failed as oom, with its reason",
            f"{job.status}, {job.failure_class}: {_first_line(job)}",
            job.status is JobStatus.FAILED and job.failure_class == FailureClass.OOM.value,
        )
    await _others_done(arena, findings, {heavy_id})


HEAVY = {"width": 1024, "height": 1024, "batch_size": 1}


async def _memory_was_freed(arena: Sandbox, findings: Findings, attempts: Sequence[Attempt]) -> None:
    """Between the failure and the next try the server was told to let go, and the wait was longer than usual."""
    ends = [attempt for attempt in attempts if attempt.outcome == FailureClass.OOM.value and attempt.started_at]
    if not ends:
        findings.check("memory", "freed before the next try", "never short", False)
        return
    began = moment_of(ends[0].started_at or "")
    following = [attempt for attempt in attempts if attempt.number > ends[0].number and attempt.started_at]
    next_start = moment_of(following[0].started_at or "") if following else None
    freed = [each for each in arena.proxy.when("POST /free", began) if next_start is None or each <= next_start]
    findings.begin(began, "the page that is too large is sent")
    findings.stage("freed", freed[0] if freed else None, "the server is told to free memory")
    findings.stage(
        "requeue", moment_of(ends[0].ended_at) if ends[0].ended_at else None, "the page waits for its next try"
    )
    findings.stage("refill", next_start, "it is tried again")
    findings.check("memory", "freed before the next try", counted(len(freed), "time"), bool(freed))
    findings.check("the next try", "after a while", "none" if next_start is None else "made", next_start is not None)
    waited = next_start - freed[0] if next_start is not None and freed else 0.0
    expected = f"freeing and backoff, {SHORTEST_BACKOFF:g} s or more"
    findings.check("the wait before it", expected, f"{waited:.2f} s", waited >= SHORTEST_BACKOFF)
    done = [moment for moment, job in await arena.finished() if moment > began]
    findings.recovered(next((moment for moment in done if next_start is None or moment >= next_start), None))


# A network that loses things.


async def network_blip(arena: Sandbox, findings: Findings) -> None:
    """Answers are lost, the websocket breaks, and after a while all is well again."""
    count = arena.ground.amount(16, 50)
    await arena.queue_book(await arena.healthy(count))
    arena.start_agent()
    began = await arena.until_done(1)
    findings.check("before the fault", "pages get done", "they do" if began else "nothing is done", began)
    seconds = 3.0 if arena.ground.is_quick else 10.0
    if arena.ground.netem is not None:
        async with lossy(arena.ground.netem, LOST_SHARE):
            findings.begin(time.time(), f"{LOST_SHARE:.0%} of the packets at {arena.ground.netem} are lost")
            await arena.keep_busy(count, lambda passed: passed >= seconds)
    else:
        await _lose_answers(arena, findings, count, seconds)
    healed = time.time()
    findings.stage("healed", healed, "the network is as before")
    ended = await arena.until_all_ended()
    await _nothing_waits(arena, findings, ended)
    done = [moment for moment, _ in await arena.finished()]
    refill = next((moment for moment in done if moment >= healed), None)
    findings.stage("refill", refill, "the next page is done")
    findings.stage("all done", done[-1] if done and ended else None, "the last page is done")
    findings.recovered(refill, since=healed)
    await _others_done(arena, findings, set())
    await _rendered_once(arena, findings)


async def _lose_answers(arena: Sandbox, findings: Findings, count: int, seconds: float) -> None:
    """By the proxy: for some seconds, and until posts were hit; slow pages are posted seldom."""
    proxy, patience = arena.proxy, arena.ground.patience
    findings.begin(time.time(), "one answer in ten is lost, the next two answers to posts, and the websocket")
    proxy.inject(Reset(), on="POST /prompt", times=LOST_POSTS)
    proxy.inject(Loss(LOST_SHARE), times=None)
    proxy.cut_all("/ws")
    before = len(proxy.when("POST /prompt"))

    def is_enough(passed: float) -> bool:
        is_met = len(proxy.when("POST /prompt")) >= before + LOST_POSTS
        return passed >= seconds and (is_met or passed >= patience or not arena.is_agent_alive)

    await arena.keep_busy(count, is_enough)
    proxy.heal()
    hit = min(LOST_POSTS, len(proxy.when("POST /prompt")) - before)
    if hit < LOST_POSTS and arena.is_agent_alive:
        raise Skipped(f"the pages are too slow: no two were posted within {patience:g} s; give a lighter workflow")
    findings.check("answers lost", "some", f"{proxy.faults_met}, {hit} of them to posts", proxy.faults_met > 0)


async def _rendered_once(arena: Sandbox, findings: Findings) -> None:
    """No page was sent twice because an answer was lost, and none is at the server under two ids."""
    ids, rendered = [], 0
    async with arena.client() as client:
        for job in await arena.jobs():
            known = [attempt.prompt_id for attempt in await arena.attempts(job) if attempt.prompt_id]
            ids += known
            for prompt_id in known:
                rendered += isinstance(await client.look_up(prompt_id), Ended)
    count = len(await arena.jobs())
    posts = len(arena.proxy.when("POST /prompt"))
    findings.check("renders at the server", f"{count}, one a page", rendered, rendered == count)
    findings.check("posts", f"at most {len(ids)}, one a try", posts, posts <= len(ids))


# A server that dies.


async def comfyui_crash(arena: Sandbox, findings: Findings) -> None:
    """The server is killed while it renders, and started again."""
    if not arena.server.can_be_killed:
        raise Skipped("the server was not started here: give --start-command, so that it can be killed and restarted")
    count = arena.ground.amount(5, 12)
    await arena.queue_book(await arena.healthy(count))
    arena.start_agent()
    began = await arena.until_done(1)
    findings.check("before the fault", "pages get done", "they do" if began else "nothing is done", began)
    await _catch_at_work(arena, count)
    fault = time.time()
    await arena.server.kill()
    findings.begin(fault, "the server is killed while it renders")
    await arena.server.restart()
    findings.stage("server back", time.time(), "the server answers again")
    ended = await arena.until_all_ended()
    await _nothing_waits(arena, findings, ended)
    if ended and not await _was_at_work(arena, fault):
        raise Skipped(TOO_QUICK)
    alert = await arena.first(fault, EventName.ALERT_SERVER)
    requeue = await arena.first(fault, EventName.JOB_RETRY)
    refill = await arena.refilled(fault)
    findings.stage("alert", alert, f"{EventName.ALERT_SERVER}: the server is gone")
    findings.stage("requeue", requeue, "its pages wait again")
    findings.stage("refill", refill, "a page that was begun since is done")
    findings.stage("all done", (await arena.finished())[-1][0] if ended else None, "the last page is done")
    findings.recovered(refill)
    findings.check("an alert", "alert.server", "seen" if alert is not None else "none", alert is not None)
    findings.check("what was lost", "requeued", "seen" if requeue is not None else "none", requeue is not None)
    charged = [job.config_name for job in await arena.jobs() if job.retries_attempted]
    findings.check("retries charged to pages", "none", charged or "none", not charged)
    await _others_done(arena, findings, set())


async def _catch_at_work(arena: Sandbox, count: int) -> None:
    """Wait until the server executes a page; of pages that are over in no time it gets more."""
    for more in range(FEEDS):
        if await arena.until_at_work():
            return
        if not arena.is_agent_alive:
            break
        await arena.queue_book(await arena.healthy(count * 10 * (more + 1)))
    raise Skipped(TOO_QUICK)


async def _was_at_work(arena: Sandbox, moment: float) -> bool:
    """Whether a page was at the server at a moment. Pages of milliseconds may end just before it is killed."""
    runs = [attempt for job in await arena.jobs() for attempt in await arena.attempts(job)]
    return any(
        attempt.started_at is not None
        and moment_of(attempt.started_at) <= moment
        and (attempt.ended_at is None or moment_of(attempt.ended_at) >= moment)
        for attempt in runs
    )


# A server that has become slow.


async def artificial_latency(arena: Sandbox, findings: Findings) -> None:
    """The same pages twice, the second time with a pause in each."""
    count = arena.ground.amount(4, 10)
    seconds = 0.5 if arena.ground.is_quick else 1.0
    await arena.queue_book(await arena.healthy(1))  # which loads the model
    arena.start_agent()
    ended = await arena.until_all_ended()
    before = await arena.queue_book(await arena.healthy(count))
    ended = ended and await arena.until_all_ended()
    quick = await _p95(arena, before)
    seconds = round(min(max(seconds, quick or 0.0), LONGEST_PAUSE), 1)  # as long as a page itself: more than chance
    findings.begin(time.time(), f"every page takes {seconds:g} s longer from now on")
    slow = await arena.healthy(count)
    async with arena.client() as client:
        has_sleep = await client.definitions.of("Sleep") is not None
    if has_sleep:
        slow = [with_sleep(graph, seconds) for graph in slow]
    else:
        arena.proxy.inject(Delay(seconds), on="GET /history/", times=None)
    after = await arena.queue_book(slow)
    ended = ended and await arena.until_all_ended()
    arena.proxy.heal()
    await _nothing_waits(arena, findings, ended)
    slowed = await _p95(arena, after)
    findings.stage(
        "all done", max((moment for moment, _ in await arena.finished()), default=None), "the last page is done"
    )
    rise = None if quick is None or slowed is None else slowed - quick
    seen = "not measured" if rise is None else f"{rise:.2f} s, from {quick:.2f} s to {slowed:.2f} s"
    is_seen = rise is not None and rise >= 0.8 * seconds
    findings.check("p95 rises", f"by {seconds:g} s or more", seen, is_seen)
    between = None if quick is None or slowed is None else quick + seconds / 2
    told = quick is not None and slowed is not None and between is not None and quick <= between < slowed
    limit = "none" if between is None else f"{between:.2f} s"
    findings.check(
        "a target between the two", "met before, missed after", f"{limit}: {'so' if told else 'not so'}", told
    )
    runs = [job.run_count for job in await arena.jobs()]
    findings.check("patience", "each page tried once", f"at most {max(runs, default=0)} tries", set(runs) == {1})
    await _others_done(arena, findings, set())


def with_sleep(graph: Graph, seconds: float) -> dict[str, Any]:
    """A graph that pauses before its first result is saved."""
    for node_id in saving_nodes(graph):
        for name, value in inputs_of(graph, node_id).items():
            if isinstance(value, list) and len(value) == 2:
                slept = place(graph, {f"{node_id}.{name}": ["e3_sleep", 0]})
                return {**slept, "e3_sleep": {"class_type": "Sleep", "inputs": {"value": value, "seconds": seconds}}}
    raise Skipped("the workflow saves nothing that could be held up: give one with a save node")


async def _p95(arena: Sandbox, jobs: Sequence[Job]) -> float | None:
    """From the lease of a page to its result, at the 95th percentile."""
    seconds = []
    for job in jobs:
        for attempt in await arena.attempts(job):
            if attempt.outcome == DONE and attempt.started_at and attempt.ended_at:
                seconds.append(moment_of(attempt.ended_at) - moment_of(attempt.started_at))
    return percentile(seconds, 0.95) if seconds else None


# What holds for all of them.


async def _nothing_waits(arena: Sandbox, findings: Findings, ended: bool) -> None:
    counts = await arena.counts()
    open_ = counts["total"] - counts["done"] - counts["failed"]
    seen = f"{open_} of {counts['total']} did not" + ("" if arena.is_agent_alive else "; the agent is gone")
    findings.check("every page", "ends", "they do" if ended else seen, ended)


async def _others_done(arena: Sandbox, findings: Findings, apart: set[int]) -> None:
    others = [job for job in await arena.jobs() if job.id not in apart]
    done = sum(job.status is JobStatus.DONE for job in others)
    what = "the other pages" if apart else "the pages"
    findings.check(what, f"all {len(others)} done", f"{done} done", done == len(others))


async def _oversized(arena: Sandbox, graph: Graph) -> Graph:
    """A picture of a size that no memory holds: the server fails to get it, at once. A simulator wants a sampler."""
    async with arena.client() as client:
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
    """Where a graph says how large and how many: `4.width` and so on."""
    found: dict[str, Any] = {}
    for node_id in graph:
        inputs = inputs_of(graph, node_id)
        if all(isinstance(inputs.get(name), int) for name in sizes):
            found |= {f"{node_id}.{name}": value for name, value in sizes.items()}
    return found


def _listed(outcomes: Sequence[str | None]) -> str:
    return ", ".join(outcome or "no end" for outcome in outcomes) or "none"


def _first_line(job: Job) -> str:
    return (job.error_trace or "no reason").partition("\n")[0]


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "prompt-validation",
            "a page that the server rejects",
            "it is tried once more, then marked as needing regeneration; the other pages are done",
            prompt_validation,
            ("--render-seconds", "0.1"),
        ),
        Scenario(
            "gpu-oom",
            "a page that needs more memory than there is",
            "memory is freed and seen free before the page is tried again, after a longer wait",
            gpu_oom,
            ("--render-seconds", "0.1", "--vram-gb", "8", "--held-gb", "3.5"),
        ),
        Scenario(
            "network-blip",
            "answers and the websocket are lost for a while",
            "questions are asked again, every page is done, and none is rendered twice",
            network_blip,
            ("--render-seconds", "0.25"),
        ),
        Scenario(
            "comfyui-crash",
            "the server is killed while it renders",
            "an alert is given, what was lost is requeued without being charged, and every page is done",
            comfyui_crash,
            ("--render-seconds", "0.5"),
        ),
        Scenario(
            "artificial-latency",
            "every page takes longer",
            "p95 rises by as much, no page is given up or tried twice",
            artificial_latency,
            ("--render-seconds", "0.1"),
        ),
    )
}
QUICK = ("prompt-validation", "network-blip")
"""The set for every week; all of them before a release or after a new driver."""
