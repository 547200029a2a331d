"""Row 23: the only server goes away for longer than it is waited for. Its jobs wait, uncharged, and say so."""

from __future__ import annotations

import pytest

from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, check_promises, renders, server_queue
from support.breakage import (
    Make,
    Start,
    Stranger,
    coloured,
    job,
    outcomes_of,
    proxied,
    running_at,
    submit,
    told,
    until,
    wait_for_end,
    wait_told,
    with_sleep_node,
)
from support.workspaces import call_e3


def wait_until_all_wait(workspace: AgentWorkspace, count: int) -> None:
    """Until nothing is said to be rendering, and so many jobs wait for their server."""
    workspace.wait_for(lambda: sum(each.waits_for_server for each in workspace.jobs()) == count, "jobs that wait again")
    assert workspace.counts().processing == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow, id="with-another-agent-then")])
def test_after_an_outage_what_the_server_has_rendered_meanwhile_is_brought_home_and_not_rendered_again(
    start_server: Start, make_workspace: Make, server_kind: str, killed: bool
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url, E3_COMFYUI__FAILOVER_SECONDS="0.5")
        submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=1.0)) for n in range(2)))
        agent = workspace.start("--until-idle")
        until(lambda: all(Stranger(server.url).queue()), "one that runs and one that waits")
        proxy.do(lambda it: it.go_down())
        wait_until_all_wait(workspace, 2)
        said = call_e3("queue", "ls", "-C", str(workspace.root)).stdout
        assert said.count("which has not answered since") == 2
        assert "2 pending, 2 wait for" in said
        until(lambda: len(told(workspace, "job.retry", failure_class="server_lost")) == 2, "an event for each")
        assert agent.poll() is None, "it waits for its server"
        if killed:
            workspace.kill(agent)
        workspace.wait_for(lambda: server_queue(server.url).all == (), "both to end there, unseen")
        proxy.do(lambda it: it.heal())
        agent = workspace.start("--until-idle") if killed else agent
        assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 2)
    assert [(each.run_count, each.retries_attempted, each.strikes) for each in jobs] == [(1, 0, 0)] * 2
    assert renders([server.output_dir]) == 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_of_two_deaths_within_a_minute_is_reported_and_costs_the_jobs_nothing(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url, E3_COMFYUI__FAILOVER_SECONDS="0.5")
    submit(workspace, job("job.yaml", coloured(1, seconds=1.5)))
    agent = workspace.start("--until-idle")
    for deaths in (1, 2):
        until(lambda: running_at(server), "the prompt to run")
        server.kill()
        wait_until_all_wait(workspace, 1)
        until(lambda deaths=deaths: len(told(workspace, "alert.server")) == deaths, "an alert for each death")
        server.start()
    assert wait_for_end(workspace, agent) == 0
    (found,) = check_promises(workspace, 1)
    assert (found.run_count, found.retries_attempted, found.strikes) == (3, 0, 0)
    assert outcomes_of(workspace, "job.yaml") == ["server_lost", "server_lost", "done"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_once_another_server_has_taken_the_job_the_copy_of_the_lost_one_is_deleted(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    lost, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    with proxied(lost) as proxy:
        workspace = make_workspace(proxy.it.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="0.5")
        workspace.store(lambda store: store.run(ops.pause_server, other.url))
        submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=20.0 * (1 - n) + 0.2)) for n in range(2)))
        agent = workspace.start("--until-idle")
        until(lambda: all(Stranger(lost.url).queue()), "one that runs and one that waits")
        proxy.do(lambda it: it.go_down())
        wait_until_all_wait(workspace, 2)
        by_colour = {each.config_name: each for each in workspace.jobs()}
        workspace.store(lambda store: store.run(ops.set_priority, by_colour["job_1.yaml"].id, 1))
        workspace.store(lambda store: store.run(ops.resume_server, other.url))
        wait_told(workspace, "job.done", job_id=by_colour["job_1.yaml"].id)
        proxy.do(lambda it: it.heal())
        workspace.wait_for(lambda: server_queue(lost.url).pending == (), "the copy to be deleted")
        assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 2)
    assert [each.retries_attempted for each in jobs] == [0, 0]
    assert renders([lost.output_dir, other.output_dir]) == 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_jobs_cancelled_while_they_wait_are_gone_and_deleted_when_the_server_is_back(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url, E3_COMFYUI__FAILOVER_SECONDS="0.5")
        submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=30.0)) for n in range(2)))
        agent = workspace.start()
        until(lambda: all(Stranger(server.url).queue()), "one that runs and one that waits")
        proxy.do(lambda it: it.go_down())
        wait_until_all_wait(workspace, 2)
        ids = [each.id for each in workspace.jobs()]
        workspace.store(lambda store: store.run(ops.cancel_jobs, ids))
        workspace.wait_for(
            lambda: not workspace.store(lambda store: store.run(ops.open_attempts)), "the runs to be closed"
        )
        proxy.do(lambda it: it.heal())
        workspace.wait_for(lambda: server_queue(server.url).all == (), "the prompts to be taken back")
        workspace.kill(agent)
    check_promises(workspace, 2, done=0)
