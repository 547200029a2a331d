"""Ninety variations of one workflow: one batch, seen while it goes on, and a grid that is right in every cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.agents import AgentWorkspace
from support.running import Servers
from support.servers import simulator
from support.sweeps import (
    NINETY,
    check_cells,
    check_sweep,
    e3,
    in_background,
    logged_of,
    members,
    only_batch,
    prepared,
    queue,
    rendered,
    sets,
    told_of,
    wait_for,
    wait_grid,
)
from support.terminal import in_terminal


@dataclass(frozen=True)
class Served:
    workspace: AgentWorkspace
    output_dir: Path | None
    """None: the files of a server that was not started here cannot be reached."""


@pytest.fixture
def served(servers: Servers, server_kind: str, tmp_path: Path) -> Iterator[Served]:
    """A workspace with a server behind it: a simulator that takes its time, or the real one."""
    own = None if server_kind == "real" else simulator(tmp_path / "server", "--render-seconds", "0.015").start()
    url = own.url if own else servers.url(server_kind)
    process = own or servers.started.get(server_kind)
    workspace = prepared(AgentWorkspace(tmp_path / "workspace", [url]))
    yield Served(workspace, process.output_dir if process else None)
    workspace.stop_all()
    if own:
        own.kill()


def check_ninety(served: Served, batch_id: str) -> None:
    """Every promise: each combination once, its own picture, its own cell, told once."""
    workspace = served.workspace
    check_sweep(workspace, batch_id, NINETY)
    check_cells(workspace, batch_id, NINETY)
    assert {job.run_count for job in members(workspace, batch_id)} == {1}
    if served.output_dir is not None:
        assert rendered(workspace, served.output_dir) == 90
    assert told_of(workspace, batch_id) == ["batch.created", "batch.completed"]
    wait_for(lambda: len(logged_of(workspace, batch_id)) >= 2, "the metrics log", workspace)
    assert logged_of(workspace, batch_id) == ["batch.created", "batch.completed"]


def between(shown: str) -> set[int]:
    """The numbers that were seen on the way."""
    return {int(number) for number in re.findall(r"(\d+) of 90 done", shown)} - {0, 90}


@pytest.mark.timeout(300)
def test_a_sweep_that_waits_does_the_work_with_a_bar_that_moves(served: Served) -> None:
    root = served.workspace.root
    with in_terminal("sweep", "picture", *sets(NINETY), "--name", "ninety", "--wait", cwd=root, columns=160) as seen:
        assert seen.finish(200) == 0
    batch_id = only_batch(served.workspace)
    assert re.fullmatch(r"ninety_[0-9a-f]{8}", batch_id)
    assert "━" in seen.text
    assert len(between(seen.text)) >= 2
    shown = seen.screen.text.split()
    assert batch_id in shown
    assert f"jobs/finished/image/{batch_id}/grid.png" in "".join(shown)
    assert seen.screen.has_cursor
    check_ninety(served, batch_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_an_agent_works_off_is_watched_in_lines(served: Served) -> None:
    workspace = served.workspace
    batch_id = queue(workspace, NINETY)
    assert told_of(workspace, batch_id) == ["batch.created"]
    agent = workspace.start()
    watched = e3(workspace, "batch", "watch", batch_id, timeout=200)
    assert watched.returncode == 0, watched.stderr
    lines = watched.stdout.splitlines()
    assert sum("Done" in line for line in lines) > 10
    assert any("90 of 90 done, complete" in line for line in lines)
    assert lines[-1] == f"Grid  {workspace.root / 'jobs/finished/image' / batch_id / 'grid.png'}"
    workspace.kill(agent)
    check_ninety(served, batch_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_waits_in_a_script_says_one_document(served: Served) -> None:
    import json

    workspace = served.workspace
    answer = e3(workspace, "sweep", "picture", *sets(NINETY), "--wait", "--json", timeout=200)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    facts = {key: said[key] for key in ("kind", "status", "total", "pending", "processing", "done", "failed")}
    none = {"pending": 0, "processing": 0, "failed": 0}
    assert facts == {"kind": "sweep", "status": "complete", "total": 90, "done": 90, **none}
    assert (said["generation"], said["grid"]) == (1, f"jobs/finished/image/{said['id']}/grid.png")
    assert sum("Done" in line for line in answer.stderr.splitlines()) > 10
    check_ninety(served, said["id"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_who_watch_see_the_same_end_and_change_nothing(served: Served) -> None:
    workspace = served.workspace
    batch_id = queue(workspace, NINETY)
    watching = [in_background(workspace, "batch", "watch", batch_id) for _ in range(2)]
    agent = workspace.start()
    wait_grid(workspace, batch_id, 200)
    assert [process.wait(20) for process in watching] == [0, 0]
    workspace.kill(agent)
    check_ninety(served, batch_id)
