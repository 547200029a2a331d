"""The clock of a batch: it runs while a member is executed at a live server and none lands, and at no other time."""

from __future__ import annotations

import signal
import time
import urllib.error
from collections.abc import Callable

import pytest

from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, server_queue, wait_until
from support.breakage import Make, Start, Stranger, coloured, only_simulator, with_sleep_node, without_flag
from support.sweeps import (
    batch_of,
    check_sweep,
    files_of,
    logged_of,
    members,
    only_batch,
    prepared,
    queue,
    rendered,
    steer,
    told_of,
    wait_for,
    wait_grid,
    wait_landed,
    wait_status,
    waiting_sweep,
)

EXPIRY = 0.8
SOON = {"E3_BATCH_EXPIRY_SECONDS": str(EXPIRY)}
PATIENT = {"E3_BATCH_EXPIRY_SECONDS": "60"}


def holds_on(workspace: AgentWorkspace, batch_id: str, seconds: float, meanwhile: Callable[[], object]) -> Batch:
    """For so long the batch does not end, while something is true all the time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert meanwhile()
        batch = batch_of(workspace, batch_id)
        assert not batch.status.has_ended, batch.reason
        time.sleep(0.05)
    return batch


@pytest.mark.timeout(180)
def test_a_batch_that_hangs_expires_is_freed_says_why_and_is_completed_by_a_retry(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    axes = {"3.seconds": (0.05, 2.5, 0.06), "1.color": (1, 2, 3)}
    batch_id = queue(workspace, axes, "--mode", "linear", workflow="sleepy")
    agent = workspace.start(**SOON)
    batch = wait_status(workspace, batch_id, BatchStatus.EXPIRED)
    assert (batch.generation, batch.done, batch.failed, batch.grid) == (1, 1, 2, None)
    assert f"no result for {EXPIRY:g} s although members were being rendered" in (batch.reason or "")
    wait_until(lambda: not server_queue(server.url).all, "an empty queue", 5)
    ended = [job for job in members(workspace, batch_id) if job.status is JobStatus.FAILED]
    assert [(job.failure_class, bool(job.needs_regeneration)) for job in ended] == [("timeout", True)] * 2
    assert all("batch_expiry_seconds" in (job.error_trace or "") for job in ended)
    assert "batch_expiry_seconds" in steer(workspace, "batch", "show", batch_id)
    wait_for(lambda: len(logged_of(workspace, batch_id)) >= 2, "the metrics log", workspace)
    assert logged_of(workspace, batch_id) == ["batch.created", "batch.expired"]
    workspace.kill(agent)
    assert rendered(workspace, server.output_dir) == 1
    assert "2 jobs submitted again" in steer(workspace, "batch", "retry", batch_id)
    agent = workspace.start(**PATIENT)
    batch = wait_grid(workspace, batch_id)
    workspace.kill(agent)
    assert (batch.generation, batch.done, batch.reason) == (2, 3, None)
    assert told_of(workspace, batch_id) == ["batch.created", "batch.expired", "batch.completed"]
    assert rendered(workspace, server.output_dir) == 3
    folder = f"jobs/finished/image/{batch_id}"
    results = {path for job in members(workspace, batch_id) for path in job.outputs}
    assert files_of(workspace) == results | {f"{folder}/grid.png", f"{folder}/grid.html"}


@pytest.mark.slow
def test_a_sweep_that_works_itself_frees_its_server_when_it_expires(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    waiting = waiting_sweep(workspace, {"3.seconds": (20,), "1.color": (2, 3)}, workflow="sleepy", **SOON)
    batch_id = only_batch(workspace)
    assert waiting.wait(60) == 1
    assert batch_of(workspace, batch_id).status is BatchStatus.EXPIRED
    assert "batch_expiry_seconds" in workspace.log.read_text()
    wait_until(lambda: not server_queue(server.url).all, "an empty queue", 3)


@pytest.mark.slow
def test_every_result_winds_the_clock_up_again(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="2"))
    axes = {"3.seconds": (1.0,), "1.color": (1, 2, 3, 4)}
    batch_id = queue(workspace, axes, workflow="sleepy")
    assert workspace.finish() == 0
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
def test_the_clock_goes_on_from_agent_to_agent(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """None of them lives long enough to see it through."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="3"))
    batch_id = queue(workspace, {"3.seconds": (60,), "1.color": (1, 2)}, workflow="sleepy")
    for _ in range(25):
        agent = workspace.start()
        until = time.monotonic() + 2.2
        while time.monotonic() < until and not batch_of(workspace, batch_id).status.has_ended:
            time.sleep(0.1)
        workspace.kill(agent)
        if batch_of(workspace, batch_id).status.has_ended:
            break
    assert batch_of(workspace, batch_id).status is BatchStatus.EXPIRED
    agent = workspace.start()
    wait_until(lambda: not server_queue(server.url).all, "an empty queue", 10)
    workspace.kill(agent)
    assert files_of(workspace) == set()


