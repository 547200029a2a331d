"""Thousands of job files at once, and agents that die taking them in: each is one row, and none is missing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace
from support.breakage import only_simulator
from support.servers import ServerProcess
from support.stores import in_the_shell
from support.yaml_workspaces import MakeYaml, YamlWorkspace, colour_job, resident_megabytes, yaml_workspaces

SEED = 20261117
FEWER = pytest.param(3_000, id="fewer")
MANY = pytest.param(10_000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(900)])
SLOW = ("--render-seconds", "5")
GROWTH_MB = 30

Start = Callable[..., ServerProcess]


@pytest.fixture
def make_yaml(tmp_path: Path) -> Iterator[MakeYaml]:
    with yaml_workspaces(tmp_path) as make:
        yield make


def drop_many(workspace: YamlWorkspace, files: range) -> None:
    """All of them, as `cp` would: plainly written."""
    for number in files:
        workspace.drop(f"job_{number:05}.yaml", colour_job(number + 1), is_plain=True)


def rows(workspace: AgentWorkspace) -> int:
    counts = workspace.counts()
    return int(counts.pending + counts.processing + counts.done + counts.failed)


def check_taken_in_once(workspace: YamlWorkspace, count: int) -> None:
    """Each file has one row that says what it says, was submitted once, and is where its row says."""
    found = workspace.jobs()
    assert sorted(job.config_name for job in found) == sorted(workspace.dropped)
    assert len(found) == count
    assert all(job.status is not JobStatus.FAILED for job in found), [job for job in found if job.error_trace][:2]
    for job in found:
        assert job.inputs == f'{{"1.color":{int(job.config_name[4:9]) + 1}}}'
        folders = [workspace.processing]
        if job.status is JobStatus.DONE:  # one that ended as the agents were stopped is put away by the next monitor
            folders.append(workspace.finished)
        assert [(folder / job.config_name).is_file() for folder in folders].count(True) == 1, job
    submitted = "SELECT count(*) AS events, count(DISTINCT job_id) AS jobs FROM events WHERE event = 'job.submitted'"
    assert in_the_shell(workspace.database, submitted) == [{"events": count, "jobs": count}]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [FEWER, MANY])
def test_an_agent_killed_while_it_takes_in_thousands_of_files_misses_none_and_takes_none_twice(
    start_server: Start, make_yaml: MakeYaml, server_kind: str, count: int
) -> None:
    only_simulator(server_kind, "a render of five seconds")
    chance = random.Random(SEED)
    workspace = make_yaml(start_server(*SLOW).url)
    drop_many(workspace, range(count))
    kills = 6
    taken: list[int] = []
    for kill in range(kills):
        agent = workspace.start()
        workspace.wait_for(lambda kill=kill: rows(workspace) >= count * kill // (kills + 1), "its share", timeout=60)
        time.sleep(chance.uniform(0, 0.15))
        workspace.kill(agent)
        taken.append(rows(workspace))
    assert any(0 < number < count for number in taken), f"it was never killed in the middle: {taken}"
    workspace.start()
    workspace.wait_for(lambda: rows(workspace) == count, "all rows", timeout=120)
    workspace.stop_all()
    check_taken_in_once(workspace, count)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [FEWER, MANY])
def test_several_monitors_at_once_take_every_file_in_once(make_yaml: MakeYaml, server_kind: str, count: int) -> None:
    only_simulator(server_kind, "no server is part of this")
    workspace = make_yaml()
    monitors = [workspace.launch("monitor") for _ in range(3)]
    drop_many(workspace, range(count))
    workspace.wait_for(lambda: rows(workspace) == count, "all rows", timeout=120)
    assert [process.poll() for process in monitors] == [None] * 3, workspace.tail()
    workspace.stop_all()
    check_taken_in_once(workspace, count)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [FEWER, MANY])
def test_the_memory_of_an_agent_does_not_grow_with_the_files_it_takes_in(
    start_server: Start, make_yaml: MakeYaml, server_kind: str, count: int
) -> None:
    only_simulator(server_kind, "a render of five seconds")
    workspace = make_yaml(start_server(*SLOW).url)
    agent = workspace.start()
    drop_many(workspace, range(1000))
    workspace.wait_for(lambda: rows(workspace) == 1000, "the first thousand", timeout=60)
    before = resident_megabytes(agent)
    drop_many(workspace, range(1000, count))
    workspace.wait_for(lambda: rows(workspace) == count, "all rows", timeout=120)
    grown = resident_megabytes(agent) - before
    assert grown < GROWTH_MB, f"{before:.1f} MB with a thousand files, {grown:.1f} MB more with {count}"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_files_deleted_by_the_thousand_while_nobody_watched_are_cancelled_and_the_others_are_not(
    make_yaml: MakeYaml, server_kind: str
) -> None:
    only_simulator(server_kind, "no server is part of this")
    workspace = make_yaml()
    drop_many(workspace, range(1500))
    assert workspace.launch("monitor", "--until-idle", E3_RESCAN_SECONDS="0.5").wait(60) == 0
    for number in range(0, 1500, 2):
        (workspace.processing / f"job_{number:05}.yaml").unlink()
    workspace.launch("monitor")
    workspace.wait_for(lambda: workspace.counts().failed == 750, "750 cancelled", timeout=30)
    for job in workspace.jobs():
        is_gone = int(job.config_name[4:9]) % 2 == 0
        assert job.status is (JobStatus.FAILED if is_gone else JobStatus.PENDING)
        assert job.failure_class == ("cancelled" if is_gone else None)
