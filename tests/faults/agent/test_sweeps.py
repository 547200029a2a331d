"""Sweeps while everything dies: every combination is rendered once, and the batch completes once, with its grid."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, leave, server_queue
from support.breakage import Make, Start, only_simulator, with_sleep_node, without_flag
from support.sweeps import (
    NINETY,
    Composing,
    batch_of,
    batches,
    check_cells,
    check_ninety,
    check_sweep,
    e3,
    files_of,
    in_background,
    logged_of,
    members,
    only_batch,
    prepared,
    prompts_of,
    queue,
    rendered,
    sets,
    slowly,
    steer,
    told_of,
    wait_for,
    wait_grid,
    wait_landed,
    wait_status,
    waiting_sweep,
)

SEED = 20261117
MANY = {"1.color": tuple(range(1, 31)), "1.width": tuple(range(64, 94))}
FOUR = {"1.color": (1, 2), "1.width": (64, 65)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("axes", "agents", "kills"),
    [
        pytest.param(NINETY, 2, 1, id="two agents, short"),
        pytest.param(NINETY, 1, 5, id="one agent", marks=pytest.mark.slow),
        pytest.param(NINETY, 3, 5, id="three agents", marks=pytest.mark.slow),
        pytest.param(MANY, 1, 25, id="one agent, many", marks=pytest.mark.slow),
        pytest.param(MANY, 3, 25, id="three agents, many", marks=pytest.mark.slow),
    ],
)
def test_agents_killed_again_and_again_complete_a_sweep_once(
    start_server: Start, make_workspace: Make, axes: dict[str, tuple[int, ...]], agents: int, kills: int
) -> None:
    chance = random.Random(f"{SEED} {agents}")
    server = start_server("--render-seconds", "0.015")
    workspace = prepared(make_workspace(server.url))
    batch_id = queue(workspace, axes)
    total = batch_of(workspace, batch_id).total
    running = [workspace.start() for _ in range(agents)]
    for kill in range(kills):
        # The last one dies as the last results land, or as the grid is made.
        wait_landed(workspace, batch_id, total * (kill + 1) // kills - (1 if kill + 1 == kills else 0), timeout=120)
        time.sleep(chance.uniform(0, 0.1))
        victim = chance.randrange(agents)
        workspace.kill(running[victim])
        if kill + 1 < kills:
            running[victim] = workspace.start()
    for process in running:
        workspace.kill(process)
    assert workspace.finish(timeout=200) == 0
    check_sweep(workspace, batch_id, axes)
    check_cells(workspace, batch_id, axes)
    assert rendered(workspace, server.output_dir) == total
    assert logged_of(workspace, batch_id) == ["batch.created", "batch.completed"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("agents", [1, 3])
def test_a_sweep_that_agents_work_off_is_watched_in_lines(
    start_server: Start, make_workspace: Make, agents: int
) -> None:
    server = start_server("--render-seconds", "0.015")
    workspace = prepared(make_workspace(server.url))
    batch_id = queue(workspace, NINETY)
    assert told_of(workspace, batch_id) == ["batch.created"]
    running = [workspace.start() for _ in range(agents)]
    watched = e3(workspace, "batch", "watch", batch_id, timeout=200)
    assert watched.returncode == 0, watched.stderr
    lines = watched.stdout.splitlines()
    assert sum("Done" in line for line in lines) > 10
    assert any("90 of 90 done, complete" in line for line in lines)
    assert lines[-1] == f"Grid  {workspace.root / 'jobs/finished/image' / batch_id / 'grid.png'}"
    for process in running:
        assert leave(process) < 5
    assert {job.run_count for job in members(workspace, batch_id)} == {1}
    check_ninety(workspace, batch_id, server.output_dir)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_waits_for_a_script_says_one_document(start_server: Start, make_workspace: Make) -> None:
    server = start_server("--render-seconds", "0.015")
    workspace = prepared(make_workspace(server.url))
    answer = e3(workspace, "sweep", "picture", *sets(NINETY), "--wait", "--json", timeout=200)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    facts = {key: said[key] for key in ("kind", "status", "total", "pending", "processing", "done", "failed")}
    none = {"pending": 0, "processing": 0, "failed": 0}
    assert facts == {"kind": "sweep", "status": "complete", "total": 90, "done": 90, **none}
    assert (said["generation"], said["grid"]) == (1, f"jobs/finished/image/{said['id']}/grid.png")
    assert sum("Done" in line for line in answer.stderr.splitlines()) > 10
    check_ninety(workspace, said["id"], server.output_dir)


# The grid.


@pytest.mark.parametrize(
    ("moment", "with_child"),
    [
        pytest.param("begun", False, id="its child lives on"),
        pytest.param(
            "written",
            True,
            id="with its child",
            marks=[
                pytest.mark.slow,
            ],
        ),
        pytest.param("begun", True, id="with its child at the start", marks=pytest.mark.slow),
        pytest.param("written", False, id="its child lives on and writes", marks=pytest.mark.slow),
    ],
)
def test_a_grid_whose_agent_was_killed_meanwhile_is_made_once_more_and_whole(
    start_server: Start, make_workspace: Make, tmp_path: Path, moment: str, with_child: bool
) -> None:
    server = start_server()
    composing = Composing(tmp_path / "composing", moment)
    workspace = prepared(make_workspace(server.url, **composing.environment()))
    batch_id = queue(workspace, FOUR)
    composing.hold()
    agent = workspace.start()
    wait_for(lambda: composing.living, "the grid to be made", workspace)
    if moment == "written":
        folder = workspace.root / "jobs" / "finished" / "image" / batch_id
        wait_for(lambda: list(folder.glob(".grid.png.*")), "a grid that is being written", workspace)
    assert batch_of(workspace, batch_id).status is BatchStatus.COMPLETE
    if with_child:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait(60)
        wait_for(lambda: not composing.living, "the end of the child", workspace)
    else:
        workspace.kill(agent)
    composing.release()
    assert workspace.finish() == 0
    wait_for(lambda: not composing.living, "the end of all that composes", workspace)
    assert composing.times == 2
    check_sweep(workspace, batch_id, FOUR)
    check_cells(workspace, batch_id, FOUR)
    assert workspace.finish() == 0
    assert composing.times == 2
    assert rendered(workspace, server.output_dir) == 4


@pytest.mark.slow
def test_the_grids_of_several_batches_are_made_once_each_by_many_agents(
    start_server: Start, make_workspace: Make, tmp_path: Path
) -> None:
    server = start_server()
    composing = Composing(tmp_path / "composing")
    workspace = prepared(make_workspace(server.url, **composing.environment()))
    batch_ids = [queue(workspace, FOUR) for _ in range(4)]
    composing.hold()
    agents = [workspace.start() for _ in range(3)]
    for batch_id in batch_ids:
        wait_status(workspace, batch_id, BatchStatus.COMPLETE)
    time.sleep(2.5)  # longer than an agent waits before it looks again
    composing.release()
    for batch_id in batch_ids:
        wait_grid(workspace, batch_id)
    time.sleep(2.5)
    assert composing.times == 4
    for process in agents:
        workspace.kill(process)
    for batch_id in batch_ids:
        check_sweep(workspace, batch_id, FOUR)
        check_cells(workspace, batch_id, FOUR)


@pytest.mark.slow
def test_a_grid_that_is_being_made_while_members_are_retried_is_made_anew_for_them(
    start_server: Start, make_workspace: Make, server_kind: str, tmp_path: Path
) -> None:
    """The grid of the first generation lands when the second is over already: it is not taken for the second's."""
    only_simulator(server_kind, "--failure-rate")
    server = start_server("--failure-rate", "1")
    composing = Composing(tmp_path / "composing")
    workspace = prepared(make_workspace(server.url, E3_RETRY_LIMIT="0", **composing.environment()))
    batch_id = queue(workspace, FOUR)
    composing.hold()
    agent = workspace.start()
    wait_for(lambda: composing.living, "the grid to be made", workspace)
    assert batch_of(workspace, batch_id).failed == 4
    server.kill()
    without_flag(server, "--failure-rate")
    server.start()
    steer(workspace, "batch", "retry", batch_id)
    wait_status(workspace, batch_id, BatchStatus.COMPLETE)
    assert batch_of(workspace, batch_id).is_grid_due
    composing.release()
    wait_grid(workspace, batch_id)
    assert composing.times == 2
    workspace.kill(agent)
    check_sweep(workspace, batch_id, FOUR, generation=2)
    check_cells(workspace, batch_id, FOUR)