@pytest.mark.slow
def test_agents_together_do_not_count_the_same_seconds_twice(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    """Two servers, two members at work, three agents: three seconds are three seconds."""
    servers = [with_sleep_node(start_server(), server_kind) for _ in range(2)]
    workspace = prepared(make_workspace(*(server.url for server in servers), E3_BATCH_EXPIRY_SECONDS="4"))
    axes = {"3.seconds": (2.6,), "1.color": (1, 2)}
    batch_id = queue(workspace, axes, workflow="sleepy")
    agents = [workspace.start() for _ in range(3)]
    wait_grid(workspace, batch_id)
    for process in agents:
        workspace.kill(process)
    assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]


# When it stands still.


@pytest.mark.slow
def test_waiting_behind_a_stranger_is_waiting_its_turn(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, **SOON))
    Stranger(server.url).post("/prompt", {"prompt": coloured(99, seconds=12 * EXPIRY)})
    wait_until(lambda: server_queue(server.url).running, "the stranger's prompt")
    axes = {"1.color": (1, 2), "1.width": (64, 65)}
    batch_id = queue(workspace, axes)
    agent = workspace.start()
    wait_for(lambda: len(server_queue(server.url).all) == 3, "two behind it", workspace)
    holds_on(workspace, batch_id, 2 * EXPIRY, lambda: server_queue(server.url).running)
    wait_grid(workspace, batch_id)
    workspace.kill(agent)
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
def test_waiting_behind_another_batch_is_waiting_its_turn(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="2"))
    first = queue(workspace, {"3.seconds": (1,), "1.color": tuple(range(1, 6))}, workflow="sleepy")
    second = queue(workspace, {"1.color": (11, 12)})
    assert workspace.finish() == 0
    for batch_id in (first, second):
        assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]


