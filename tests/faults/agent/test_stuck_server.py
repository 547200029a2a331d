"""Row 24: a server answers, never moves, and cannot be interrupted. It is stuck; the others go on."""

from __future__ import annotations

import pytest

from support.agents import check_promises
from support.breakage import Make, Start, only_simulator, told, wait_told, without_flag

QUICK = {"E3_COMFYUI__STALL_SECONDS": "1", "E3_COMFYUI__FAILOVER_SECONDS": "1"}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_agent_that_works_until_idle_ends_with_1_and_says_why(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    only_simulator(server_kind, "--hang-after")
    server = start_server("--hang-after", "1")
    workspace = make_workspace(server.url, **QUICK)
    workspace.submit(4)
    assert workspace.finish(timeout=90) == 1
    log = workspace.log.read_text()
    assert f"nothing can go on: {server.url} is stuck since" in log
    assert log.count("cannot be interrupted: restart that ComfyUI (") == 1
    assert workspace.counts().done == 1
    without_flag(server, "--hang-after")
    server.kill()
    server.start()
    assert workspace.finish(timeout=90) == 0, "it goes on where it was"
    check_promises(workspace, 4)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_others_go_on_and_it_is_said_once(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    only_simulator(server_kind, "--hang-after")
    stuck, other = start_server("--hang-after", "0"), start_server()
    workspace = make_workspace(stuck.url, other.url, **QUICK)
    workspace.submit(8)
    agent = workspace.start()
    wait_told(workspace, "job.done", 8, timeout=90)
    jobs = check_promises(workspace, 8)
    assert {each.server for each in jobs} == {other.url}
    workspace.kill(agent)
    alerts = [event["message"].partition(":")[0] for event in told(workspace, "alert.server", server=stuck.url)]
    assert alerts == ["set aside", "stuck"]
    assert "is of a run that was given up" not in workspace.log.read_text()
