"""Row 6: the database is away for longer than a lease. The worker lets go in time; every job ends once afterwards."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from support.agents import (
    DATABASE_URL,
    AgentWorkspace,
    check_promises,
    is_stopped,
    leave,
    locked_database,
    renders,
    server_queue,
    submit_slow,
    wait_until,
)
from support.postgres import PostgresServer, execute
from support.sampling import some
from support.servers import ServerProcess
from support.stores import in_the_shell

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

DROPPED = "dropped, the database could not be asked in time"


def earliest_end_of_a_lease(database: Path) -> datetime:
    (row,) = in_the_shell(database, "SELECT min(lease_expires_at) AS at FROM jobs WHERE status = 'processing'")
    return datetime.strptime(row["at"], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=timezone.utc)


def files(workspace: AgentWorkspace) -> list[str]:
    return sorted(path.name for path in (workspace.root / "jobs").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("jobs", "lease"), [pytest.param(3, 3, id="short"), pytest.param(8, 10, id="long", marks=pytest.mark.slow)]
)
def test_a_worker_lets_go_before_its_leases_end_and_publishes_nothing_meanwhile(
    start_server: Start, make_workspace: Make, server_kind: str, jobs: int, lease: int
) -> None:
    server = start_server("--render-seconds", "1")
    workspace = make_workspace(server.url, E3_LEASE_SECONDS=str(lease))
    submit_slow(workspace, server_kind, jobs)
    agent = workspace.start()
    workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "two prompts at the server")
    with locked_database(workspace.database):
        at_server = len(server_queue(server.url).all)
        published = files(workspace)
        ends = earliest_end_of_a_lease(workspace.database)
        wait_until(lambda: workspace.log.read_text().count(DROPPED) >= at_server, "the jobs to be dropped", lease + 5)
        assert datetime.now(timezone.utc) < ends, "it let go when another could have had the job already"
        wait_until(lambda: datetime.now(timezone.utc) > ends, "the end of the leases", lease + 5)
        wait_until(lambda: not server_queue(server.url).all, "the server to be through", 60)
        assert [name for name in files(workspace) if not name.endswith(".e3part")] == published
    workspace.wait_done(jobs, timeout=60)
    leave(agent)
    assert agent.returncode == 143
    assert workspace.finish() == 0
    ended = check_promises(workspace, jobs)
    assert renders([server.output_dir]) == jobs
    assert [(job.run_count, job.retries_attempted, job.strikes) for job in ended] == [(1, 0, 0)] * jobs


@pytest.mark.parametrize(
    ("end", "restart"),
    some(
        [
            pytest.param(lambda it: it.signal(signal.SIGSTOP), lambda it: it.signal(signal.SIGCONT), id="stopped"),
            pytest.param(lambda it: it.stop(signal.SIGKILL), lambda it: it.start(), id="killed"),
        ],
        2,
    ),
)
def test_a_worker_lets_go_before_its_leases_end_when_postgresql_is_away(
    start_server: Start,
    make_workspace: Make,
    own_postgres: PostgresServer,
    server_kind: str,
    end: Callable[[PostgresServer], object],
    restart: Callable[[PostgresServer], object],
) -> None:
    """A second agent is there when the database is back."""
    jobs, lease = 4, 3
    server = start_server("--render-seconds", "1")
    database = {DATABASE_URL: own_postgres.url}
    workspace = make_workspace(server.url, E3_LEASE_SECONDS=str(lease), **database)
    submit_slow(workspace, server_kind, jobs)
    agents = [workspace.start()]
    workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "two prompts at the server")
    agents[0].send_signal(signal.SIGSTOP)  # no lease is renewed between the look and the end
    wait_until(lambda: is_stopped(agents[0]), "the stop")
    (row,) = execute(own_postgres.url, "SELECT min(lease_expires_at) AS ends FROM jobs WHERE status = 'processing'")
    end(own_postgres)
    agents[0].send_signal(signal.SIGCONT)
    at_server, published = len(server_queue(server.url).all), files(workspace)
    wait_until(lambda: workspace.log.read_text().count(DROPPED) >= at_server, "the jobs to be dropped", lease + 5)
    assert datetime.now(timezone.utc) < row["ends"], "it let go when another could have had the job already"
    agents.append(workspace.start())
    wait_until(lambda: datetime.now(timezone.utc) > row["ends"], "the end of the leases", lease + 5)
    wait_until(lambda: not server_queue(server.url).all, "the server to be through", 60)
    assert [name for name in files(workspace) if not name.endswith(".e3part")] == published
    restart(own_postgres)
    workspace.wait_done(jobs, timeout=60)
    for agent in agents:
        assert agent.poll() is None, workspace.tail()
        leave(agent)
    assert workspace.finish() == 0
    ended = check_promises(workspace, jobs)
    assert renders([server.output_dir]) == jobs
    assert [(job.run_count, job.retries_attempted, job.strikes) for job in ended] == [(1, 0, 0)] * jobs


@pytest.mark.slow
def test_several_agents_end_every_job_once_when_the_database_is_back(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "0.6")
    workspace = make_workspace(server.url, E3_LEASE_SECONDS="2")
    submit_slow(workspace, server_kind, 6)
    agents = [workspace.start() for _ in range(2)]
    workspace.wait_done(1)
    with locked_database(workspace.database):
        ends = earliest_end_of_a_lease(workspace.database)
        wait_until(lambda: datetime.now(timezone.utc) > ends, "the end of the leases")
        wait_until(lambda: DROPPED in workspace.log.read_text(), "the jobs to be dropped")
    workspace.wait_done(6, timeout=100)
    for agent in agents:
        leave(agent)
    assert workspace.finish() == 0
    ended = check_promises(workspace, 6)
    assert renders([server.output_dir]) == 6
    assert {job.retries_attempted for job in ended} == {0}


def test_an_agent_that_finds_the_database_locked_waits_for_it(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(2)
    with locked_database(workspace.database):
        agent = workspace.start("--until-idle")
        wait_until(lambda: Path(f"/proc/{agent.pid}/fd").exists() and opened(agent.pid, workspace.database), "opening")
        assert agent.poll() is None
    assert agent.wait(60) == 0, workspace.tail()
    check_promises(workspace, 2)


def opened(pid: int, path: Path) -> bool:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            found.append(link.readlink())
    return path in found
