"""Servers of different speeds and models on one queue: time and model loads against the best schedule, and by id.

A schedule here knows all jobs, render and load times beforehand. Like the agent, a server never starts a job while one
of a higher priority waits that it could run; unlike it, it needs no time between two prompts. The best is the shortest
that a search over thousands of such schedules finds. The fewest loads are those of any found in which no server waits
while it could work. Beside it stands the fewest of any within 1.15 of the best time, where servers may wait as well.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import filling
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.routing import Head, Routed, choose
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.leases import Queue
from comfyui_agent.store.sqlite.connection import connect
from report import Line, at_most
from sizes import size
from support.graphs import sampled
from support.servers import simulator
from working import fresh_work, unix

JOBS = size(400, 24)
PRIORITIES = (10, 50, 90)
STAY_SECONDS = size(5.0, 1.0)
PATIENCE = 600.0
CLOCK = 0.05
"""Seconds by which two times of the database may differ from the moment of the decision."""
SEARCHES, STEPS = size(12, 2), size(1_200, 50)
SLACK = 1.15
LOAD_SECONDS = {"small": 0.5, "middle": 0.75, "large": 1.0}
ROWS, FEW_ROWS, KINDS = size(1_000_000, 1_000), size(1_000, 100), size(1_000, 20)


@dataclass(frozen=True)
class Machine:
    """A simulator: seconds of a render, and the models that it has."""

    render: float
    models: tuple[str, ...]

    def flags(self) -> Iterator[str]:
        yield from ("--render-seconds", str(self.render))
        for model in self.models:
            yield from ("--models", f"{model}.safetensors")
            yield from ("--model-load-seconds", f"{model}.safetensors={LOAD_SECONDS[model]}")


MACHINES = (
    Machine(0.25, ("small", "middle", "large")),
    Machine(0.35, ("small", "middle")),
    Machine(0.5, ("middle", "large")),
    Machine(0.8, ("small", "large")),
)


@dataclass(frozen=True)
class Wanted:
    """A job: its priority and the model it needs."""

    priority: int
    model: str


def random_jobs() -> list[Wanted]:
    chance = random.Random(18)
    return [Wanted(chance.choice(PRIORITIES), chance.choice(list(LOAD_SECONDS))) for _ in range(JOBS)]


# Schedules

Genes = tuple[tuple[str, ...], ...]
"""For each priority and server, the models that it takes jobs of, in this order; for others it waits."""


@dataclass(frozen=True, order=True)
class Schedule:
    seconds: float
    loads: int


def simulate(counts: Counter[tuple[int, str]], genes: Genes) -> Schedule | None:
    """The schedule that these orders lead to. None if they leave jobs that nobody takes."""
    left = dict(counts)
    free_at = [0.0] * len(MACHINES)
    loaded = [""] * len(MACHINES)
    waits: set[int] = set()
    loads, last = 0, 0.0
    while any(left.values()):
        server = min(
            (each for each in range(len(MACHINES)) if each not in waits), key=free_at.__getitem__, default=None
        )
        if server is None:
            return None
        machine, now = MACHINES[server], free_at[server]
        level = next(
            (at for at, each in enumerate(PRIORITIES) if any(left.get((each, m)) for m in machine.models)), None
        )
        order = () if level is None else genes[level * len(MACHINES) + server]
        waiting = [model for model in order if left.get((PRIORITIES[level or 0], model))]
        if not waiting:
            waits.add(server)
            continue
        model = loaded[server] if loaded[server] in waiting else waiting[0]
        if loaded[server] != model:
            free_at[server] += LOAD_SECONDS[model]
            loaded[server], loads = model, loads + 1
        free_at[server] += machine.render
        last = max(last, free_at[server])
        left[PRIORITIES[level or 0], model] -= 1
        for each in waits:  # what they waited for may be gone now
            free_at[each] = max(free_at[each], now)
        waits.clear()
    return Schedule(last, loads)


def orders_of(machine: Machine, *, may_wait: bool) -> list[tuple[str, ...]]:
    every = len(machine.models)
    return [
        order for length in range(0 if may_wait else every, every + 1) for order in permutations(machine.models, length)
    ]


def best_schedules(jobs: Sequence[Wanted]) -> tuple[Schedule, int, int]:
    """The shortest schedule, the fewest loads without waiting, and of all that take at most so much longer."""
    waiting, working = _search(jobs, may_wait=True), _search(jobs, may_wait=False)
    best = min(waiting | working)
    in_time = [each.loads for each in waiting | working if each.seconds <= SLACK * best.seconds]
    return best, min(each.loads for each in working), min(in_time)


def _search(jobs: Sequence[Wanted], *, may_wait: bool) -> set[Schedule]:
    counts = Counter((job.priority, job.model) for job in jobs)
    chance = random.Random(18)
    choices = [orders_of(machine, may_wait=may_wait) for _ in PRIORITIES for machine in MACHINES]
    found: set[Schedule] = set()
    for search in range(SEARCHES):
        genes = tuple(chance.choice(each) for each in choices)
        weight = (0.0, 0.25, 1.0)[search % 3]
        reached = float("inf")
        for _ in range(STEPS):
            changed = list(genes)
            for _ in range(chance.choice((1, 1, 2, 3))):
                at = chance.randrange(len(choices))
                changed[at] = chance.choice(choices[at])
            schedule = simulate(counts, tuple(changed))
            if schedule is None:
                continue
            found.add(schedule)
            if (cost := schedule.seconds + weight * schedule.loads) <= reached:
                genes, reached = tuple(changed), cost
    return found


# The agent


@dataclass(frozen=True)
class Dispatch:
    """An attempt as the database has it."""

    job_id: int
    server: int
    started_at: float


@dataclass(frozen=True)
class Drive:
    """What an agent did with the jobs."""

    seconds: float
    loads: int
    overtakes: int
    """Jobs that were handed out while an older one of their priority waited that the server could run."""
    longest: float
    """Seconds for which one such older job was overtaken."""
    inversions: int
    """Jobs that were handed out while one of a higher priority waited that the server could run."""


@contextmanager
def servers() -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder, ExitStack() as stack:
        urls = []
        for number, machine in enumerate(MACHINES):
            process = simulator(Path(folder) / str(number), *machine.flags())
            stack.callback(process.kill)
            urls.append(process.start().url)
        yield urls


def agent_run(jobs: Sequence[Wanted], stay_seconds: float) -> Drive:
    """The jobs in a queue that an agent of its own works off at four servers that have loaded nothing yet."""
    template = Template.of(sampled("small.safetensors", "picture", seed=0, steps=2))
    rows = [
        NewJob(f"job_{n}.yaml", "T2I", "wf", template, _inputs(job, n), priority=job.priority)
        for n, job in enumerate(jobs)
    ]
    with fresh_work() as work, servers() as urls:
        (work.root / "config").mkdir()
        (work.root / "config" / "global_config.yaml").write_text(f"routing: {{stay_seconds: {stay_seconds}}}\n")

        async def submit() -> None:
            store = open_store(work.database)
            await store.run(ops.submit_jobs, rows)
            await store.close()

        asyncio.run(submit())
        database = connect(work.database, wait=lambda seconds: seconds < 10)
        more = [flag for url in urls[1:] for flag in ("--server", url)]
        with work.agent(urls[0], *more, "--until-idle") as process:
            status = process.wait(PATIENCE)
        assert status == 0, (work.root / "agent.log").read_text()[-3000:]
        attempts = database.execute("SELECT job_id, server, started_at FROM attempts ORDER BY id").fetchall()
        ended = database.execute("SELECT max(end_time) FROM jobs WHERE status = 'done'").get
        database.close()
    dispatches = [Dispatch(job_id, urls.index(server), unix(at)) for job_id, server, at in attempts]
    assert sorted(each.job_id for each in dispatches) == list(range(1, len(jobs) + 1)), "each job ran once"
    return judge(jobs, dispatches, unix(ended))


def _inputs(job: Wanted, number: int) -> dict[str, Any]:
    return {"1.ckpt_name": f"{job.model}.safetensors", "5.seed": number}


def judge(jobs: Sequence[Wanted], dispatches: Sequence[Dispatch], ended: float) -> Drive:
    """Go through what was handed out, in order: who was overtaken when, and what had to be loaded."""
    waiting = dict(enumerate(jobs, 1))
    first_overtaken: dict[int, float] = {}
    loaded = [""] * len(MACHINES)
    loads = overtakes = inversions = 0
    longest = 0.0
    for each in dispatches:
        job = waiting[each.job_id]
        eligible = {n: other for n, other in waiting.items() if other.model in MACHINES[each.server].models}
        inversions += min(other.priority for other in eligible.values()) < job.priority
        oldest = min(n for n, other in eligible.items() if other.priority == job.priority)
        if oldest != each.job_id:
            overtakes += 1
            longest = max(longest, each.started_at - first_overtaken.setdefault(oldest, each.started_at))
        loads += loaded[each.server] != job.model
        loaded[each.server] = job.model
        del waiting[each.job_id]
    return Drive(ended - dispatches[0].started_at, loads, overtakes, longest, inversions)


def measure_schedule() -> list[Line]:
    jobs = random_jobs()
    best, fewest, with_waiting = best_schedules(jobs)
    routed, by_id = agent_run(jobs, STAY_SECONDS), agent_run(jobs, 0)
    what = (
        f"routing: {JOBS} jobs, {len(LOAD_SECONDS)} model sets, {len(PRIORITIES)} priorities, {len(MACHINES)} servers"
    )
    seconds = f"{routed.seconds:.1f} s against {best.seconds:.1f} s, by id {by_id.seconds:.1f} s"
    loads = f"{routed.loads} against {fewest} ({with_waiting} if servers may wait), by id {by_id.loads}"
    why = "the clock of the agent and of four servers on a few cores runs on while a prompt is handed over"
    overtaken = f"routing: seconds for which a job was overtaken, at most {STAY_SECONDS:g} s, {CLOCK:g} s for the clock"
    return [
        at_most(f"{what}, time against the best schedule, {seconds}", SLACK, routed.seconds / best.seconds, why=why),
        at_most(f"{what}, model loads against the fewest, {loads}", 1.5, routed.loads / fewest),
        at_most(overtaken, STAY_SECONDS + CLOCK, routed.longest, " s"),
        at_most("routing: jobs that overtook another with stay_seconds 0", 0, by_id.overtakes),
        at_most("routing: jobs started before one of a higher priority", 0, routed.inversions + by_id.inversions),
    ]


# Leases among many


class OnlyOurs:
    """The route of a server that can run nothing of the others."""

    def choose(self, priority: Any, waiting: Sequence[Head], loaded: str | None, queue: Queue) -> Routed:  # noqa: ARG002
        return choose([head for head in waiting if head.needs == filling.OURS], loaded, 120.0)


def measure_leases() -> list[Line]:
    return [_lease_among(ROWS, 1, 2.0), _lease_among(KINDS, KINDS, 10.0)]


def _lease_among(others: int, kinds: int, goal: float) -> Line:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        many, few = Path(folder) / "many.db", Path(folder) / "few.db"
        filling.fill(many, finished=0, pending=FEW_ROWS, waiting=0, others=others, kinds=kinds)
        filling.fill(few, finished=0, pending=FEW_ROWS, waiting=0)

        async def run() -> filling.Pairs:
            return await filling.lease_pairs([open_store(many), open_store(few)], OnlyOurs())

        found = asyncio.run(run())
    needs = f"{kinds:,} different needs" if kinds > 1 else "another model"
    what = f"routing: one lease among {others:,} jobs of {needs} for another server against {FEW_ROWS:,} of its own"
    return at_most(f"{what}, {found.seen(' ms', 2)}", goal, found.ratio, why="every different need is looked at")


def measure() -> list[Line]:
    return measure_schedule() + measure_leases()


if __name__ == "__main__":
    for line in measure():
        print(line.text())
