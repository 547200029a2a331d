"""Row 1: kill -9 of an agent whose prompts are at a server. The next one takes them over; nothing renders again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, both_databases, check_promises, renders, server_queue, submit_slow
from support.sampling import some
from support.servers import ServerProcess

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

LEASE_SECONDS = 30
AT_ONCE = 5.0
"""An agent needs a second to start here; a lease would last six times as long."""


def wait_until_at_server(workspace: AgentWorkspace, server: ServerProcess, count: int) -> tuple[str, ...]:
    workspace.wait_for(
        lambda: len(server_queue(server.url).all) == count and len(server_queue(server.url).running) == 1,
        f"{count} prompts at the server",
    )
    return server_queue(server.url).all


def wait_until_taken(workspace: AgentWorkspace, names: list[str], before: set[str | None]) -> float:
    """Until each of these jobs has a worker that it had not before; the seconds that took."""
    began = time.monotonic()
    workspace.wait_for(
        lambda: all(workspace.job(name).worker_id not in before for name in names), "being taken over", AT_ONCE
    )
    return time.monotonic() - began


def kill_and_take_over(
    workspace: AgentWorkspace, agent: subprocess.Popen[bytes], names: list[str], *flags: str
) -> subprocess.Popen[bytes]:
    """Kill an agent; the next one, which has taken its jobs over at once."""
    before = {workspace.job(name).worker_id for name in names} | {None}
    workspace.kill(agent)
    successor = workspace.start(*flags)
    assert wait_until_taken(workspace, names, before) < AT_ONCE < LEASE_SECONDS
    return successor


@both_databases
@pytest.mark.timing
@pytest.mark.parametrize("prompts", some([1, 2], 2), ids=["running", "running and waiting"])
def test_the_next_agent_takes_over_at_once_what_is_at_the_server(
    start_server: Start, make_workspace: Make, server_kind: str, prompts: int
) -> None:
    server = start_server("--render-seconds", "3")
    workspace = make_workspace(server.url)
    names = submit_slow(workspace, server_kind, prompts)
    agent = workspace.start()
    at_server = wait_until_at_server(workspace, server, prompts)
    successor = kill_and_take_over(workspace, agent, names, "--until-idle")
    assert server_queue(server.url).all == at_server, "still the same prompts, in the same order"
    while server_queue(server.url).all:
        assert len(server_queue(server.url).all) <= prompts, "sent again under the same id"
    assert successor.wait(60) == 0, workspace.tail()
    ended = check_promises(workspace, prompts)
    assert renders([server.output_dir]) == prompts
    assert {job.prompt_id for job in ended} == set(at_server)
    assert [(job.run_count, job.retries_attempted, job.strikes) for job in ended] == [(1, 0, 0)] * prompts
    assert [len(workspace.attempts(name)) for name in names] == [1] * prompts


@pytest.mark.timing
@pytest.mark.slow
def test_agents_that_wait_beside_it_take_over_within_moments(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "5")
    workspace = make_workspace(server.url)
    (name,) = submit_slow(workspace, server_kind, 1)
    agent = workspace.start()
    wait_until_at_server(workspace, server, 1)
    beside = workspace.start("--until-idle")
    locks = workspace.root / "database" / "agents"
    workspace.wait_for(lambda: len(list(locks.glob("*.lock"))) == 2, "the second agent")
    before = {workspace.job(name).worker_id, None}
    workspace.kill(agent)
    assert wait_until_taken(workspace, [name], before) < AT_ONCE
    assert server_queue(server.url).running
    assert beside.wait(60) == 0, workspace.tail()
    (ended,) = check_promises(workspace, 1)
    assert (ended.run_count, renders([server.output_dir])) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "seconds"),
    [
        pytest.param(3, 7, id="3 times"),
        pytest.param(10, 25, id="10 times", marks=pytest.mark.slow),
    ],
)
def test_a_render_outlives_agents_that_die_again_and_again_and_is_not_poisoned_by_it(
    start_server: Start, make_workspace: Make, server_kind: str, kills: int, seconds: int
) -> None:
    if server_kind == "real":
        pytest.skip("a real server cannot be told how long to render")
    server = start_server("--render-seconds", str(seconds))
    workspace = make_workspace(server.url, E3_POISON_LIMIT="2")
    names = submit_slow(workspace, server_kind, 1)
    agent = workspace.start()
    (prompt_id,) = wait_until_at_server(workspace, server, 1)
    for _ in range(kills):
        agent = kill_and_take_over(workspace, agent, names)
        assert server_queue(server.url).running == (prompt_id,), "the render is over before all agents have died"
    workspace.wait_done(1)
    workspace.kill(agent)
    assert workspace.finish() == 0
    (ended,) = check_promises(workspace, 1)
    assert (ended.status, ended.prompt_id) == (JobStatus.DONE, prompt_id)
    assert (ended.run_count, ended.retries_attempted, ended.strikes) == (1, 0, 0)
    assert renders([server.output_dir]) == 1
