"""Row 8: SIGTERM and Ctrl-C end an agent within two seconds, whatever it does; the next one takes its prompts over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.fault_proxy import Silence
from support.agents import (
    AgentWorkspace,
    both_databases,
    check_promises,
    leave,
    leftovers,
    locked_database,
    renders,
    server_queue,
    start_changed,
    submit_slow,
    wait_until,
)
from support.sampling import some
from support.servers import ServerProcess
from support.threaded_proxy import threaded_proxy

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

SECONDS = 2.0
TERM = pytest.param(signal.SIGTERM, 143, id="SIGTERM")
SIGNALS = pytest.mark.parametrize(("number", "code"), [TERM, pytest.param(signal.SIGINT, 130, id="Ctrl-C")])
MOSTLY_TERM = pytest.mark.parametrize(
    ("number", "code"), [TERM, pytest.param(signal.SIGINT, 130, id="Ctrl-C", marks=pytest.mark.slow)]
)
"""Both end in the same way; one of them is enough for each change."""


def assert_leaves_in_time(process: subprocess.Popen[bytes], number: int, code: int) -> None:
    seconds = leave(process, number)
    assert process.returncode == code
    assert seconds < SECONDS, f"it took {seconds:.2f} s"


def lock_files(workspace: AgentWorkspace) -> list[str]:
    return os.listdir(workspace.root / "database" / "agents")


def has_begun(workspace: AgentWorkspace) -> bool:
    """It has said so; not everything is up yet."""
    return workspace.log.exists() and "Working off" in workspace.log.read_text()


def is_running(workspace: AgentWorkspace) -> bool:
    """It writes the metrics log, which is among the last things to begin."""
    return (workspace.root / "infra" / "observability" / "comfyui_metrics.ndjson.lock").exists()


@contextlib.contextmanager
def hanging(server: ServerProcess) -> Iterator[None]:
    """A server that accepts connections and does not answer."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.mark.timing
@MOSTLY_TERM
@pytest.mark.parametrize("since", some([has_begun, is_running], 2))
def test_an_idle_agent_leaves_at_once(
    start_server: Start,
    make_workspace: Make,
    number: int,
    code: int,
    since: Callable[[AgentWorkspace], bool],
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    agent = workspace.start()
    wait_until(lambda: since(workspace), "the agent")
    assert_leaves_in_time(agent, number, code)
    assert lock_files(workspace) == []
    assert "Traceback" not in workspace.log.read_text()


@pytest.mark.timing
@pytest.mark.parametrize("turns", some(range(6), 6))
def test_an_agent_that_is_told_to_leave_as_a_job_ends_leaves(
    start_server: Start, make_workspace: Make, turns: int
) -> None:
    """The end of a job wakes up what is being ended at that moment; no order of the two may keep the agent alive."""
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(1)
    agent = start_changed(workspace, f"term:{turns}")
    workspace.wait_done(1)
    wait_until(lambda: agent.poll() is not None, "the end of the agent", SECONDS)
    assert agent.returncode == 143
    assert lock_files(workspace) == []


@pytest.mark.timing
@pytest.mark.parametrize("stops", [4, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(400)])])
@pytest.mark.slow
def test_a_busy_agent_leaves_in_time_again_and_again(start_server: Start, make_workspace: Make, stops: int) -> None:
    server = start_server("--render-seconds", "0.003")
    workspace = make_workspace(server.url)
    workspace.submit(10_000 if stops > 10 else 1_500)
    for _ in range(stops):
        done = workspace.counts().done
        agent = workspace.start()
        workspace.wait_done(done + 20)
        assert_leaves_in_time(agent, signal.SIGTERM, 143)
    assert {job.retries_attempted for job in workspace.jobs()} == {0}


@both_databases
@pytest.mark.timing
@MOSTLY_TERM
def test_prompts_stay_at_the_server_and_the_next_agent_takes_them_over(
    start_server: Start, make_workspace: Make, server_kind: str, number: int, code: int
) -> None:
    server = start_server("--render-seconds", "2")
    workspace = make_workspace(server.url)
    names = submit_slow(workspace, server_kind, 2)
    agent = workspace.start()
    workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "two prompts at the server")
    at_server = server_queue(server.url).all
    assert_leaves_in_time(agent, number, code)
    assert server_queue(server.url).all == at_server
    assert lock_files(workspace) == []
    assert {workspace.job(name).status for name in names} == {JobStatus.PENDING}
    assert workspace.finish() == 0
    ended = check_promises(workspace, 2)
    assert renders([server.output_dir]) == 2
    assert [(job.run_count, job.retries_attempted) for job in ended] == [(1, 0), (1, 0)]
    assert {job.prompt_id for job in ended} == set(at_server)
    assert "Traceback" not in workspace.log.read_text()


