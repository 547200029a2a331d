"""Row 2: kill -9 while a prompt is being sent. Its id was stored first: it is looked for, also when it comes late."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from comfyui_agent.domain.jobs import Job
from comfyui_agent.lab.fault_proxy import Silence
from support.agents import (
    AgentWorkspace,
    both_databases,
    check_promises,
    renders,
    server_queue,
    submit_slow,
    wait_until,
)
from support.sampling import some
from support.servers import ServerProcess
from support.threaded_proxy import Hold, ThreadedProxy, threaded_proxy

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

POST = "POST /prompt"
BETWEEN_LOOKS = 2.0


def kill_while_sending(workspace: AgentWorkspace, proxy: ThreadedProxy) -> tuple[Hold, Job]:
    """The post has left the agent and not reached the server; the agent is dead."""
    held = proxy.hold(POST)
    agent = workspace.start()
    wait_until(lambda: held.waiting, "the post")
    (job,) = workspace.jobs()
    assert job.prompt_id, "the id is stored before it is sent"
    workspace.kill(agent)
    return held, job


def next_agent(workspace: AgentWorkspace, proxy: ThreadedProxy, job: Job, *flags: str) -> subprocess.Popen[bytes]:
    """Another agent, which has looked for the prompt once and not found it."""
    agent = workspace.start(*flags)
    workspace.wait_for(lambda: bool(proxy.times(f"GET /history/{job.prompt_id}")), "a look into the history")
    return agent


def assert_run_anew(workspace: AgentWorkspace, name: str, lost: Job) -> None:
    """A new run under a new id, and nobody is charged."""
    job = workspace.job(name)
    first, second = workspace.attempts(name)
    assert (first.prompt_id, second.prompt_id) == (lost.prompt_id, job.prompt_id)
    assert first.prompt_id != second.prompt_id
    assert (first.outcome, second.outcome) == ("server_lost", "done")
    assert (job.run_count, job.retries_attempted, job.strikes) == (2, 0, 0)


@both_databases
def test_a_prompt_that_was_never_sent_is_sent_under_a_new_id_after_two_looks(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        (name,) = workspace.submit(1)
        held, lost = kill_while_sending(workspace, proxy)
        proxy.drop(held)
        assert workspace.finish() == 0
        looks = proxy.times(f"GET /history/{lost.prompt_id}")
        sent_at = proxy.times(POST)[1]
        assert len(looks) >= 2
        assert BETWEEN_LOOKS <= looks[-1] - looks[0] < 10
        assert sent_at > looks[-1]
        assert len(proxy.times(POST)) == 2
    check_promises(workspace, 1)
    assert_run_anew(workspace, name, lost)
    assert renders([server.output_dir]) == 1


@pytest.mark.slow
def test_a_post_that_arrives_between_the_two_looks_is_found(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        (name,) = workspace.submit(1)
        held, late = kill_while_sending(workspace, proxy)
        agent = next_agent(workspace, proxy, late, "--until-idle")
        proxy.deliver(held, POST)
        assert agent.wait(60) == 0, workspace.tail()
        assert len(proxy.times(POST)) == 1
    (job,) = check_promises(workspace, 1)
    assert (job.prompt_id, job.run_count, job.retries_attempted) == (late.prompt_id, 1, 0)
    assert len(workspace.attempts(name)) == 1
    assert renders([server.output_dir]) == 1


@pytest.mark.parametrize("when", ["while the new run renders", "when the job is done"])
@pytest.mark.slow
def test_a_post_that_arrives_after_both_looks_is_deleted_on_sight(
    start_server: Start, make_workspace: Make, server_kind: str, when: str
) -> None:
    if server_kind == "real" and when == "when the job is done":
        pytest.skip("a real server has the picture in its cache by then, and is through before anyone can look")
    server = start_server("--render-seconds", "3")
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        (name,) = submit_slow(workspace, server_kind, 1)
        held, late = kill_while_sending(workspace, proxy)
        agent = workspace.start()
        workspace.wait_for(lambda: len(workspace.attempts(name)) == 2, "a new run")
        workspace.wait_for(lambda: bool(server_queue(server.url).running), "the new run at the server")
        if when == "when the job is done":
            workspace.wait_done(1)
        proxy.deliver(held, POST)
        wait_until(lambda: late.prompt_id in server_queue(server.url).all, "the late post")
        wait_until(lambda: late.prompt_id not in server_queue(server.url).all, "its end")
        workspace.wait_done(1)
        wait_until(lambda: not server_queue(server.url).all, "an empty queue")
        workspace.kill(agent)
        assert workspace.finish() == 0
    assert renders([server.output_dir]) == 1, "the late prompt was rendered, too"
    check_promises(workspace, 1)
    assert_run_anew(workspace, name, late)


@both_databases
@pytest.mark.parametrize("seconds", some(["1", "0.05"], 2), ids=["in the queue", "in the history"])
def test_a_prompt_whose_answer_nobody_saw_is_taken_over(
    start_server: Start, make_workspace: Make, server_kind: str, seconds: str
) -> None:
    server = start_server("--render-seconds", seconds)
    with threaded_proxy(server.url) as proxy:
        workspace = make_workspace(proxy.url)
        (name,) = submit_slow(workspace, server_kind, 1)
        proxy.inject(Silence(), POST)
        agent = workspace.start()
        wait_until(lambda: server_queue(server.url).all or renders([server.output_dir]), "the prompt at the server")
        prompt_id = workspace.job(name).prompt_id
        workspace.kill(agent)
        assert workspace.finish() == 0
        assert len(proxy.times(POST)) == 1
    (job,) = check_promises(workspace, 1)
    assert (job.prompt_id, job.run_count, job.retries_attempted) == (prompt_id, 1, 0)
    assert len(workspace.attempts(name)) == 1
    assert renders([server.output_dir]) == 1
