"""Agents and simulators on two hosts, one PostgreSQL, one object store: what breaks there, and what must hold after."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from PIL import Image

from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from support import postgres
from support.agents import DATABASE_URL, AgentWorkspace, Watcher, leave, start_changed
from support.hosts import DATABASE, OBJECTS, Host, Network
from support.object_stores import Bucket, ObjectServer
from support.postgres import PostgresServer
from support.servers import ServerProcess, simulator
from support.workspaces import run_e3

LEASE = 2.0
CLOCKS = (-150, 150)
"""By how many seconds the clocks of the hosts are wrong."""
LOST = ("server_lost", "interrupted")
"""How a run may end that another one follows: its server was killed, or cannot be reached."""


@dataclass
class Machine:
    """One host: its workspace, its agents and its simulators."""

    host: Host
    workspace: AgentWorkspace
    simulators: list[ServerProcess]
    clock_is_off_by: int
    """In seconds."""
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_agent(self) -> subprocess.Popen[bytes]:
        """One more agent. Its clock is that of its host."""
        clock = self.workspace.root / "clock"
        if not clock.exists():
            clock.parent.mkdir(parents=True, exist_ok=True)
            clock.write_text(str(self.clock_is_off_by))
        with self.host.entered():
            return start_changed(self.workspace, f"clock:{clock}")

    def restart_agent(self, number: int) -> None:
        self.workspace.kill(self.agents[number])
        self.agents[number] = self.start_agent()

    def restart_simulator(self, number: int) -> None:
        self.simulators[number].kill()
        with self.host.entered():
            self.simulators[number].start()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.host.entered():
            return run_e3(*words, "-C", str(self.workspace.root), **self.workspace.environment)


@dataclass
class Site:
    """Everything. The test is at the switch of the network, and reaches what is not cut."""

    network: Network
    database: PostgresServer
    objects: ObjectServer
    bucket: Bucket
    machines: list[Machine]

    @property
    def workspace(self) -> AgentWorkspace:
        """One of those that share the memory."""
        return self.machines[0].workspace

    @property
    def simulators(self) -> list[ServerProcess]:
        return [each for machine in self.machines for each in machine.simulators]

    def start_agents(self, each: int = 2) -> None:
        for machine in self.machines:
            machine.agents = [machine.start_agent() for _ in range(each)]

    def done(self) -> int:
        """How many jobs are done; 0 while the database is away."""
        with contextlib.suppress(psycopg.OperationalError):
            (row,) = self.rows("SELECT count(*) AS jobs FROM jobs WHERE status = 'done'")
            return int(row["jobs"])
        return 0

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return postgres.execute(self.database.url, sql)

    def settle(self, timeout: float = 120) -> None:
        """The agents leave; then one on each host finds nothing left to do."""
        for machine in self.machines:
            for agent in machine.agents:
                leave(agent)
                assert agent.returncode == 143, machine.workspace.tail()
        for machine in self.machines:
            with machine.host.entered():
                assert machine.workspace.finish(timeout=timeout) == 0, machine.workspace.tail()

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[Watcher]]:
        """Meanwhile somebody looks at the queues of all servers that can be reached."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Watcher(server.url, 0.05)) for server in self.simulators]

    def tails(self) -> str:
        return "\n".join(f"{each.host.name}:\n{each.workspace.tail()}" for each in self.machines)


@contextlib.contextmanager
def site(network: Network, folder: Path, *, all_servers: bool = True, render: str = "0.12") -> Iterator[Site]:
    """Two simulators on each host. Agents know all four, or only those of their own host."""
    database = PostgresServer(Path(tempfile.mkdtemp(prefix="e3-postgres-")), address=DATABASE).start()
    objects = ObjectServer("rclone", folder, OBJECTS).start()
    bucket = Bucket("rclone", objects.endpoint)
    machines = [
        _machine(host, folder / host.name, render, off) for host, off in zip(network.hosts, CLOCKS, strict=True)
    ]
    urls = [each.url for machine in machines for each in machine.simulators]
    for machine in machines:
        machine.workspace.servers = urls if all_servers else [each.url for each in machine.simulators]
        machine.workspace.environment |= {
            **bucket.settings(),
            DATABASE_URL: database.url,
            "E3_LEASE_SECONDS": str(LEASE),
            "E3_COMFYUI__FAILOVER_SECONDS": "4",
        }
    try:
        yield Site(network, database, objects, bucket, machines)
    finally:
        for machine in machines:
            machine.workspace.stop_all()
            for server in machine.simulators:
                server.kill()
        objects.stop()
        database.stop()
        shutil.rmtree(database.folder, ignore_errors=True)


def _machine(host: Host, folder: Path, render: str, clock_is_off_by: int) -> Machine:
    simulators = []
    for number in range(2):
        server = simulator(
            folder / f"server-{number}", "--host", host.address, "--render-seconds", render, port=8188 + number
        )
        server.url = f"http://{host.address}:{8188 + number}"
        with host.entered():
            simulators.append(server.start())
    return Machine(host, AgentWorkspace(folder / "workspace", []), simulators, clock_is_off_by)


