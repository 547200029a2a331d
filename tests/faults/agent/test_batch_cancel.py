"""A batch that is cancelled: its prompts are gone from the servers at once, and what comes late changes nothing."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.fault_proxy import Delay
from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, is_stopped, leftovers, server_queue, wait_until
from support.breakage import Make, Start, with_sleep_node
from support.sweeps import (
    at_server,
    batch_of,
    check_cells,
    check_sweep,
    e3,
    files_of,
    logged_of,
    members,
    only_batch,
    prepared,
    prompts_of,
    queue,
    rendered,
    slowly,
    steer,
    told_of,
    wait_for,
    wait_grid,
    wait_landed,
    waiting_sweep,
)
from support.threaded_proxy import threaded_proxy
from support.workspaces import call_e3

AT_ONCE = 2.0
SEED = 20261118
LONG = {"3.seconds": (20,), "1.color": tuple(range(1, 7))}
"""Six that take longer than a test looks at them."""


def check_cancelled(workspace: AgentWorkspace, batch_id: str, *, done: int) -> None:
    """It stands as it stood when it was cancelled: so many done, all others cancelled; no file but the results."""
    batch, jobs = batch_of(workspace, batch_id), members(workspace, batch_id)
    assert (batch.status, batch.reason, batch.generation) == (BatchStatus.CANCELLED, "by request", 1)
    assert (batch.done, batch.failed, batch.grid) == (done, len(jobs) - done, None)
    kept = [job for job in jobs if job.status is JobStatus.DONE]
    assert {job.failure_class for job in jobs if job not in kept} == {"cancelled"}
    assert not any(job.needs_regeneration for job in jobs)
    folder = f"jobs/finished/image/{batch_id}/"
    results = {path for job in kept for path in job.outputs}
    assert {path for path in files_of(workspace) if path.startswith(folder)} == results
    assert not [
        each for each in workspace.store(lambda store: store.run(ops.open_attempts)) if each.batch_id == batch_id
    ]
    assert leftovers(workspace) == []
    assert told_of(workspace, batch_id) == ["batch.created", "batch.cancelled"]


def words_on(workspace: AgentWorkspace, batch_id: str) -> list[str]:
    """What is recorded of the prompts that were taken back or came too late."""
    jobs = members(workspace, batch_id)
    attempts = [attempt for job in jobs for attempt in workspace.attempts(job.config_name)]
    return [json.loads(attempt.error)["message"] for attempt in attempts if attempt.outcome == "cancelled"]


def wait_closed(workspace: AgentWorkspace, batch_id: str) -> None:
    """Until nothing that was sent is unaccounted for."""

    def is_closed() -> bool:
        attempts = workspace.store(lambda store: store.run(ops.open_attempts))
        return all(each.batch_id != batch_id for each in attempts)

    wait_for(is_closed, "the ends of all prompts", workspace)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(180)
def test_cancelled_at_half_it_is_gone_from_the_server_at_once_and_another_batch_goes_on(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    cancelled = queue(workspace, {"3.seconds": (0.12,), "1.color": tuple(range(1, 17))}, workflow="sleepy")
    agent = workspace.start()
    wait_landed(workspace, cancelled, 7)
    other_axes = {"3.seconds": (0.13,), "1.color": tuple(range(21, 25))}
    other = queue(workspace, other_axes, "--priority", "10", workflow="sleepy")
    wait_for(lambda: at_server(workspace, other, server.url), "both at the server", workspace)
    began = time.monotonic()
    steer(workspace, "batch", "cancel", cancelled)
    done = batch_of(workspace, cancelled).done
    theirs = prompts_of(workspace, cancelled)
    wait_until(lambda: not theirs & set(server_queue(server.url).all), "an empty queue", AT_ONCE)
    assert time.monotonic() - began < AT_ONCE
    wait_grid(workspace, other)
    assert prompts_of(workspace, cancelled) == theirs
    wait_closed(workspace, cancelled)
    workspace.kill(agent)
    assert 7 <= done < 16
    check_cancelled(workspace, cancelled, done=done)
    check_sweep(workspace, other, other_axes)
    assert [job.run_count for job in members(workspace, other)] == [1, 1, 1, 1]
    assert logged_of(workspace, other) == ["batch.created", "batch.completed"]
    assert workspace.finish() == 0
    check_cancelled(workspace, cancelled, done=done)


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 3])
def test_results_that_come_after_the_cancel_are_discarded_and_recorded_as_such(
    start_server: Start, make_workspace: Make, server_kind: str, agents: int
) -> None:
    """The agents are asleep while their prompts end and the batch is cancelled; then they wake up."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    batch_id = queue(workspace, {"1.color": tuple(range(1, 9))}, *slowly(0.3), workflow="sleepy")
    running = [workspace.start() for _ in range(agents)]
    wait_landed(workspace, batch_id, 2)
    wait_for(lambda: len(at_server(workspace, batch_id, server.url)) == 2, "two at the server", workspace)
    for process in running:
        process.send_signal(signal.SIGSTOP)
    for process in running:
        wait_until(lambda asleep=process: is_stopped(asleep), "sleep")
    wait_for(lambda: not server_queue(server.url).all, "the end of the renders", workspace)
    done = batch_of(workspace, batch_id).done
    steer(workspace, "batch", "cancel", batch_id)
    for process in running:
        process.send_signal(signal.SIGCONT)
    wait_closed(workspace, batch_id)
    time.sleep(0.5)
    check_cancelled(workspace, batch_id, done=done)
    assert any("its result was discarded" in words for words in words_on(workspace, batch_id))
    assert rendered(workspace, server.output_dir) > done
    for process in running:
        workspace.kill(process)
    assert workspace.finish() == 0
    check_cancelled(workspace, batch_id, done=done)