# Pausing.


@pytest.mark.slow
def test_a_paused_batch_waits_while_another_goes_on(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    paused = {"3.seconds": (0.2,), "1.color": tuple(range(1, 7))}
    other = {"1.color": (11, 12), "1.width": (64, 65)}
    paused_id, other_id = queue(workspace, paused, workflow="sleepy"), queue(workspace, other)
    agent = workspace.start()
    wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
    assert "paused" in steer(workspace, "batch", "pause", paused_id)
    there = batch_of(workspace, paused_id)
    wait_grid(workspace, other_id)
    stands = batch_of(workspace, paused_id)
    assert stands.is_paused
    assert not stands.status.has_ended
    assert stands.processing == 0, "what was at the server has ended"
    assert stands.done <= there.done + there.processing, "nothing was begun"
    assert stands.pending >= 3
    assert len(prompts_of(workspace, paused_id)) == stands.done
    assert "paused" not in steer(workspace, "batch", "resume", paused_id)
    wait_grid(workspace, paused_id)
    workspace.kill(agent)
    for batch_id, axes in ((paused_id, paused), (other_id, other)):
        assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]
        assert len(members(workspace, batch_id)) == len(prompts_of(workspace, batch_id)), axes
    check_sweep(workspace, other_id, other)
    check_sweep(workspace, paused_id, paused)
    assert rendered(workspace, server.output_dir) == 10


