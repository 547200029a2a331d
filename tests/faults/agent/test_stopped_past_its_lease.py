"""Row 5: an agent that is stopped past its lease and then goes on: the job is another's, and it changes nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from support.agents import (
    AgentWorkspace,
    both_databases,
    check_promises,
    is_stopped,
    leave,
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

LEASE = 2.0


def wait_until_taken(workspace: AgentWorkspace, name: str, before: Job) -> None:
    """A stopped agent is not a dead one: its lease has to run out first."""
    workspace.wait_for(lambda: workspace.job(name).worker_id not in (None, before.worker_id), "being taken over", 15)


@pytest.mark.slow
def test_the_one_that_took_over_finishes_and_the_one_that_wakes_up_drops_the_job(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "5")
    workspace = make_workspace(server.url, E3_LEASE_SECONDS=str(LEASE))
    (name,) = submit_slow(workspace, server_kind, 1)
    first = workspace.start()
    workspace.wait_for(lambda: bool(server_queue(server.url).running), "the render")
    before = workspace.job(name)
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(first), "the stop")
    second = workspace.start()
    wait_until_taken(workspace, name, before)
    taken = workspace.job(name)
    assert server_queue(server.url).running == (before.prompt_id,)
    first.send_signal(signal.SIGCONT)
    wait_until(lambda: f"{name}: dropped" in workspace.log.read_text(), "the first agent to drop the job")
    assert workspace.job(name).worker_id == taken.worker_id, "the one that woke up has taken it back"
    workspace.wait_done(1)
    leave(second)
    workspace.submit(1)
    workspace.wait_done(2)
    assert leave(first) < 5
    assert first.returncode == 143, "it works on all the while"
    assert workspace.finish() == 0
    check_promises(workspace, 2)
    assert renders([server.output_dir]) == 2
    assert (workspace.job(name).run_count, len(workspace.attempts(name))) == (1, 1)


@both_databases
@pytest.mark.parametrize("moment", some(["one_named", "downloaded", "claimed", "named"], 4))
def test_an_agent_that_is_stopped_while_it_brings_a_result_home_changes_nothing_afterwards(
    start_server: Start, make_workspace: Make, moment: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url, E3_LEASE_SECONDS=str(LEASE))
    (name,) = workspace.submit(1)
    first = start_changed(workspace, f"stop:{moment}")
    wait_until(lambda: is_stopped(first), "the stop")
    began = time.monotonic()
    before = workspace.job(name)
    assert before.status is JobStatus.PROCESSING
    assert workspace.finish() == 0
    assert time.monotonic() - began > LEASE / 2, "it did not wait for the lease to end"
    done = workspace.job(name)
    file = workspace.root / done.outputs[0]
    written = (file.stat().st_ino, file.stat().st_mtime_ns)
    first.send_signal(signal.SIGCONT)
    wait_until(lambda: f"{name}: dropped" in workspace.log.read_text(), "the first agent to drop the job")
    leave(first)
    assert (workspace.job(name), done.status) == (done, JobStatus.DONE), "it changed the job"
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == written, "it wrote over the file"
    check_promises(workspace, 1)
    assert (done.run_count, done.prompt_id) == (1, before.prompt_id)
    assert renders([server.output_dir]) == 1
    assert not os.listdir(workspace.root / "database" / "agents")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["claimed", "named"])
def test_an_agent_that_wakes_up_cannot_end_what_another_is_about_to_end(
    start_server: Start, make_workspace: Make, moment: str
) -> None:
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url, E3_LEASE_SECONDS=str(LEASE))
        (name,) = workspace.submit(1)
        first = start_changed(workspace, f"stop:{moment}")
        wait_until(lambda: is_stopped(first), "the stop")
        before = workspace.job(name)
        held = proxy.hold("GET /view")
        second = workspace.start("--until-idle")
        wait_until(lambda: held.waiting, "the second agent to fetch the result")
        first.send_signal(signal.SIGCONT)
        wait_until(lambda: f"{name}: dropped" in workspace.log.read_text(), "the first agent to drop the job")
        leave(first)
        job = workspace.job(name)
        assert (job.status, job.prompt_id) == (JobStatus.PROCESSING, before.prompt_id), "it ended the other's job"
        assert job.worker_id not in (None, before.worker_id)
        proxy.release(held)
        assert second.wait(60) == 0, workspace.tail()
    (ended,) = check_promises(workspace, 1)
    assert (ended.run_count, ended.retries_attempted, renders([server.output_dir])) == (1, 0, 1)