@pytest.mark.slow
def test_a_result_that_is_being_fetched_at_the_cancel_leaves_no_file(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    with threaded_proxy(server.url) as proxy:
        workspace = prepared(make_workspace(proxy.url))
        batch_id = queue(workspace, {"1.color": (1, 2)})
        held = [proxy.hold("GET /view") for _ in range(2)]
        agent = workspace.start()
        wait_until(lambda: all(each.waiting for each in held), "the downloads")
        steer(workspace, "batch", "cancel", batch_id)
        for each in held:
            proxy.release(each)
        wait_closed(workspace, batch_id)
        time.sleep(0.5)
        check_cancelled(workspace, batch_id, done=0)
        workspace.kill(agent)
        assert workspace.finish() == 0
        check_cancelled(workspace, batch_id, done=0)


@pytest.mark.slow
def test_what_was_cancelled_is_rendered_again_only_when_that_is_said(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    axes = {"1.color": (1, 2, 3), "1.width": (64, 65)}
    batch_id = queue(workspace, axes, *slowly(0.8), workflow="sleepy")
    agent = workspace.start()
    wait_landed(workspace, batch_id, 2)
    steer(workspace, "batch", "cancel", batch_id)
    done = batch_of(workspace, batch_id).done
    assert "nothing needs attention" in steer(workspace, "batch", "retry", batch_id)
    assert batch_of(workspace, batch_id).status is BatchStatus.CANCELLED
    wait_closed(workspace, batch_id)
    check_cancelled(workspace, batch_id, done=done)
    steer(workspace, "batch", "retry", "--cancelled", batch_id)
    batch = wait_grid(workspace, batch_id)
    workspace.kill(agent)
    assert (batch.generation, batch.done, batch.reason) == (2, 6, None)
    assert told_of(workspace, batch_id) == ["batch.created", "batch.cancelled", "batch.completed"]
    assert sum(job.run_count for job in members(workspace, batch_id)) <= 6 + 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("agents", [1, 3])
def test_cancels_and_retries_that_race_with_results_and_dying_agents_end_once_per_generation(
    start_server: Start, make_workspace: Make, agents: int
) -> None:
    chance = random.Random(f"{SEED} {agents}")
    server = start_server("--render-seconds", "uniform:0.01:0.15")
    workspace = prepared(make_workspace(server.url))
    axes = {"1.color": tuple(range(1, 7)), "1.width": tuple(range(64, 69))}
    batch_id = queue(workspace, axes)
    running = [workspace.start() for _ in range(agents)]
    for _ in range(40):
        time.sleep(chance.uniform(0, 0.3))
        word = chance.choice((("cancel",), ("retry", "--cancelled"), ("retry", "--cancelled"), ("pause",), ("resume",)))
        call_e3("batch", *word, batch_id, "-C", str(workspace.root))
        if chance.random() < 0.15:
            victim = chance.randrange(agents)
            workspace.kill(running[victim])
            running[victim] = workspace.start()
    call_e3("batch", "resume", batch_id, "-C", str(workspace.root))
    steer(workspace, "batch", "retry", "--cancelled", batch_id)
    batch = wait_grid(workspace, batch_id)
    for process in running:
        workspace.kill(process)
    assert workspace.finish() == 0
    check_sweep(workspace, batch_id, axes, generation=batch.generation)
    check_cells(workspace, batch_id, axes)
    assert server_queue(server.url).all == ()
    told = [(event["job_id"], event["event"]) for event in workspace.events() if "job_id" in event]
    for job in members(workspace, batch_id):
        ends = [name for job_id, name in told if job_id == job.id and name in ("job.done", "job.cancelled")]
        assert ends.count("job.done") == 1, "what is done stays done"
        assert ends[-1] == "job.done"


# Without an agent that works the whole queue off.


@pytest.mark.slow
def test_cancelled_while_no_agent_lives_its_prompts_are_taken_back_by_the_one_who_cancels(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    batch_id = queue(workspace, LONG, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
    workspace.kill(agent)
    answer = e3(workspace, "batch", "cancel", batch_id)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "6 jobs cancelled, 0 done" in answer.stdout
    wait_until(lambda: not server_queue(server.url).all, "an empty queue", AT_ONCE)
    check_cancelled(workspace, batch_id, done=0)
    assert workspace.finish() == 0
    check_cancelled(workspace, batch_id, done=0)
    assert rendered(workspace, server.output_dir) == 0


@pytest.mark.slow
def test_cancelled_while_neither_agent_nor_server_lives_the_next_agent_clears_up(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    with threaded_proxy(server.url) as proxy:
        workspace = prepared(make_workspace(proxy.url))
        batch_id = queue(workspace, {"1.color": tuple(range(1, 7))}, *slowly(0.5), workflow="sleepy")
        agent = workspace.start()
        wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
        workspace.kill(agent)
        proxy.call(proxy._proxy.go_down)
        answer = e3(workspace, "batch", "cancel", batch_id)
        assert answer.returncode == 0
        assert "could not be taken back from the server yet" in answer.stderr
        proxy.heal()
        agent = workspace.start()
        wait_closed(workspace, batch_id)
        workspace.kill(agent)
        check_cancelled(workspace, batch_id, done=0)
        assert server_queue(server.url).all == ()


@pytest.mark.slow
def test_a_sweep_that_works_itself_takes_its_prompts_back_when_it_is_cancelled(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    """Also at a server that takes its time to answer."""
    server = with_sleep_node(start_server(), server_kind)
    with threaded_proxy(server.url) as proxy:
        workspace = prepared(make_workspace(proxy.url))
        waiting = waiting_sweep(workspace, LONG, workflow="sleepy")
        batch_id = only_batch(workspace)
        wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
        proxy.inject(Delay(0.7), "GET /queue", times=None)
        steer(workspace, "batch", "cancel", batch_id)
        assert waiting.wait(60) == 1
        wait_until(lambda: not server_queue(server.url).all, "an empty queue", 5)
        check_cancelled(workspace, batch_id, done=0)


@pytest.mark.slow
def test_cancelled_while_only_a_sweep_of_another_batch_is_at_work_it_is_taken_back_all_the_same(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    batch_id = queue(workspace, {"3.seconds": (20,), "1.color": (1,)}, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: server_queue(server.url).running, "one at the server", workspace)
    workspace.kill(agent)
    other = waiting_sweep(workspace, {"1.color": (11, 12)})
    wait_for(lambda: len(server_queue(server.url).all) == 2, "one behind it", workspace)
    e3(workspace, "batch", "cancel", batch_id)
    wait_until(lambda: not at_server(workspace, batch_id, server.url), "its end", 2 * AT_ONCE)
    assert other.wait(60) == 0
    check_cancelled(workspace, batch_id, done=0)
