"""Scenarios with a server in trouble: a network that loses answers, a crash, and slow pages."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from comfyui_agent.comfy.lookup import Ended
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import DONE, Job
from comfyui_agent.domain.prompts import Graph, inputs_of, place, saving_nodes
from comfyui_agent.lab.chaos.findings import Findings, Skipped
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.fault_proxy import Delay, Loss, Reset
from comfyui_agent.lab.load.measurement import percentile
from comfyui_agent.lab.reports.fields import as_moment

LOST_SHARE = 0.1
LOST_POSTS = 2
FEEDS = 5
LONGEST_PAUSE = 30.0
DEVICE = re.compile(r"[A-Za-z0-9][\w.@-]{0,14}")
DROPPED = re.compile(r"netem.*?dropped (\d+)", re.DOTALL)
TOO_QUICK = "the pages are rendered too quickly for the server to be caught at work: give a heavier workflow"


async def network_blip(sandbox: Sandbox, findings: Findings) -> None:
    """Answers are lost, the websocket breaks, and after a while all is well again."""
    count = sandbox.plan.amount(16, 50)
    await sandbox.queue(await sandbox.healthy(count))
    sandbox.start_agent()
    await findings.check_pages_get_done(sandbox)
    seconds = 3.0 if sandbox.plan.is_quick else 10.0
    if sandbox.plan.netem is not None:
        async with lossy(sandbox.plan.netem, LOST_SHARE):
            findings.begin(time.time(), f"{LOST_SHARE:.0%} of the packets at {sandbox.plan.netem} are lost")
            await sandbox.keep_busy(count, lambda passed: passed >= seconds)
    else:
        await _lose_answers(sandbox, findings, count, seconds)
    healed = time.time()
    findings.stage("healed", healed, "the network is as before")
    ended = await findings.check_all_end(sandbox)
    done = [moment for moment, _ in await sandbox.finished()]
    refill = next((moment for moment in done if moment >= healed), None)
    findings.stage("refill", refill, "the next page is done")
    findings.stage("all done", done[-1] if done and ended else None, "the last page is done")
    findings.recovered(refill, since=healed)
    await findings.check_others_done(sandbox)
    await _check_rendered_once(sandbox, findings)


async def _lose_answers(sandbox: Sandbox, findings: Findings, count: int, seconds: float) -> None:
    """Lose answers in the proxy for some seconds, and until posts were hit: slow pages are posted seldom."""
    proxy, patience = sandbox.proxy, sandbox.plan.patience
    findings.begin(time.time(), "one answer in ten is lost, the next two answers to posts, and the websocket")
    proxy.inject(Reset(), on="POST /prompt", times=LOST_POSTS)
    proxy.inject(Loss(LOST_SHARE), times=None)
    proxy.cut_all("/ws")
    before = len(proxy.when("POST /prompt"))

    def is_enough(passed: float) -> bool:
        are_hit = len(proxy.when("POST /prompt")) >= before + LOST_POSTS
        return passed >= seconds and (are_hit or passed >= patience or not sandbox.is_agent_alive)

    await sandbox.keep_busy(count, is_enough)
    proxy.heal()
    hit = min(LOST_POSTS, len(proxy.when("POST /prompt")) - before)
    if hit < LOST_POSTS and sandbox.is_agent_alive:
        raise Skipped(f"the pages are too slow: no two were posted within {patience:g} s; give a lighter workflow")
    findings.check("answers lost", "some", f"{proxy.faults_met}, {hit} of them to posts", proxy.faults_met > 0)


async def _check_rendered_once(sandbox: Sandbox, findings: Findings) -> None:
    """No page was sent twice because an answer was lost, and none is at the server under two ids."""
    jobs = await sandbox.jobs()
    ids = [attempt.prompt_id for attempt in await sandbox.attempts(*jobs) if attempt.prompt_id]
    async with sandbox.client() as client:
        rendered = sum([isinstance(await client.look_up(prompt_id), Ended) for prompt_id in ids])
    posts = len(sandbox.proxy.when("POST /prompt"))
    findings.check("renders at the server", f"{len(jobs)}, one a page", rendered, rendered == len(jobs))
    findings.check("posts", f"at most {len(ids)}, one a try", posts, posts <= len(ids))


@asynccontextmanager
async def lossy(device: str, share: float) -> AsyncIterator[None]:
    """Within the block a network device loses a share of its packets. Skipped if that is not allowed or none was lost,
    RuntimeError if it cannot be undone."""
    if not DEVICE.fullmatch(device):
        raise Skipped(f"{device!r} is no network device: name one, such as eth0")
    adding = asyncio.ensure_future(_tc("qdisc", "add", "dev", device, "root", "netem", "loss", f"{share * 100:g}%"))
    try:
        message, code = await asyncio.shield(adding)
        if code != 0:
            raise Skipped(f"tc refused ({message}): run as root, or leave --netem out to use the proxy")
        yield
        found = DROPPED.search((await _tc("-s", "qdisc", "show", "dev", device))[0])
        if found is None or found.group(1) == "0":
            raise Skipped(f"no packet was lost at {device}: name the device by which the server is reached")
    finally:
        if (await adding)[1] == 0:  # also if this was cancelled while it was added
            await _take_off(device)


async def _take_off(device: str) -> None:
    removing = asyncio.ensure_future(_tc("qdisc", "del", "dev", device, "root"))
    try:
        await asyncio.shield(removing)
    finally:
        message, code = await removing
    if code != 0:
        raise RuntimeError(f"{device} still loses packets, tc refused ({message}): run tc qdisc del dev {device} root")


async def _tc(*arguments: str) -> tuple[str, int]:
    """The output of tc in one line, and its exit code."""
    program = shutil.which("tc")
    if program is None:
        raise Skipped("there is no tc on this machine: install iproute2, or leave --netem out to use the proxy")
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
    )
    output, _ = await process.communicate()
    code = process.returncode or 0
    return " ".join(output.decode("utf-8", "replace").split()) or f"exit {code}", code


async def comfyui_crash(sandbox: Sandbox, findings: Findings) -> None:
    """The server is killed while it renders, and started again."""
    if not sandbox.server.can_be_killed:
        raise Skipped("the server was not started here: give --start-command, so that it can be killed and restarted")
    count = sandbox.plan.amount(5, 12)
    await sandbox.queue(await sandbox.healthy(count))
    sandbox.start_agent()
    await findings.check_pages_get_done(sandbox)
    await _catch_at_work(sandbox, count)
    fault = time.time()
    await sandbox.server.kill()
    findings.begin(fault, "the server is killed while it renders")
    await sandbox.server.start()
    findings.stage("server back", time.time(), "the server answers again")
    ended = await findings.check_all_end(sandbox)
    if ended and not await _was_at_work(sandbox, fault):
        raise Skipped(TOO_QUICK)
    alert = await sandbox.first(fault, EventName.ALERT_SERVER)
    requeue = await sandbox.first(fault, EventName.JOB_RETRY)
    refill = await sandbox.refilled(fault)
    findings.stage("alert", alert, f"{EventName.ALERT_SERVER}: the server is gone")
    findings.stage("requeue", requeue, "its pages wait again")
    findings.stage("refill", refill, "a page that was begun since is done")
    findings.stage("all done", (await sandbox.finished())[-1][0] if ended else None, "the last page is done")
    findings.recovered(refill)
    findings.check("an alert", "alert.server", "seen" if alert is not None else "none", alert is not None)
    findings.check("what was lost", "requeued", "seen" if requeue is not None else "none", requeue is not None)
    charged = [job.config_name for job in await sandbox.jobs() if job.retries_attempted]
    findings.check("retries charged to pages", "none", charged or "none", not charged)
    await findings.check_others_done(sandbox)


async def _catch_at_work(sandbox: Sandbox, count: int) -> None:
    """Wait until the server executes a page. If pages end too quickly, queue more of them."""
    for more in range(FEEDS):
        if await sandbox.until_at_work():
            return
        if not sandbox.is_agent_alive:
            break
        await sandbox.queue(await sandbox.healthy(count * 10 * (more + 1)))
    raise Skipped(TOO_QUICK)


async def _was_at_work(sandbox: Sandbox, moment: float) -> bool:
    """Whether a page was at the server at a moment. Pages of milliseconds may end just before it is killed."""
    return any(
        (as_moment(attempt.started_at) or math.inf) <= moment <= (as_moment(attempt.ended_at) or math.inf)
        for attempt in await sandbox.attempts(*await sandbox.jobs())
    )


async def artificial_latency(sandbox: Sandbox, findings: Findings) -> None:
    """The same pages twice, the second time with a pause in each."""
    count = sandbox.plan.amount(4, 10)
    await sandbox.queue(await sandbox.healthy(1))  # which loads the model
    sandbox.start_agent()
    ended = await sandbox.until_all_ended()
    before = await sandbox.queue(await sandbox.healthy(count))
    ended = ended and await sandbox.until_all_ended()
    quick = await _p95(sandbox, before)
    pause = 0.5 if sandbox.plan.is_quick else 1.0
    pause = round(min(max(pause, quick or 0.0), LONGEST_PAUSE), 1)  # as long as a page itself: more than chance
    findings.begin(time.time(), f"every page takes {pause:g} s longer from now on")
    after = await sandbox.queue(await _slowed(sandbox, count, pause))
    await findings.check_all_end(sandbox, so_far=ended)
    sandbox.proxy.heal()
    slow = await _p95(sandbox, after)
    last = max((moment for moment, _ in await sandbox.finished()), default=None)
    findings.stage("all done", last, "the last page is done")
    _check_rise(findings, quick, slow, pause)
    runs = [job.run_count for job in await sandbox.jobs()]
    findings.check("patience", "each page tried once", f"at most {max(runs, default=0)} tries", set(runs) == {1})
    await findings.check_others_done(sandbox)


async def _slowed(sandbox: Sandbox, count: int, pause: float) -> list[Graph]:
    """Pages that pause: by a Sleep node where the server has one, else the proxy holds answers back."""
    pages = await sandbox.healthy(count)
    async with sandbox.client() as client:
        has_sleep = await client.definitions.of("Sleep") is not None
    if has_sleep:
        return [with_sleep(graph, pause) for graph in pages]
    sandbox.proxy.inject(Delay(pause), on="GET /history/", times=None)
    return pages


def _check_rise(findings: Findings, quick: float | None, slow: float | None, pause: float) -> None:
    """The p95 rises by the pause, and a target between the two is met before and missed after."""
    seen, limit, is_seen, is_between = "not measured", "none", False, False
    if quick is not None and slow is not None:
        rise, between = slow - quick, quick + pause / 2
        seen, limit = f"{rise:.2f} s, from {quick:.2f} s to {slow:.2f} s", f"{between:.2f} s"
        is_seen, is_between = rise >= 0.8 * pause, quick <= between < slow
    findings.check("p95 rises", f"by {pause:g} s or more", seen, is_seen)
    placed = f"{limit}: {'so' if is_between else 'not so'}"
    findings.check("a target between the two", "met before, missed after", placed, is_between)


def with_sleep(graph: Graph, seconds: float) -> dict[str, Any]:
    """A graph that pauses before its first result is saved."""
    for node_id in saving_nodes(graph):
        for name, value in inputs_of(graph, node_id).items():
            if isinstance(value, list) and len(value) == 2:
                slept = place(graph, {f"{node_id}.{name}": ["e3_sleep", 0]})
                return {**slept, "e3_sleep": {"class_type": "Sleep", "inputs": {"value": value, "seconds": seconds}}}
    raise Skipped("the workflow saves nothing that could be held up: give one with a save node")


async def _p95(sandbox: Sandbox, jobs: Sequence[Job]) -> float | None:
    """From the lease of a page to its result, at the 95th percentile."""
    seconds = []
    for attempt in await sandbox.attempts(*jobs):
        started, ended = as_moment(attempt.started_at), as_moment(attempt.ended_at)
        if attempt.outcome == DONE and started is not None and ended is not None:
            seconds.append(ended - started)
    return percentile(seconds, 0.95) if seconds else None