@pytest.mark.slow
def test_in_backoff_it_stands_still(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    only_simulator(server_kind, "--failure-rate")
    server = start_server("--failure-rate", "1")
    workspace = prepared(make_workspace(server.url, E3_RETRY_BACKOFF_SECONDS="4", **SOON))
    batch_id = queue(workspace, {"1.color": (1, 2)})
    agent = workspace.start()
    wait_for(lambda: {job.retries_attempted for job in members(workspace, batch_id)} == {1}, "failures", workspace)
    server.kill()
    without_flag(server, "--failure-rate")
    server.start()
    holds_on(workspace, batch_id, 2 * EXPIRY, lambda: True)
    batch = wait_grid(workspace, batch_id)
    workspace.kill(agent)
    assert (batch.done, told_of(workspace, batch_id)) == (2, ["batch.created", "batch.completed"])


@pytest.mark.slow
def test_short_backoffs_do_not_add_up(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """It runs for some tenths of a second in all, again and again; in between it backs off."""
    only_simulator(server_kind, "--failure-rate")
    server = start_server("--failure-rate", "1", "--render-seconds", "0.25")
    workspace = prepared(
        make_workspace(server.url, E3_RETRY_BACKOFF_SECONDS="0.25", E3_RETRY_LIMIT="8", E3_BATCH_EXPIRY_SECONDS="3")
    )
    batch_id = queue(workspace, {"1.color": (1,)})
    agent = workspace.start()
    wait_for(lambda: batch_of(workspace, batch_id).status.has_ended, "the end", workspace)
    workspace.kill(agent)
    batch = batch_of(workspace, batch_id)
    assert (batch.status, batch.failed) == (BatchStatus.COMPLETE, 1), batch.reason
    (job,) = members(workspace, batch_id)
    assert (job.failure_class, job.run_count) == ("execution", 9)


@pytest.mark.slow
def test_paused_before_anything_runs_it_stands_still(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server()
    workspace = prepared(make_workspace(server.url, **SOON))
    axes = {"1.color": (1, 2), "1.width": (64, 65)}
    batch_id = queue(workspace, axes)
    steer(workspace, "batch", "pause", batch_id)
    agent = workspace.start()
    holds_on(workspace, batch_id, 2.5 * EXPIRY, lambda: not server_queue(server.url).all)
    steer(workspace, "batch", "resume", batch_id)
    wait_grid(workspace, batch_id)
    workspace.kill(agent)
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
def test_paused_while_a_member_runs_on_it_stands_still(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, **SOON))
    batch_id = queue(workspace, {"3.seconds": (5,), "1.color": (1, 2, 3)}, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: server_queue(server.url).running, "a member at work", workspace)
    steer(workspace, "batch", "pause", batch_id)
    holds_on(workspace, batch_id, 4 * EXPIRY, lambda: server_queue(server.url).running)
    wait_landed(workspace, batch_id, 1)
    workspace.kill(agent)


@pytest.mark.slow
def test_at_a_server_that_is_paused_it_stands_still(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    workspace = prepared(make_workspace(server.url, **SOON))
    axes = {"1.color": (1, 2), "1.width": (64, 65)}
    batch_id = queue(workspace, axes)
    steer(workspace, "servers", "pause", server.url)
    agent = workspace.start()
    holds_on(workspace, batch_id, 2.5 * EXPIRY, lambda: not server_queue(server.url).all)
    steer(workspace, "servers", "resume", server.url)
    wait_grid(workspace, batch_id)
    workspace.kill(agent)
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_with_the_server_away_it_stands_still(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """Killed while a member is executed, and back long after the batch would have expired."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="7"))
    axes = {"3.seconds": (0.8,), "1.color": (1, 2)}
    batch_id = queue(workspace, axes, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: server_queue(server.url).running, "a member at work", workspace)
    server.kill()
    holds_on(workspace, batch_id, 8, lambda: not _answers(server.url))
    server.start()
    wait_grid(workspace, batch_id)
    workspace.kill(agent)
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_with_no_agent_it_stands_still(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """What nobody saw does not count, though the prompt is executed meanwhile."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="3"))
    axes = {"3.seconds": (4.5,), "1.color": (1,)}
    batch_id = queue(workspace, axes, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: server_queue(server.url).running, "a member at work", workspace)
    workspace.kill(agent)
    time.sleep(3)
    assert server_queue(server.url).running
    agent = workspace.start()
    wait_grid(workspace, batch_id, 40)
    workspace.kill(agent)
    check_sweep(workspace, batch_id, axes)


@pytest.mark.slow
def test_while_all_agents_sleep_it_stands_still(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """A laptop that was closed: the seconds between two looks that are far apart were not seen."""
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url, E3_BATCH_EXPIRY_SECONDS="3"))
    axes = {"3.seconds": (6.5,), "1.color": (1,)}
    batch_id = queue(workspace, axes, workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: server_queue(server.url).running, "a member at work", workspace)
    agent.send_signal(signal.SIGSTOP)
    time.sleep(5)
    agent.send_signal(signal.SIGCONT)
    wait_grid(workspace, batch_id)
    workspace.kill(agent)
    assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]


def _answers(url: str) -> bool:
    try:
        server_queue(url)
    except (urllib.error.URLError, OSError):
        return False
    return True
