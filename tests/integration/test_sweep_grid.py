"""Ninety variations of one workflow: one batch, seen while it goes on, and a grid that is right in every cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import AgentWorkspace
from support.servers import ServerProcess, simulator
from support.shared_servers import Servers
from support.sweeps import NINETY, check_ninety, members, only_batch, prepared, sets
from support.terminal import in_terminal


@pytest.fixture
def own_simulator(tmp_path: Path) -> Iterator[ServerProcess]:
    """One that takes its time; not started yet."""
    process = simulator(tmp_path / "server", "--render-seconds", "0.015")
    yield process
    process.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_waits_does_the_work_with_a_bar_that_moves(
    servers: Servers, server_kind: str, own_simulator: ServerProcess, tmp_path: Path
) -> None:
    url = servers.url("real") if server_kind == "real" else own_simulator.start().url
    process = servers.started.get("real") if server_kind == "real" else own_simulator
    workspace = prepared(AgentWorkspace(tmp_path / "workspace", [url]))
    command = ("sweep", "picture", *sets(NINETY), "--name", "ninety", "--wait")
    with in_terminal(*command, cwd=workspace.root, columns=160) as seen:
        assert seen.finish(200) == 0, seen.text[-3000:]
    batch_id = only_batch(workspace)
    assert re.fullmatch(r"ninety_[0-9a-f]{8}", batch_id)
    assert "━" in seen.text
    on_the_way = {int(number) for number in re.findall(r"(\d+) of 90 done", seen.text)} - {0, 90}
    assert on_the_way
    shown = seen.screen.text.split()
    assert batch_id in shown
    assert f"jobs/finished/image/{batch_id}/grid.png" in "".join(shown)
    assert seen.screen.has_cursor
    assert {job.run_count for job in members(workspace, batch_id)} == {1}
    check_ninety(workspace, batch_id, process.output_dir if process else None)
