"""The killing ground: agents and servers die at random, and every job is rendered once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from support.agents import AgentWorkspace, check_promises, colour_of, renders
from support.sampling import some
from support.servers import ServerProcess

SHORT = pytest.param(30, 3, id="short")
LONG = pytest.param(1000, 50, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
SEED = 20261115

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("jobs", "kills"), [SHORT, LONG])
@pytest.mark.parametrize("agents", some([3, 1], 2))
def test_agents_killed_again_and_again_render_every_job_once(
    start_server: Start, make_workspace: Make, jobs: int, kills: int, agents: int
) -> None:
    chance = random.Random(f"{SEED} {agents}")
    server = start_server("--render-seconds", "0.03")
    workspace = make_workspace(server.url)
    workspace.submit(jobs)
    running = [workspace.start() for _ in range(agents)]
    for kill in range(kills):
        # Not all at the start and not all at the end: each kill waits for its share of the work.
        workspace.wait_done(jobs * kill // (kills + 1), timeout=120)
        time.sleep(chance.uniform(0, 0.25))
        victim = chance.randrange(agents)
        workspace.kill(running[victim])
        running[victim] = workspace.start()
    for process in running:
        workspace.kill(process)
    assert workspace.finish(timeout=600) == 0
    ended = check_promises(workspace, jobs)
    assert renders([server.output_dir]) == jobs
    assert [job.retries_attempted for job in ended] == [0] * jobs
    for job in ended:
        assert colour_of(workspace.root / job.outputs[0]) == int(job.config_name[4:9]) + 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(200, 5, id="short"),
        pytest.param(1000, 5, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
@pytest.mark.slow
def test_a_server_killed_again_and_again_costs_no_job_a_retry(
    start_server: Start, make_workspace: Make, jobs: int, kills: int
) -> None:
    chance = random.Random(SEED)
    server = start_server("--render-seconds", "0.03")
    workspace = make_workspace(server.url)
    workspace.submit(jobs)
    agent = workspace.start()
    for kill in range(kills):
        workspace.wait_done(jobs * kill // (kills + 1), timeout=120)
        time.sleep(chance.uniform(0, 0.3))
        server.kill()
        time.sleep(chance.uniform(0, 1.0))
        server.start()
    workspace.kill(agent)
    assert workspace.finish(timeout=600) == 0
    ended = check_promises(workspace, jobs)
    assert [job.retries_attempted for job in ended] == [0] * jobs