@pytest.mark.timing
@pytest.mark.slow
@SIGNALS
def test_a_slow_download_is_left_to_the_next_agent(
    start_server: Start, make_workspace: Make, number: int, code: int
) -> None:
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        workspace.submit(1)
        proxy.inject(Silence(after=220), "GET /view", times=None)
        agent = workspace.start()
        wait_until(lambda: proxy.times("GET /view"), "the download")
        assert_leaves_in_time(agent, number, code)
        assert (lock_files(workspace), leftovers(workspace)) == ([], [])
        proxy.heal()
        assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.run_count, job.retries_attempted, renders([server.output_dir])) == (1, 0, 1)
    assert "Traceback" not in workspace.log.read_text()


@pytest.mark.timing
@pytest.mark.slow
@MOSTLY_TERM
def test_a_locked_database_does_not_hold_it_up(
    start_server: Start, make_workspace: Make, server_kind: str, number: int, code: int
) -> None:
    server = start_server("--render-seconds", "3")
    workspace = make_workspace(server.url)
    submit_slow(workspace, server_kind, 2)
    agent = workspace.start()
    workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "two prompts at the server")
    at_server = server_queue(server.url).all
    with locked_database(workspace.database):
        assert_leaves_in_time(agent, number, code)
        assert lock_files(workspace) == []
        assert server_queue(server.url).all == at_server
    assert workspace.finish() == 0
    ended = check_promises(workspace, 2)
    assert renders([server.output_dir]) == 2
    assert [(job.run_count, job.retries_attempted) for job in ended] == [(1, 0), (1, 0)]


@pytest.mark.timing
@pytest.mark.slow
@MOSTLY_TERM
def test_a_result_that_cannot_be_recorded_does_not_hold_it_up(
    start_server: Start, make_workspace: Make, number: int, code: int
) -> None:
    """It is being brought home when the database is locked: the moment that has most to wait for."""
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        workspace.submit(1)
        held = proxy.hold("GET /view")
        agent = workspace.start()
        wait_until(lambda: held.waiting, "the download")
        with locked_database(workspace.database):
            proxy.release(held)
            wait_until(lambda: leftovers(workspace), "the end of the download")
            assert_leaves_in_time(agent, number, code)
            assert (lock_files(workspace), leftovers(workspace)) == ([], [])
        assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.run_count, job.retries_attempted, renders([server.output_dir])) == (1, 0, 1)


@pytest.mark.timing
@pytest.mark.slow
@SIGNALS
def test_a_database_that_is_locked_from_the_start_does_not_hold_it_up(
    start_server: Start, make_workspace: Make, number: int, code: int
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(1)
    with locked_database(workspace.database):
        agent = workspace.start()
        wait_until(lambda: catches(agent.pid, number) and opened(agent.pid, workspace), "the agent")
        assert_leaves_in_time(agent, number, code)
    assert workspace.finish() == 0
    check_promises(workspace, 1)


@pytest.mark.timing
@pytest.mark.slow
@MOSTLY_TERM
def test_a_server_that_hangs_does_not_hold_it_up(
    start_server: Start, make_workspace: Make, server_kind: str, number: int, code: int
) -> None:
    server = start_server("--render-seconds", "3")
    workspace = make_workspace(server.url)
    submit_slow(workspace, server_kind, 2)
    agent = workspace.start()
    workspace.wait_for(lambda: len(server_queue(server.url).all) == 2, "two prompts at the server")
    with hanging(server):
        assert_leaves_in_time(agent, number, code)
        assert lock_files(workspace) == []
    assert workspace.finish() == 0
    ended = check_promises(workspace, 2)
    assert renders([server.output_dir]) == 2
    assert [(job.run_count, job.retries_attempted) for job in ended] == [(1, 0), (1, 0)]


@pytest.mark.timing
@pytest.mark.slow
@SIGNALS
def test_a_server_that_hangs_from_the_start_does_not_hold_it_up(
    start_server: Start, make_workspace: Make, number: int, code: int
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(2)
    with hanging(server):
        agent = workspace.start()
        wait_until(lambda: is_running(workspace), "the agent")
        assert_leaves_in_time(agent, number, code)
    assert workspace.finish() == 0
    check_promises(workspace, 2)
    assert renders([server.output_dir]) == 2


@pytest.mark.timing
@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    server = start_server("--render-seconds", "3")
    workspace = make_workspace(server.url)
    (name,) = submit_slow(workspace, server_kind, 1)
    agent = workspace.start()
    workspace.wait_for(lambda: bool(server_queue(server.url).running), "the render")
    prompt_id = workspace.job(name).prompt_id
    with locked_database(workspace.database):
        agent.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            agent.wait(0.1)
        began = time.monotonic()
        agent.send_signal(signal.SIGINT)
        assert agent.wait(60) == 130
        assert time.monotonic() - began < 0.5
    assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.prompt_id, job.run_count, renders([server.output_dir])) == (prompt_id, 1, 1)


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


def opened(pid: int, workspace: AgentWorkspace) -> bool:
    return any(
        os.path.realpath(f"/proc/{pid}/fd/{handle}") == str(workspace.database)
        for handle in os.listdir(f"/proc/{pid}/fd")
    )
