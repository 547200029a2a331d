"""Servers are paused, drained and resumed beside running agents: nothing is lost, charged, or rendered twice."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.lab.fault_proxy import Silence
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, check_promises, is_stopped, leave, renders, server_queue, wait_until
from support.breakage import (
    Make,
    Start,
    coloured,
    errors_of,
    job,
    outcomes_of,
    proxied,
    submit,
    told,
    wait_for_end,
    wait_told,
    with_sleep_node,
)
from support.servers import ServerProcess
from support.workspaces import call_e3 as e3


def submit_sleepers(workspace: AgentWorkspace, count: int, seconds: float, name: str = "job") -> list[str]:
    """So many jobs that take so many seconds each; their names."""
    jobs = [job(f"{name}_{n}.yaml", coloured(len(name) * 100 + n, seconds=seconds)) for n in range(count)]
    submit(workspace, *jobs)
    return [each.config_name for each in jobs]


def wait_for_two(workspace: AgentWorkspace, server: ServerProcess) -> tuple[str, str]:
    """Until one prompt runs at a server and one waits there; their ids."""
    seen: list[tuple[str, str]] = []

    def look() -> bool:
        queue = server_queue(server.url)
        seen.extend(zip(queue.running, queue.pending, strict=False))
        return bool(seen)

    workspace.wait_for(look, "two prompts at the server")
    return seen[0]


def wait_taken_back(workspace: AgentWorkspace, server: ServerProcess) -> None:
    workspace.wait_for(lambda: not server_queue(server.url).pending, "what waited to be taken back")


def drain(workspace: AgentWorkspace, server: ServerProcess) -> ServerState:
    return workspace.store(lambda store: store.run(ops.drain_server, server.url))


def resume(workspace: AgentWorkspace, server: ServerProcess) -> None:
    assert workspace.store(lambda store: store.run(ops.resume_server, server.url))


def state_of(workspace: AgentWorkspace, server: ServerProcess) -> ServerState | None:
    found = workspace.store(lambda store: store.run(ops.servers_out_of_work))
    return next((each.state for each in found if each.server == server.url), None)


def job_with(workspace: AgentWorkspace, prompt_id: str) -> Job:
    """The job whose latest prompt this is."""
    return next(each for each in workspace.jobs() if each.prompt_id == prompt_id)


def has_no_runs(workspace: AgentWorkspace) -> bool:
    return not workspace.store(lambda store: store.run(ops.open_attempts))


def check_uncharged(jobs: list[Job]) -> None:
    assert {each.retries_attempted for each in jobs} == {0}


def check_moved(workspace: AgentWorkspace, name: str) -> None:
    """It was taken back from a server that was being drained, and ran somewhere later; that cost it nothing."""
    assert outcomes_of(workspace, name) == ["interrupted", "done"]
    (error,) = errors_of(workspace, name)
    assert "being drained" in error["message"]
    moved = workspace.job(name)
    assert (moved.run_count, moved.retries_attempted, moved.strikes) == (2, 0, 0)


def start_and_wait_for_two(workspace: AgentWorkspace, server: ServerProcess) -> subprocess.Popen[bytes]:
    agent = workspace.start()
    wait_for_two(workspace, server)
    return agent


@pytest.mark.slow
def test_a_paused_server_brings_home_what_it_has_and_works_on_when_it_is_resumed(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit_sleepers(workspace, 12, 0.5)
    agent = start_and_wait_for_two(workspace, server)
    paused = e3("servers", "pause", server.url, "-C", str(workspace.root), "--json")
    assert (paused.returncode, json.loads(paused.stdout)["state"]) == (0, "paused")

    workspace.wait_for(lambda: has_no_runs(workspace), "what it had to be brought home")
    counts = workspace.counts()
    assert counts.done >= 2
    assert counts.pending == 12 - counts.done > 0, "it got something new"
    assert server_queue(server.url).all == ()
    assert agent.poll() is None

    resumed = e3("servers", "resume", server.url, "-C", str(workspace.root))
    assert (resumed.returncode, resumed.stderr) == (0, "")
    workspace.wait_done(12)
    leave(agent)
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 12)
    check_uncharged(jobs)
    assert [each.run_count for each in jobs] == [1] * 12
    assert renders([server.output_dir]) == 12
    assert told(workspace, "server.drained") == []


@pytest.mark.slow
def test_prompts_at_a_paused_server_stay_there_while_another_does_the_rest(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    paused, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(paused.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="0.3")
    submit_sleepers(workspace, 7, 1.5)
    agent = workspace.start("--until-idle")
    has = set(wait_for_two(workspace, paused))
    workspace.store(lambda store: store.run(ops.pause_server, paused.url))
    assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 7)
    check_uncharged(jobs)
    assert [each.run_count for each in jobs] == [1] * 7
    assert {each.prompt_id for each in jobs if each.server == paused.url} == has
    assert [renders([server.output_dir]) for server in (paused, other)] == [2, 5]


@pytest.mark.slow
def test_a_paused_server_is_no_reason_to_give_up_on_one_that_is_away(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    paused, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    with proxied(other) as proxy:
        workspace = make_workspace(paused.url, proxy.it.url, E3_COMFYUI__FAILOVER_SECONDS="3")
        submit_sleepers(workspace, 2, 4.0)
        workspace.store(lambda store: store.run(ops.pause_server, paused.url))
        agent = workspace.start("--until-idle")
        has = set(wait_for_two(workspace, other))
        proxy.do(lambda it: it.go_down())
        wait_told(workspace, "server.down", server=proxy.it.url)
        workspace.wait_for(lambda: server_queue(other.url).all == (), "both to end there, unseen")
        proxy.do(lambda it: it.heal())
        assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 2)
    check_uncharged(jobs)
    assert [each.run_count for each in jobs] == [1, 1]
    assert {each.prompt_id for each in jobs} == has
    assert renders([other.output_dir]) == 2


@pytest.mark.slow
def test_what_waits_at_a_drained_server_moves_and_what_runs_there_finishes_with_two_agents(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    drained, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(drained.url, other.url)
    submit_sleepers(workspace, 4, 4.0)
    agents = [workspace.start() for _ in range(2)]
    running, waiting = wait_for_two(workspace, drained)
    stays, moves = (job_with(workspace, prompt_id).config_name for prompt_id in (running, waiting))

    assert drain(workspace, drained) is ServerState.DRAINING
    wait_taken_back(workspace, drained)
    assert server_queue(drained.url).running == (running,), "what ran was stopped"
    wait_told(workspace, "server.drained", server=drained.url)
    assert state_of(workspace, drained) is ServerState.DRAINED
    assert outcomes_of(workspace, stays) == ["done"]
    assert server_queue(drained.url).all == ()

    workspace.wait_done(4, timeout=60)
    for agent in agents:
        leave(agent)
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 4)
    check_uncharged(jobs)
    check_moved(workspace, moves)
    assert sum(each.run_count for each in jobs) == 5, "only what waited there ran anew"
    assert [each.config_name for each in jobs if each.server == drained.url] == [stays]
    assert [renders([server.output_dir]) for server in (drained, other)] == [1, 3]
    assert len(told(workspace, "server.drained")) == 1
    assert state_of(workspace, drained) is ServerState.DRAINED


@pytest.mark.slow
def test_the_only_server_is_drained_and_resumed_and_the_agent_waits_meanwhile(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    first, second, third = submit_sleepers(workspace, 3, 3.0)
    agent = workspace.start("--until-idle")
    running, waiting = wait_for_two(workspace, server)
    assert [job_with(workspace, each).config_name for each in (running, waiting)] == [first, second]

    drain(workspace, server)
    wait_told(workspace, "server.drained", server=server.url)
    counts = workspace.counts()
    assert (counts.done, counts.pending, counts.processing) == (1, 2, 0)
    assert server_queue(server.url).all == ()
    assert agent.poll() is None, "it did not wait for what is pending"
    assert workspace.log.read_text().count("every server is out of work") == 1

    resume(workspace, server)
    assert wait_for_end(workspace, agent) == 0
    check_uncharged(check_promises(workspace, 3))
    check_moved(workspace, second)
    assert [workspace.job(name).run_count for name in (first, third)] == [1, 1]
    assert renders([server.output_dir]) == 3
    assert len(told(workspace, "server.drained")) == 1


@pytest.mark.slow
def test_a_prompt_that_began_unnoticed_is_left_to_run(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    """The websocket is silent, and the last look at the queue, after five seconds, saw it waiting."""
    server = with_sleep_node(start_server(), server_kind)
    with proxied(server) as proxy:
        proxy.do(lambda it: it.inject(Silence(), on="/ws", times=None))
        workspace = make_workspace(proxy.it.url)
        submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=6.5 - n)) for n in range(2)))
        agent = workspace.start("--until-idle", E3_POLL_INTERVAL_MS="5000")
        _, second = wait_for_two(workspace, server)
        workspace.wait_for(lambda: server_queue(server.url).running == (second,), "the second to begin")
        assert workspace.store(lambda store: store.run(ops.drain_server, proxy.it.url)) is ServerState.DRAINING
        assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 2)
    check_uncharged(jobs)
    assert [each.run_count for each in jobs] == [1, 1]
    assert renders([server.output_dir]) == 2
    assert len(told(workspace, "server.drained")) == 1


@pytest.mark.parametrize("moment", ["before_it_notices", "after_it_took_back_what_waited"])
@pytest.mark.slow
def test_a_drain_survives_the_death_of_the_agent(
    start_server: Start, make_workspace: Make, server_kind: str, moment: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    stays, moves, never_sent = submit_sleepers(workspace, 3, 4.0)
    agent = start_and_wait_for_two(workspace, server)
    if moment == "before_it_notices":
        agent.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(agent), "the stop")
        drain(workspace, server)
    else:
        drain(workspace, server)
        workspace.wait_for(lambda: outcomes_of(workspace, moves) == ["interrupted"], "what waited to be taken back")
    workspace.kill(agent)
    assert state_of(workspace, server) is ServerState.DRAINING
    assert len(server_queue(server.url).running) == 1

    following = workspace.start("--until-idle")
    wait_told(workspace, "server.drained", server=server.url)
    assert outcomes_of(workspace, stays) == ["done"]
    assert outcomes_of(workspace, moves) == ["interrupted"]
    assert outcomes_of(workspace, never_sent) == []
    resume(workspace, server)
    assert wait_for_end(workspace, following) == 0
    check_uncharged(check_promises(workspace, 3))
    check_moved(workspace, moves)
    assert [workspace.job(name).run_count for name in (stays, never_sent)] == [1, 1]
    assert renders([server.output_dir]) == 3
    assert len(told(workspace, "server.drained")) == 1


@pytest.mark.slow
def test_a_server_that_dies_while_it_is_drained_is_drained_all_the_same(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    mortal, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(mortal.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="1")
    submit_sleepers(workspace, 4, 4.0)
    agent = start_and_wait_for_two(workspace, mortal)
    ran, waited = (job_with(workspace, each).config_name for each in wait_for_two(workspace, mortal))
    drain(workspace, mortal)
    wait_taken_back(workspace, mortal)
    mortal.kill()
    wait_told(workspace, "server.drained", server=mortal.url)
    assert outcomes_of(workspace, ran)[0] == "server_lost"

    mortal.start()
    wait_told(workspace, "server.up", server=mortal.url)
    submit_sleepers(workspace, 2, 0.1, "later")
    workspace.wait_done(6, timeout=60)
    leave(agent)
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 6)
    check_uncharged(jobs)
    check_moved(workspace, waited)
    assert {each.server for each in jobs} == {other.url}
    assert len(told(workspace, "server.drained")) == 1
    assert state_of(workspace, mortal) is ServerState.DRAINED


@pytest.mark.slow
def test_a_server_that_is_restarted_while_it_is_drained_gets_nothing_of_what_it_forgot(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    mortal, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(mortal.url, other.url)
    submit_sleepers(workspace, 4, 3.0)
    agent = start_and_wait_for_two(workspace, mortal)
    drain(workspace, mortal)
    mortal.kill()
    mortal.start()
    wait_told(workspace, "server.drained", server=mortal.url)
    workspace.wait_done(4, timeout=60)
    leave(agent)
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 4)
    check_uncharged(jobs)
    assert {each.server for each in jobs} == {other.url}
    assert [renders([server.output_dir]) for server in (mortal, other)] == [0, 4]
    assert len(told(workspace, "server.drained")) == 1