@pytest.mark.slow
def test_a_batch_that_was_paused_stays_so_through_agents_that_die(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    axes = {"1.color": (1, 2, 3), "1.width": (64, 65)}
    batch_id = queue(workspace, axes, *slowly(0.3), workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
    steer(workspace, "batch", "pause", batch_id)
    workspace.kill(agent)
    begun = prompts_of(workspace, batch_id)
    assert workspace.finish() == 0, "what is paused is not waited for, and what was at the server is brought home"
    assert prompts_of(workspace, batch_id) == begun
    assert batch_of(workspace, batch_id).done == len(begun)
    assert batch_of(workspace, batch_id).is_paused
    steer(workspace, "batch", "resume", batch_id)
    assert workspace.finish() == 0
    check_sweep(workspace, batch_id, axes)
    assert rendered(workspace, server.output_dir) == 6


# `e3 sweep --wait`.


@pytest.mark.timing
@pytest.mark.slow
def test_a_waiting_sweep_that_is_told_to_leave_leaves_its_prompts_to_be_taken_over(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    waiting = waiting_sweep(workspace, FOUR, *slowly(0.7), workflow="sleepy")
    wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
    batch_id = only_batch(workspace)
    at_server = server_queue(server.url).all
    seconds = leave(waiting)
    assert (waiting.returncode, seconds < 2) == (143, True), seconds
    assert set(server_queue(server.url).all) <= set(at_server)
    assert {job.status for job in members(workspace, batch_id)} <= {JobStatus.PENDING, JobStatus.DONE}
    assert "Traceback" not in workspace.log.read_text()
    assert workspace.finish() == 0
    jobs = members(workspace, batch_id)
    assert [job.run_count for job in jobs] == [1, 1, 1, 1]
    assert {job.prompt_id for job in jobs} >= set(at_server)
    check_sweep(workspace, batch_id, FOUR)
    assert rendered(workspace, server.output_dir) == 4


@pytest.mark.slow
def test_a_waiting_sweep_does_not_work_beside_an_agent_and_takes_over_when_it_is_killed(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    axes = {"1.color": tuple(range(1, 7)), "1.width": (64, 65)}
    agent = workspace.start()
    wait_for(lambda: list((workspace.root / "database" / "agents").glob("*.lock")), "the agent", workspace)
    waiting = waiting_sweep(workspace, axes, *slowly(0.2), workflow="sleepy")
    batch_id = only_batch(workspace)
    wait_landed(workspace, batch_id, 3)
    locks = [path.name for path in (workspace.root / "database" / "agents").glob("*.lock")]
    assert len(locks) == 1, "the sweep holds none: it only looks"
    assert f"-{agent.pid}-" in locks[0]
    workspace.kill(agent)
    assert waiting.wait(60) == 0, workspace.tail()
    check_sweep(workspace, batch_id, axes)
    check_cells(workspace, batch_id, axes)
    assert rendered(workspace, server.output_dir) == 12
    assert logged_of(workspace, batch_id) == ["batch.created", "batch.completed"]


def whole_batches(workspace: AgentWorkspace) -> list[Batch]:
    found = batches(workspace) if workspace.database.exists() else []
    return [batch for batch in found if batch.status is not BatchStatus.PENDING]


@pytest.mark.slow
def test_a_waiting_sweep_killed_at_once_is_finished_by_an_agent(start_server: Start, make_workspace: Make) -> None:
    server = start_server("--render-seconds", "0.1")
    workspace = prepared(make_workspace(server.url))
    for kill in range(3):
        waiting = waiting_sweep(workspace, FOUR, "--name", f"kill{kill}")
        wait_for(lambda number=kill: len(whole_batches(workspace)) == number + 1, "a batch", workspace)
        workspace.kill(waiting)
    assert workspace.finish() == 0
    found = batches(workspace)
    assert len(found) == 3
    for batch in found:
        check_sweep(workspace, batch.id, FOUR)
    assert rendered(workspace, server.output_dir) == 12


@pytest.mark.slow
def test_a_waiting_sweep_gets_on_at_a_server_where_a_killed_agent_left_other_prompts(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = prepared(make_workspace(server.url))
    left = queue(workspace, {"1.color": tuple(range(1, 7))}, *slowly(0.5), workflow="sleepy")
    agent = workspace.start()
    wait_for(lambda: len(server_queue(server.url).all) == 2, "two at the server", workspace)
    workspace.kill(agent)
    waiting = waiting_sweep(workspace, FOUR)
    assert waiting.wait(60) == 0
    check_sweep(workspace, next(batch.id for batch in batches(workspace) if batch.id != left), FOUR)


# Queueing many.

QUEUEING = """
import sys
from pathlib import Path
from comfyui_agent.cli.app import main
try:
    main()
finally:
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(line for line in status if line.startswith("VmHWM")))
"""


def peak_of_queueing(root: Path, colours: int) -> float:
    """Megabytes that `e3 sweep` took at most for a hundred times as many combinations."""
    flags = ["--set", f"1.color=1..{colours}", "--set", "1.width=64..163"]
    command = [sys.executable, "-c", QUEUEING, "sweep", "picture", *flags]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=200, check=False)
    assert answer.returncode == 0, answer.stderr
    found = re.search(r"VmHWM:\s+(\d+)", answer.stdout)
    assert found
    return int(found[1]) / 1024


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hundred_thousand_combinations_take_no_more_memory_than_a_thousand(
    start_server: Start, make_workspace: Make
) -> None:
    workspace = prepared(make_workspace(start_server().url))
    few = peak_of_queueing(workspace.root, 10)
    many = peak_of_queueing(workspace.root, 1000)
    assert workspace.counts().pending == 101_000
    assert many - few < 15, f"{few:.0f} MB for 1,000 and {many:.0f} MB for 100,000"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed_after", [1_000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_a_sweep_killed_while_it_is_queued_was_never_there(
    start_server: Start, make_workspace: Make, killed_after: int
) -> None:
    server = start_server()
    workspace = prepared(make_workspace(server.url))
    kept = queue(workspace, FOUR)
    queueing = in_background(workspace, "sweep", "picture", "--set", "1.color=1..1000", "--set", "1.width=64..163")
    wait_for(lambda: workspace.counts().pending >= killed_after + 4, "jobs", workspace, 60)
    workspace.kill(queueing)
    assert sorted(batch.status for batch in batches(workspace)) == [BatchStatus.ACTIVE, BatchStatus.PENDING]
    assert workspace.finish() == 0
    assert [batch.id for batch in batches(workspace)] == [kept]
    assert workspace.counts().pending == 0
    assert len(workspace.jobs()) == 4
    assert rendered(workspace, server.output_dir) == 4
    assert {path.split("/")[3] for path in files_of(workspace)} == {kept}
    check_sweep(workspace, kept, FOUR)


@pytest.mark.slow
def test_nothing_of_a_sweep_runs_before_it_is_whole(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    workspace = prepared(make_workspace(server.url))
    agent = workspace.start()
    queueing = in_background(workspace, "sweep", "picture", "--set", "1.color=1..2000", "--set", "1.width=64..163")
    wait_for(lambda: workspace.database.exists() and workspace.counts().pending >= 1_000, "jobs", workspace)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        counts = workspace.counts()
        assert (counts.processing, counts.done, server_queue(server.url).all) == (0, 0, ())
    assert [batch.status for batch in batches(workspace)] == [BatchStatus.PENDING]
    workspace.kill(queueing)
    wait_for(lambda: batches(workspace) == [], "the agent to take it out", workspace)
    assert workspace.jobs() == []
    workspace.kill(agent)
    assert rendered(workspace, server.output_dir) == 0


@pytest.mark.slow
def test_nothing_is_reported_of_a_sweep_that_was_killed_while_it_was_queued(
    start_server: Start, make_workspace: Make
) -> None:
    workspace = prepared(make_workspace(start_server().url))
    queueing = in_background(workspace, "sweep", "picture", "--set", "1.color=1..1000", "--set", "1.width=64..163")
    wait_for(lambda: workspace.database.exists() and workspace.counts().pending >= 1_000, "jobs", workspace)
    workspace.kill(queueing)
    assert workspace.finish() == 0
    assert workspace.events() == []