class Chaos:
    """Breaks something at random, and mends it some time later. The same seed breaks the same things."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._chance = random.Random(seed)
        self._kinds: list[str] = []
        self._due: list[tuple[float, str, Callable[[], object]]] = []
        self._broken: set[str] = set()
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        """Break one more thing, unless it is broken already. Each kind has its turn before one comes again."""
        if not self._kinds:
            self._kinds = self._chance.sample(list(self._faults()), len(self._faults()))
        kind = self._kinds.pop()
        machine = self._chance.randrange(len(self._site.machines))
        number = self._chance.randrange(2)
        seconds = self._chance.uniform(0, 1.5)
        what = f"{kind} {machine} {number}"
        if kind in ("database", "objects"):
            what = kind
        elif kind.startswith("cut"):  # for longer than a lease
            what, seconds = f"{kind} {machine}", LEASE * self._chance.uniform(1.2, 2)
        if what in self._broken:
            return
        self.done[kind] += 1
        mend = self._faults()[kind](self._site.machines[machine], number)
        self._broken.add(what)
        self._due.append((time.monotonic() + seconds, what, mend))

    def mend(self, *, everything: bool = False) -> None:
        """Mend what is due."""
        for each in list(self._due):
            due, what, mend = each
            if everything or due <= time.monotonic():
                self._due.remove(each)
                self._broken.discard(what)
                mend()

    def _faults(self) -> dict[str, Callable[[Machine, int], Callable[[], object]]]:
        return {
            "agent": self._kill_agent,
            "simulator": self._kill_simulator,
            "database": self._kill_database,
            "objects": self._kill_objects,
            "cut": lambda machine, _: self._cut(machine, ""),
            "cut from database": lambda machine, _: self._cut(machine, DATABASE),
            "cut from objects": lambda machine, _: self._cut(machine, OBJECTS),
        }

    def _kill_agent(self, machine: Machine, number: int) -> Callable[[], object]:
        machine.restart_agent(number)
        return lambda: None

    def _kill_simulator(self, machine: Machine, number: int) -> Callable[[], object]:
        machine.simulators[number].kill()
        return lambda: machine.restart_simulator(number)

    def _kill_database(self, _: Machine, __: int) -> Callable[[], object]:
        self._site.database.stop(signal.SIGKILL)
        return self._site.database.start

    def _kill_objects(self, _: Machine, __: int) -> Callable[[], object]:
        self._site.objects.stop()
        return self._site.objects.start

    def _cut(self, machine: Machine, address: str) -> Callable[[], object]:
        machine.host.cut(address)
        return lambda: machine.host.mend(address)


def check_site(site: Site, count: int) -> list[Job]:
    """Every job is done once, its object is whole and its own, nothing else is there, and extra runs are explained."""
    jobs = site.workspace.jobs()
    attempts = site.workspace.store(lambda store: _attempts_of(store, jobs))
    assert Counter(job.status for job in jobs) == {JobStatus.DONE: count}, [job.error_trace for job in jobs][:3]
    ends = site.rows("SELECT job_id, count(*) AS ends FROM events WHERE event = 'job.done' GROUP BY job_id")
    assert sorted(row["ends"] for row in ends) == [1] * count
    _check_objects(site, jobs)
    _check_runs(site, jobs, attempts)
    for machine in site.machines:
        checked = machine.ask("db", "check")
        assert checked.returncode == 0, checked.stdout
    return jobs


async def _attempts_of(store: Any, jobs: list[Job]) -> dict[str, list[Attempt]]:
    return {job.config_name: await store.run(ops.list_attempts, job.id) for job in jobs}


def _check_objects(site: Site, jobs: list[Job]) -> None:
    objects = site.bucket.objects()
    assert [len(job.outputs) for job in jobs] == [1] * len(jobs)
    recorded = {job.outputs[0]: job for job in jobs}
    assert sorted(objects) == sorted(recorded), f"stray: {objects.keys() - recorded}, gone: {recorded - objects.keys()}"
    for name, job in recorded.items():
        with Image.open(io.BytesIO(objects[name])) as picture:
            red, green, blue = picture.convert("RGB").getpixel((0, 0))  # type: ignore[misc]
        assert (red << 16) | (green << 8) | blue == int(job.config_name[4:9]) + 1, name


def _check_runs(site: Site, jobs: list[Job], attempts: dict[str, list[Attempt]]) -> None:
    """No prompt was executed twice, and a job has a second one only where the server of the first was lost."""
    saved = Counter(
        path.name.partition("_")[0] for server in site.simulators for path in server.output_dir.rglob("*.png")
    )
    assert set(saved.values()) == {1}, "a prompt was executed twice"
    known = {attempt.prompt_id: attempt for runs in attempts.values() for attempt in runs}
    assert saved.keys() <= known.keys(), "rendered for nobody"
    for job in jobs:
        runs = attempts[job.config_name]
        assert [run.outcome for run in runs].count("done") == 1, runs
        assert {run.outcome for run in runs} <= {"done", *LOST}, runs
        assert runs[-1].prompt_id == job.prompt_id
        assert (job.run_count, job.retries_attempted) == (len(runs), 0), runs
