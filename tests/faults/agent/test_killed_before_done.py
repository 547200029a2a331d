"""Row 4: kill -9 while a result is brought home. The next agent adopts it: no second render, no stray files."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from support.agents import (
    AgentWorkspace,
    both_databases,
    check_promises,
    colour_of,
    leftovers,
    renders,
    sized_picture,
    start_changed,
)
from support.sampling import some
from support.servers import ServerProcess
from support.stores import in_the_shell

Start = Callable[..., ServerProcess]
Make = Callable[..., AgentWorkspace]

COLOUR = 0x336699


def picture(pictures: int) -> dict[str, object]:
    graph = sized_picture()
    graph["1"]["inputs"] |= {"batch_size": pictures, "color": COLOUR}
    return graph


def die_at(workspace: AgentWorkspace, moment: str) -> None:
    agent = start_changed(workspace, f"die:{moment}")
    assert agent.wait(60) == -signal.SIGKILL, workspace.tail()


def named(workspace: AgentWorkspace) -> list[Path]:
    """The files under their final names."""
    return sorted(path for path in (workspace.root / "jobs").rglob("*.png") if path.is_file())


@both_databases
@pytest.mark.parametrize(
    ("moment", "pictures", "names", "downloads"),
    some(
        [
            pytest.param("one_named", 3, 1, 2, id="one of three named"),
            pytest.param("downloaded", 3, 0, 3, id="downloaded"),
            pytest.param("claimed", 3, 0, 3, id="claimed"),
            pytest.param("named", 3, 3, 0, id="all three named"),
            pytest.param("named", 1, 1, 0, id="the only one named"),
        ],
        5,
    ),
)
def test_what_a_dead_agent_fetched_is_adopted(
    start_server: Start, make_workspace: Make, moment: str, pictures: int, names: int, downloads: int
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    (name,) = workspace.submit(1, picture(pictures))
    die_at(workspace, moment)
    assert (len(named(workspace)), len(leftovers(workspace))) == (names, downloads), "it died at another moment"
    dying = workspace.job(name)
    assert dying.status is JobStatus.PROCESSING

    assert workspace.finish() == 0
    assert leftovers(workspace) == []
    (job,) = check_promises(workspace, 1)
    assert [Path(path).name for path in job.outputs] == ["job_00000.png", "job_00000_2.png", "job_00000_3.png"][
        :pictures
    ]
    assert [colour_of(workspace.root / path) for path in job.outputs] == [COLOUR] * pictures
    assert (job.prompt_id, job.run_count, job.retries_attempted) == (dying.prompt_id, 1, 0)
    assert len(workspace.attempts(name)) == 1
    assert renders([server.output_dir]) == pictures, "rendered again"


@pytest.mark.slow
def test_an_agent_that_dies_after_done_has_nothing_left_to_do(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(1, picture(1))
    die_at(workspace, "done")
    (before,) = workspace.jobs()
    assert before.status is JobStatus.DONE
    inode = (workspace.root / before.outputs[0]).stat().st_ino
    assert workspace.finish() == 0
    (after,) = check_promises(workspace, 1)
    assert after == before
    assert (workspace.root / after.outputs[0]).stat().st_ino == inode, "the file was written anew"
    assert renders([server.output_dir]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["downloaded", "claimed", "one_named", "named"])
def test_agents_that_die_at_the_same_moment_one_after_another_leave_nothing_behind(
    start_server: Start, make_workspace: Make, moment: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    workspace.submit(1, picture(3))
    for _ in range(3):
        die_at(workspace, moment)
    assert workspace.finish() == 0
    (job,) = check_promises(workspace, 1)
    assert (job.run_count, job.retries_attempted, job.strikes) == (1, 0, 0)
    assert renders([server.output_dir]) == 3


@pytest.mark.parametrize(
    ("moment", "fate"), some([("one_named", "cancelled"), ("downloaded", "cancelled"), ("downloaded", "deleted")], 3)
)
def test_a_job_that_is_given_up_after_its_agent_died_leaves_no_files(
    start_server: Start, make_workspace: Make, moment: str, fate: str
) -> None:
    server = start_server()
    workspace = make_workspace(server.url)
    (name,) = workspace.submit(1, picture(3))
    die_at(workspace, moment)
    job = workspace.job(name)
    if fate == "cancelled":
        assert workspace.store(lambda store: store.run(ops.cancel_jobs, [job.id])) == [job.id]
    else:
        in_the_shell(workspace.database, f"DELETE FROM jobs WHERE id = {job.id}")
    agent = workspace.start()
    workspace.wait_for(lambda: not workspace.store(lambda store: store.run(ops.open_attempts)), "the run to be closed")
    workspace.wait_for(lambda: not named(workspace) and not leftovers(workspace), "no stray files", timeout=5)
    workspace.kill(agent)
    assert renders([server.output_dir]) == 3
