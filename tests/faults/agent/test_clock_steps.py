"""Row 7: the database's clock is an hour off for one of two agents, or steps. Jobs end once, and none waits an hour."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from support.agents import (
    AgentWorkspace,
    both_databases,
    check_promises,
    leave,
    renders,
    server_queue,
    start_changed,
    submit_slow,
)
from support.sampling import some
from support.servers import ServerProcess

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

HOUR = 3600
STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
ONE_STEP = pytest.mark.parametrize("step", some([HOUR, -HOUR], 2), ids=["forward", "back"])


def start_clocked(workspace: AgentWorkspace, name: str, *, by: int = 0) -> tuple[subprocess.Popen[bytes], Path]:
    """An agent, and the file that says by how much its clock is wrong."""
    workspace.root.mkdir(parents=True, exist_ok=True)
    offset = workspace.root / f"clock-{name}"
    set_clock(offset, by)
    return start_changed(workspace, f"clock:{offset}"), offset


def set_clock(offset: Path, seconds: int) -> None:
    fresh = offset.with_name(offset.name + ".new")
    fresh.write_text(str(seconds))
    fresh.replace(offset)


@both_databases
@ONE_STEP
def test_two_agents_whose_clocks_differ_by_an_hour_end_every_job_once(
    start_server: Start, make_workspace: Make, step: int
) -> None:
    jobs = 9
    server = start_server("--render-seconds", "0.1")
    workspace = make_workspace(server.url)
    workspace.submit(jobs)
    (wrong, clock), (right, _) = start_clocked(workspace, "wrong"), start_clocked(workspace, "right")
    workspace.wait_done(2)
    set_clock(clock, step)
    workspace.wait_done(5, timeout=20)
    set_clock(clock, 0)
    workspace.wait_done(jobs, timeout=20)
    for agent in (wrong, right):
        assert agent.poll() is None, workspace.tail()
        leave(agent)
    assert workspace.finish() == 0
    ended = check_promises(workspace, jobs)
    assert renders([server.output_dir]) == jobs
    assert [(job.run_count, job.retries_attempted) for job in ended] == [(1, 0)] * jobs


@pytest.mark.slow
@STEPS
def test_a_render_goes_on_when_the_clock_steps_and_its_agent_dies(
    start_server: Start, make_workspace: Make, server_kind: str, step: int
) -> None:
    server = start_server("--render-seconds", "4")
    workspace = make_workspace(server.url, E3_LEASE_SECONDS="2")
    (name,) = submit_slow(workspace, server_kind, 1)
    agent, clock = start_clocked(workspace, "wrong")
    workspace.wait_for(lambda: bool(server_queue(server.url).running), "the render")
    before = workspace.job(name)
    set_clock(clock, step)
    expiry = before.lease_expires_at or ""
    workspace.wait_for(lambda: (workspace.job(name).lease_expires_at or "")[:13] != expiry[:13], "a renewal", 5)
    workspace.kill(agent)
    assert workspace.finish(timeout=30) == 0
    (job,) = check_promises(workspace, 1)
    assert (job.prompt_id, job.run_count) == (before.prompt_id, 1)
    assert renders([server.output_dir]) == 1


@ONE_STEP
def test_a_job_in_backoff_does_not_wait_an_hour_when_the_clock_steps(
    start_server: Start, make_workspace: Make, step: int
) -> None:
    server = start_server()
    workspace = make_workspace(server.url, E3_RETRY_BACKOFF_SECONDS="1")
    graph = {"1": {"class_type": "NoSuchNode", "inputs": {}}}
    (name,) = workspace.submit(1, graph)
    agent, clock = start_clocked(workspace, "stepping")
    workspace.wait_for(lambda: workspace.job(name).next_attempt_at is not None, "the backoff")
    set_clock(clock, step)
    workspace.wait_for(lambda: workspace.job(name).status is JobStatus.FAILED, "the second try", 10)
    leave(agent)
    assert [attempt.outcome for attempt in workspace.attempts(name)] == ["missing", "missing"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("holder", "looker", "takings"),
    [
        pytest.param(0, HOUR, 1, id="the other is ahead"),
        pytest.param(-HOUR, 0, 1, id="its own is behind", marks=pytest.mark.slow),
        pytest.param(0, -HOUR, 0, id="the other is behind"),
        pytest.param(HOUR, 0, 0, id="its own is ahead", marks=pytest.mark.slow),
    ],
)
def test_a_lease_that_another_clock_calls_ended_is_taken_once_and_nothing_renders_again(
    start_server: Start, make_workspace: Make, server_kind: str, holder: int, looker: int, takings: int
) -> None:
    server = start_server("--render-seconds", "4")
    workspace = make_workspace(server.url)
    (name,) = submit_slow(workspace, server_kind, 1)
    first, _ = start_clocked(workspace, "first", by=holder)
    workspace.wait_for(lambda: bool(server_queue(server.url).running), "the render")
    before = workspace.job(name)
    second, _ = start_clocked(workspace, "second", by=looker)
    workspace.wait_done(1)
    for agent in (first, second):
        assert agent.poll() is None, workspace.tail()
        leave(agent)
    assert workspace.log.read_text().count(f"{name}: taken over from") == takings
    assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.prompt_id, job.run_count, job.retries_attempted) == (before.prompt_id, 1, 0)
    assert renders([server.output_dir]) == 1
