"""People who change their minds while a job renders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyui_agent.store import operations as ops
from support.agents import AgentWorkspace, check_promises
from support.servers import ServerProcess
from support.stores import in_the_shell

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]


def test_a_job_that_is_cancelled_and_wanted_again_at_once_is_rendered(
    start_server: Start, make_workspace: Make
) -> None:
    workspace = make_workspace(start_server("--render-seconds", "1").url)
    workspace.submit(2)
    agent = workspace.start()
    workspace.wait_for(lambda: workspace.counts().processing == 2, "two at work")
    first = workspace.job("job_00000.yaml")
    assert workspace.store(lambda store: store.run(ops.cancel_jobs, [first.id])) == [first.id]
    assert workspace.store(lambda store: store.run(ops.retry_jobs, [first.id])) == [first.id]
    workspace.wait_done(2)
    workspace.kill(agent)
    assert workspace.finish() == 0
    check_promises(workspace, 2)


@pytest.mark.slow
def test_a_result_that_was_moved_away_behind_a_link_is_left_alone(start_server: Start, make_workspace: Make) -> None:
    workspace = make_workspace(start_server().url)
    workspace.submit(1)
    assert workspace.finish() == 0
    result = workspace.root / "jobs/finished/image/job_00000.png"
    archived = workspace.root / "best.png"
    result.rename(archived)
    result.symlink_to(archived)
    before = archived.read_bytes()
    in_the_shell(workspace.database, "UPDATE jobs SET status = 'pending'")
    assert workspace.finish() == 0
    assert archived.read_bytes() == before
    assert result.is_symlink()
    assert workspace.jobs()[0].outputs == ("jobs/finished/image/job_00000_2.png",)
    assert (workspace.root / "jobs/finished/image/job_00000_2.png").is_file()
