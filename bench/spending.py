"""The processor time that an agent takes for each job, by its own clock: it bounds how many servers one can feed.

Nothing is deleted while this measures: for minutes afterwards, ext4 searches its free inodes among those that were, and
a third of the processor time of a job goes into making its file.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from report import Line, at_most
from sizes import size
from support.servers import simulator
from working import Work, fresh_work, unix

FEW, MANY = size(200, 2), size(3_200, 8)
ROUNDS = size(3, 1)
SERVERS = size(8, 2)
GOAL = 3.0
WHY = "other work on the same few cores makes the caches colder"


@dataclass(frozen=True)
class Spent:
    """What one agent took, its start included. `rate`: jobs a second from the first lease to the last `done`."""

    seconds: float
    rate: float


def spend(work: Work, urls: list[str], count: int) -> Spent:
    work.submit(count)
    others = [flag for url in urls[1:] for flag in ("--server", url)]
    with work.agent(urls[0], *others, "--until-idle") as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (work.root / "agent.log").read_text()[-3000:]
    jobs = work.jobs()
    assert all(job.status == "done" for job in jobs)
    took = max(unix(job.end_time) for job in jobs) - min(unix(job.start_time) for job in jobs)
    return Spent(usage.ru_utime + usage.ru_stime, count / took)


def per_job(urls: list[str]) -> tuple[list[float], float]:
    """Milliseconds a job in each round, without what a start costs, and the best rate."""
    with contextlib.ExitStack() as stack:
        rounds = [
            [spend(stack.enter_context(fresh_work()), urls, count) for count in (FEW, MANY)] for _ in range(ROUNDS)
        ]
    cost = [(many.seconds - few.seconds) / (MANY - FEW) * 1000 for few, many in rounds]
    return cost, max(many.rate for _, many in rounds)


def measure(name: str, url: str) -> list[Line]:
    return [_line(f"{name}: the agent's processor time a trivial job", *per_job([url]))]


@contextmanager
def _fast_servers(count: int) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as base, contextlib.ExitStack() as stack:
        servers = [simulator(Path(base) / str(number), "--render-seconds", "0") for number in range(count)]
        for server in servers:
            stack.callback(server.kill)
        yield [server.start().url for server in servers]


def measure_fleet() -> list[Line]:
    """Many fast servers: what the agent takes for a job bounds how many it can feed."""
    with _fast_servers(SERVERS) as urls:
        cost, rate = per_job(urls)
    bound = 1000 / statistics.median(cost)
    return [
        _line(
            f"{SERVERS} fast simulators on one agent, which could feed {bound:.0f} jobs/s on a core of its own",
            cost,
            rate,
        )
    ]


def _line(what: str, cost: list[float], rate: float) -> Line:
    seen = ", ".join(f"{each:.2f}" for each in cost)
    what = f"{what}, {MANY - FEW} jobs, median of {seen} ms, {rate:.0f} jobs/s"
    return at_most(what, GOAL, statistics.median(cost), " ms", why=WHY)
