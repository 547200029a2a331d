"""Row 17: a disk is full. It is said, nothing is called done that is not there, and work goes on when there is room."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from comfyui_agent.store.errors import DatabaseFull
from support.agents import AgentWorkspace, check_promises, renders
from support.breakage import (
    Make,
    Start,
    Stranger,
    by_hand,
    coloured,
    is_alive,
    job,
    limit_files,
    small_disk,
    submit,
    told,
    until,
    wait_for_end,
    wait_told,
)

JOBS = 12


def said(workspace: AgentWorkspace, words: str) -> bool:
    return workspace.log.exists() and words in workspace.log.read_text(errors="replace")


def check_nothing_was_lost_or_rendered_twice(
    workspace: AgentWorkspace, rendered: int, count: int = JOBS, *, most_runs: int = 1
) -> None:
    jobs = check_promises(workspace, count)
    assert rendered == count
    assert all(each.run_count <= most_runs and not each.retries_attempted for each in jobs)


def check_done_means_there(workspace: AgentWorkspace) -> None:
    listed = by_hand(workspace, "SELECT json_extract(outputs, '$[0]') FROM jobs WHERE status = 'done'")
    assert all((workspace.root / path).stat().st_size for (path,) in listed)


def holds(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something stays true for a while."""
    until_then = time.monotonic() + seconds
    while condition():
        if time.monotonic() > until_then:
            return True
        time.sleep(0.05)
    return False


def test_results_wait_for_room(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    with small_disk(workspace.root / "jobs", "1m") as disk:
        disk.fill()
        workspace.submit(JOBS)
        agent = workspace.start("--until-idle")
        wait_told(workspace, "alert.disk")
        (alert,) = told(workspace, "alert.disk")
        assert "No space left" in alert["message"]
        assert "results cannot be kept in jobs/finished" in alert["message"]
        assert "\n" not in alert["message"]
        assert workspace.counts().done == 0
        assert workspace.counts().failed == 0
        assert is_alive(agent)
        disk.make_room()
        assert wait_for_end(workspace, agent) == 0
        check_nothing_was_lost_or_rendered_twice(workspace, renders([server.output_dir]))


@pytest.mark.slow
def test_an_agent_killed_while_results_wait_for_room_leaves_them_to_the_next(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    with small_disk(workspace.root / "jobs", "1m") as disk:
        disk.fill()
        workspace.submit(JOBS)
        agent = workspace.start()
        wait_told(workspace, "alert.disk")
        workspace.kill(agent)
        disk.make_room()
        assert workspace.finish() == 0
        rendered = renders([server.output_dir])  # a prompt that the kill kept from being sent gets another id
        check_nothing_was_lost_or_rendered_twice(workspace, rendered, most_runs=2)


@pytest.mark.slow
def test_a_database_without_room_is_waited_for_longer_than_a_lease(start_server: Start, make_workspace: Make) -> None:
    server = start_server("--render-seconds", "0.1")
    workspace = make_workspace(server.url, E3_LEASE_SECONDS="2")
    with small_disk(workspace.root / "database", "2m") as disk:
        workspace.submit(JOBS)
        agent = workspace.start("--until-idle")
        workspace.wait_done(2)
        disk.fill()
        until(lambda: said(workspace, "no room for the database"), "word of it")
        until(lambda: said(workspace, "dropped, the database could not be asked in time"), "a lease that ran out")
        check_done_means_there(workspace)
        assert is_alive(agent)
        assert "Traceback" not in workspace.log.read_text()
        disk.make_room()
        assert wait_for_end(workspace, agent) == 0
        check_nothing_was_lost_or_rendered_twice(workspace, renders([server.output_dir]))


@pytest.mark.slow
def test_a_disk_that_holds_everything_is_full_and_then_not(start_server: Start, make_workspace: Make) -> None:
    """Database, results, metrics log and the agent's own words are all on it."""
    server = start_server("--render-seconds", "0.1")
    workspace = make_workspace(server.url)
    with small_disk(workspace.root, "4m") as disk:
        workspace.submit(JOBS)
        agent = workspace.start("--until-idle")
        workspace.wait_done(2)
        disk.fill()
        until(lambda: renders([server.output_dir]) > _done(workspace), "a result that cannot be kept")
        assert holds(lambda: is_alive(agent) and renders([server.output_dir]) > _done(workspace), 2.0)
        check_done_means_there(workspace)
        disk.make_room()
        assert wait_for_end(workspace, agent) == 0
        check_nothing_was_lost_or_rendered_twice(workspace, renders([server.output_dir]))


def _done(workspace: AgentWorkspace) -> int:
    ((done,),) = by_hand(workspace, "SELECT count(*) FROM jobs WHERE status = 'done'")
    return int(done)


@pytest.mark.slow
def test_files_that_may_not_grow_are_waited_for(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    """The same without root: the system refuses what the agent writes, to whatever file."""
    server = start_server("--render-seconds", "0.1")
    workspace = make_workspace(server.url)
    count = JOBS if server_kind == "sim" else 300  # the real one renders these in milliseconds
    workspace.submit(count)
    agent = workspace.start("--until-idle")
    workspace.wait_done(2)
    limit_files(agent, 1)
    until(lambda: renders([server.output_dir]) > _done(workspace), "a result that cannot be kept")
    assert holds(lambda: is_alive(agent) and renders([server.output_dir]) > _done(workspace), 2.0)
    check_done_means_there(workspace)
    limit_files(agent, None)
    assert wait_for_end(workspace, agent) == 0
    check_nothing_was_lost_or_rendered_twice(workspace, renders([server.output_dir]), count)


def test_a_job_that_finds_no_room_is_not_acknowledged(start_server: Start, make_workspace: Make) -> None:
    workspace = make_workspace(start_server().url)
    with small_disk(workspace.root / "database", "2m") as disk:
        workspace.submit(JOBS)
        disk.fill()
        more = [job(f"more_{n}.yaml", coloured(100 + n), metadata={"text": "x" * 10_000}) for n in range(100)]
        with pytest.raises(DatabaseFull) as raised:
            submit(workspace, *more)
        assert str(workspace.database) in str(raised.value)
        assert "\n" not in str(raised.value)
        disk.make_room()
        assert len(workspace.jobs()) == JOBS
        submit(workspace, more[0])
        assert workspace.finish() == 0
        check_promises(workspace, JOBS + 1)


@pytest.mark.slow
def test_an_agent_that_starts_on_a_full_disk_says_so_and_changes_nothing(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    with small_disk(workspace.root / "database", "1m") as disk:
        disk.fill()
        agent = workspace.start("--until-idle")
        try:
            code = agent.wait(60)
        except subprocess.TimeoutExpired:
            code = None
        assert code in (1, None)
        assert "Traceback" not in workspace.log.read_text()
        assert said(workspace, "no room") or said(workspace, "No space left")
        disk.make_room()
        workspace.submit(2)
        assert wait_for_end(workspace, agent) == 0 if code is None else workspace.finish() == 0
        check_promises(workspace, 2)
        assert Stranger(server.url).queue() == ([], [])
