"""Row 10: a server dies in the middle of its work. Its jobs run there again or elsewhere, and are not charged."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.fault_proxy import Refuse
from support.agents import check_promises
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

JOBS = 8


@pytest.mark.timeout(180)
def test_jobs_that_ran_and_waited_at_a_server_that_died_run_again_uncharged(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=0.5)) for n in range(JOBS)))
    agent = workspace.start("--until-idle")
    until(lambda: all(Stranger(server.url).queue()), "one that runs and one that waits")
    server.kill()
    wait_told(workspace, "server.down", server=server.url)
    server.start()
    assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, JOBS)
    assert [each.retries_attempted for each in jobs] == [0] * JOBS
    assert sum(each.run_count for each in jobs) == JOBS + 2
    again = [each.config_name for each in jobs if each.run_count == 2]
    assert len(again) == 2
    assert {outcome for name in again for outcome in outcomes_of(workspace, name)} == {"server_lost", "done"}
    assert told(workspace, "server.up", server=server.url)


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_server_that_stays_dead_loses_its_jobs_to_another_and_gets_work_again_when_it_is_back(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    mortal, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(mortal.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="1")
    submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=0.4)) for n in range(JOBS)))
    agent = workspace.start()
    until(lambda: all(Stranger(mortal.url).queue()), "one that runs and one that waits")
    mortal.kill()
    wait_told(workspace, "job.done", JOBS)
    jobs = check_promises(workspace, JOBS)
    assert [each.retries_attempted for each in jobs] == [0] * JOBS
    moved = [each for each in jobs if each.run_count == 2]
    assert len(moved) == 2
    assert {each.server for each in moved} == {other.url}
    mortal.start()
    wait_told(workspace, "server.up", server=mortal.url)
    submit(workspace, *(job(f"later_{n}.yaml", coloured(100 + n, seconds=0.4)) for n in range(4)))
    wait_told(workspace, "job.done", JOBS + 4)
    workspace.kill(agent)
    later = check_promises(workspace, JOBS + 4)
    assert {each.server for each in later if each.config_name.startswith("later")} == {mortal.url, other.url}
    assert [each.retries_attempted for each in later] == [0] * (JOBS + 4)


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_result_that_cannot_be_fetched_because_its_server_stays_dead_is_rendered_elsewhere(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    mortal, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    with proxied(mortal) as proxy:
        proxy.do(lambda it: it.inject(Refuse(), on="/view", times=None))
        workspace = make_workspace(proxy.it.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="1")
        # More than one server holds ahead: whichever is seen first, both get some.
        submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=0.5)) for n in range(8)))
        agent = workspace.start("--until-idle")
        until(lambda: proxy.do(lambda it: any("/view" in request for request in it.requests)), "a download")
        mortal.kill()
        proxy.do(lambda it: it.go_down())
        assert wait_for_end(workspace, agent, 40) == 0
    jobs = check_promises(workspace, 8)
    assert [each.retries_attempted for each in jobs] == [0] * 8
    assert {each.server for each in jobs} == {other.url}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_dies_with_every_third_job_costs_no_job_a_retry(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    count = 30
    submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=0.2)) for n in range(count)))
    agent = workspace.start("--until-idle")
    for share in range(0, count, 3):
        workspace.wait_done(share, timeout=60)
        until(lambda: running_at(server) or agent.poll() is not None, "a prompt that runs")
        server.kill()
        server.start()
    assert wait_for_end(workspace, agent, 120) == 0
    jobs = check_promises(workspace, count)
    assert [each.retries_attempted for each in jobs] == [0] * count
