"""People and processes beside running agents: cancelling, mending by hand, bumping, and never too many prompts."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable

import pytest

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from support.agents import (
    AgentWorkspace,
    Watcher,
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
from support.stores import Rows, in_the_shell

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

SLOW_MOST, QUICK_MOST = 2, 16
SOON = 2.5
"""Two seconds, and what a busy machine adds to them."""

by_hand = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell here")


def shell(workspace: AgentWorkspace, sql: str) -> Rows:
    return in_the_shell(workspace.database, sql)


def wait_at_server(workspace: AgentWorkspace, server: ServerProcess, count: int) -> tuple[str, ...]:
    workspace.wait_for(
        lambda: len(server_queue(server.url).all) == count and bool(server_queue(server.url).running),
        f"{count} prompts at the server",
    )
    return server_queue(server.url).all


def wait_gone(server: ServerProcess, prompt_id: str | None) -> None:
    assert wait_until(lambda: prompt_id not in server_queue(server.url).all, "the prompt to be taken back") < SOON


def result_files(workspace: AgentWorkspace) -> set[str]:
    return {path.name for path in (workspace.root / "jobs").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_cancelled_jobs_leave_the_server_and_others_are_untouched(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "5")
    workspace = make_workspace(server.url)
    running, queued, waiting, left = submit_slow(workspace, server_kind, 4)
    agent = workspace.start()
    wait_at_server(workspace, server, 2)
    jobs = {name: workspace.job(name) for name in (running, queued, waiting, left)}
    assert server_queue(server.url).all == (jobs[running].prompt_id, jobs[queued].prompt_id)

    cancelled = [jobs[waiting].id, jobs[queued].id]
    assert workspace.store(lambda store: store.run(ops.cancel_jobs, cancelled)) == cancelled
    wait_gone(server, jobs[queued].prompt_id)
    assert server_queue(server.url).running == (jobs[running].prompt_id,), "the wrong prompt was stopped"
    workspace.store(lambda store: store.run(ops.cancel_jobs, [jobs[running].id]))
    wait_gone(server, jobs[running].prompt_id)

    workspace.wait_done(1)
    leave(agent)
    assert workspace.finish() == 0
    ended = {job.config_name: job for job in check_promises(workspace, 4, done=1)}
    for name in (running, queued, waiting):
        assert (ended[name].status, ended[name].failure_class) == (JobStatus.FAILED, "cancelled")
    assert (ended[left].status, ended[left].run_count, ended[left].retries_attempted) == (JobStatus.DONE, 1, 0)
    assert result_files(workspace) == {"slow_03.png"}
    assert renders([server.output_dir]) == 1


@pytest.mark.parametrize("moment", some(["claimed", "named"], 2))
def test_a_job_that_is_cancelled_while_its_result_is_brought_home_leaves_no_file(
    start_server: Start, make_workspace: Make, moment: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    (name,) = workspace.submit(1)
    agent = start_changed(workspace, f"stop:{moment}")
    wait_until(lambda: is_stopped(agent), "the stop")
    job = workspace.job(name)
    assert job.status is JobStatus.PROCESSING
    workspace.store(lambda store: store.run(ops.cancel_jobs, [job.id]))
    agent.send_signal(signal.SIGCONT)
    wait_until(lambda: f"{name}: dropped" in workspace.log.read_text(), "the agent to drop the job")
    workspace.wait_for(lambda: not workspace.store(lambda store: store.run(ops.open_attempts)), "the run to be closed")
    workspace.wait_for(lambda: result_files(workspace) == set(), "no file of a cancelled job", timeout=4)
    leave(agent)
    assert workspace.job(name).failure_class == "cancelled"


@pytest.mark.slow
@by_hand
def test_jobs_put_back_by_hand_are_taken_over_again_and_not_rendered_again(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    """The documented orphan recovery, typed while the jobs are in good hands, and without its condition too."""
    server = start_server("--render-seconds", "3")
    workspace = make_workspace(server.url)
    submit_slow(workspace, server_kind, 2)
    agent = workspace.start()
    at_server = wait_at_server(workspace, server, 2)
    put_back = "UPDATE jobs SET status='pending', worker_id=NULL, lease_expires_at=NULL WHERE status='processing'"
    shell(workspace, f"{put_back} AND lease_expires_at < CURRENT_TIMESTAMP")
    assert {job.status for job in workspace.jobs()} == {JobStatus.PROCESSING}, "these leases have not run out"
    shell(workspace, put_back)
    workspace.wait_for(
        lambda: all(job.status is JobStatus.PROCESSING for job in workspace.jobs()), "being taken over", 5
    )
    assert server_queue(server.url).all == at_server
    workspace.wait_done(2)
    leave(agent)
    assert workspace.finish() == 0
    ended = check_promises(workspace, 2)
    assert [(job.run_count, job.retries_attempted) for job in ended] == [(1, 0), (1, 0)]
    assert {job.prompt_id for job in ended} == set(at_server)
    assert renders([server.output_dir]) == 2


@pytest.mark.slow
@by_hand
def test_a_job_deleted_by_hand_while_it_renders_is_taken_back(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "4")
    workspace = make_workspace(server.url)
    gone, left = submit_slow(workspace, server_kind, 2)
    agent = workspace.start()
    wait_at_server(workspace, server, 2)
    prompt_id = workspace.job(gone).prompt_id
    assert server_queue(server.url).running == (prompt_id,)
    shell(workspace, f"DELETE FROM jobs WHERE config_name = '{gone}'")
    wait_gone(server, prompt_id)
    workspace.wait_done(1)
    leave(agent)
    assert agent.returncode == 143
    assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.config_name, job.run_count) == (left, 1)
    assert renders([server.output_dir]) == 1


@pytest.mark.slow
@by_hand
def test_jobs_run_by_priority_and_a_bump_by_hand_is_honoured_by_the_next_dispatch(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "0.8")
    workspace = make_workspace(server.url)
    names = submit_slow(workspace, server_kind, 6)
    shell(workspace, f"UPDATE jobs SET priority=90 WHERE config_name='{names[0]}'")
    agent = workspace.start()
    wait_at_server(workspace, server, 2)
    shell(workspace, f"UPDATE jobs SET priority=1 WHERE config_name='{names[5]}'")
    rows = shell(workspace, "SELECT config_name FROM attempts JOIN jobs ON jobs.id = job_id ORDER BY attempts.id")
    ahead = [row["config_name"] for row in rows]
    assert ahead[:2] == [names[1], names[2]], "the order by priority, then by age"
    assert len(ahead) <= 3, "the bump came too late to mean anything"
    workspace.wait_done(6, timeout=100)
    leave(agent)
    rows = shell(workspace, "SELECT config_name FROM attempts JOIN jobs ON jobs.id = job_id ORDER BY attempts.id")
    order = [row["config_name"] for row in rows]
    assert order[: len(ahead)] == ahead
    rest = [name for name in (names[5], names[1], names[2], names[3], names[4], names[0]) if name not in ahead]
    assert order[len(ahead) :] == rest
    assert workspace.finish() == 0
    check_promises(workspace, 6)
    assert renders([server.output_dir]) == 6


@pytest.mark.slow
def test_three_agents_together_keep_no_more_than_two_slow_prompts_at_a_server(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "0.6")
    workspace = make_workspace(server.url)
    submit_slow(workspace, server_kind, 8)
    with Watcher(server.url) as watcher:
        agents = [workspace.start() for _ in range(3)]
        workspace.wait_done(8, timeout=100)
    for agent in agents:
        leave(agent)
    assert watcher.looks > 50
    assert watcher.most == SLOW_MOST
    assert workspace.finish() == 0
    check_promises(workspace, 8)
    assert renders([server.output_dir]) == 8


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_three_agents_together_keep_no_more_than_sixteen_quick_prompts_at_a_server(
    start_server: Start, make_workspace: Make, jobs: int
) -> None:
    server = start_server("--render-seconds", "0.02")
    workspace = make_workspace(server.url)
    workspace.submit(jobs)
    with Watcher(server.url) as watcher:
        agents = [workspace.start() for _ in range(3)]
        workspace.wait_done(jobs, timeout=100)
    for agent in agents:
        leave(agent)
    assert SLOW_MOST < watcher.most <= QUICK_MOST
    assert workspace.finish() == 0
    ended = check_promises(workspace, jobs)
    assert renders([server.output_dir]) == jobs
    assert {(job.run_count, job.retries_attempted) for job in ended} == {(1, 0)}
