"""The killing ground, from YAML files: whatever dies meanwhile, each file is one job, one picture, one move."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.agents import colour_of, renders
from support.servers import ServerProcess
from support.yaml_workspaces import MakeYaml, YamlWorkspace, check_files_promises, colour_job, yaml_workspaces

SEED = 20261116
SHORT = pytest.param(200, 20, id="short")
LONG = pytest.param(1000, 50, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
AHEAD = 2
"""Waves of files that are there before they are needed: agents die while they take in and while they render."""

Start = Callable[..., ServerProcess]


@pytest.fixture
def make_yaml(tmp_path: Path) -> Iterator[MakeYaml]:
    with yaml_workspaces(tmp_path) as make:
        yield make


class Waves:
    """Files that are dropped a few at a time, so that there are always some to take in and some to render."""

    def __init__(self, workspace: YamlWorkspace, jobs: int, waves: int) -> None:
        self._workspace = workspace
        self._jobs = jobs
        self._waves = waves
        self._dropped = 0

    def reach(self, wave: int, pause: float = 0.0) -> None:
        """Wait for the results of this many waves, and drop those that come next."""
        self._workspace.wait_done(self._share(wave), timeout=120)
        self.drop_up_to(self._share(wave + AHEAD), pause)

    def rest(self) -> None:
        self.drop_up_to(self._jobs)

    def drop_up_to(self, count: int, pause: float = 0.0) -> None:
        while self._dropped < count:
            self._workspace.drop_colours([self._dropped])
            self._dropped += 1
            time.sleep(pause)

    def _share(self, wave: int) -> int:
        return min(self._jobs, self._jobs * wave // (self._waves + 1))


def check_colours(workspace: YamlWorkspace, jobs: int) -> None:
    """Every promise, and each picture is the one that its file asked for."""
    ended = check_files_promises(workspace)
    assert len(ended) == jobs
    assert [job.retries_attempted for job in ended] == [0] * jobs
    for job in ended:
        assert colour_of(workspace.root / job.outputs[0]) == int(job.config_name[4:9]) + 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("jobs", "kills"), [SHORT, LONG])
@pytest.mark.parametrize("agents", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_agents_killed_while_files_are_dropped_render_every_file_once(
    start_server: Start, make_yaml: MakeYaml, jobs: int, kills: int, agents: int
) -> None:
    chance = random.Random(f"{SEED} {agents}")
    server = start_server("--render-seconds", "0.03")
    workspace = make_yaml(server.url)
    waves = Waves(workspace, jobs, kills)
    running = [workspace.start() for _ in range(agents)]
    for kill in range(kills):
        waves.reach(kill, pause=chance.uniform(0, 0.02))
        time.sleep(chance.uniform(0, 0.5))
        victim = chance.randrange(agents)
        workspace.kill(running[victim])
        running[victim] = workspace.start()
    waves.rest()
    for process in running:
        workspace.kill(process)
    assert workspace.finish(timeout=600) == 0
    check_colours(workspace, jobs)
    assert renders([server.output_dir]) == jobs


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(200, 5, id="short"),
        pytest.param(1000, 10, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
@pytest.mark.slow
def test_a_server_killed_while_files_are_dropped_costs_no_file_a_retry(
    start_server: Start, make_yaml: MakeYaml, jobs: int, kills: int
) -> None:
    chance = random.Random(SEED)
    server = start_server("--render-seconds", "0.03")
    workspace = make_yaml(server.url)
    waves = Waves(workspace, jobs, kills)
    agent = workspace.start()
    for kill in range(kills):
        waves.reach(kill)
        time.sleep(chance.uniform(0, 0.3))
        server.kill()
        waves.drop_up_to(min(jobs, (kill + 3) * jobs // (kills + 1)))
        time.sleep(chance.uniform(0, 1.0))
        server.start()
    waves.rest()
    workspace.kill(agent)
    assert workspace.finish(timeout=600) == 0
    check_colours(workspace, jobs)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("jobs", "kills"), [pytest.param(120, 12, id="short"), LONG])
@pytest.mark.slow
def test_monitors_and_executors_killed_apart_render_every_file_once(
    start_server: Start, make_yaml: MakeYaml, jobs: int, kills: int
) -> None:
    chance = random.Random(SEED + 1)
    server = start_server("--render-seconds", "0.03")
    workspace = make_yaml(server.url)
    waves = Waves(workspace, jobs, kills)
    running: dict[str, subprocess.Popen[bytes]] = {name: workspace.launch(name) for name in ("monitor", "execute")}
    deaths = ["monitor", "execute"] * (kills // 2)
    chance.shuffle(deaths)
    for kill, victim in enumerate(deaths):
        waves.reach(kill, pause=chance.uniform(0, 0.02))
        time.sleep(chance.uniform(0, 0.5))
        workspace.kill(running[victim])
        running[victim] = workspace.launch(victim)
    waves.rest()
    for process in running.values():
        workspace.kill(process)
    for command in ("monitor", "execute", "monitor"):  # take in, render, put away what an executor could not
        assert workspace.launch(command, "--until-idle", E3_RESCAN_SECONDS="0.5").wait(300) == 0, workspace.tail()
    check_colours(workspace, jobs)
    assert renders([server.output_dir]) == jobs


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_everything_dies_at_once_again_and_again_while_files_are_dropped(
    start_server: Start, make_yaml: MakeYaml, server_kind: str
) -> None:
    """Power cuts: agents and server together, at random, in the middle of everything."""
    jobs, kills = 60, 4
    chance = random.Random(SEED + 2)
    server = start_server("--render-seconds", "0.05")
    workspace = make_yaml(server.url)
    waves = Waves(workspace, jobs, kills)
    agents = [workspace.start(), workspace.start()]
    for kill in range(kills):
        waves.reach(kill)
        time.sleep(chance.uniform(0, 0.6))
        for process in agents:
            process.kill()
        server.kill()
        for process in agents:
            process.wait(60)
        agents = [workspace.start(), workspace.start()]
        server.start()
    waves.rest()
    for process in agents:
        workspace.kill(process)
    assert workspace.finish(timeout=100) == 0
    check_colours(workspace, jobs)


def test_a_file_whose_agent_died_before_moving_it_is_moved_by_the_next_one(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    server = start_server()
    workspace = make_yaml(server.url)
    workspace.drop("knight.yaml", colour_job(7))
    workspace.die("done", "run")
    assert workspace.waiting_files() == ["image/knight.yaml"]
    assert workspace.finish() == 0
    check_files_promises(workspace)
    assert renders([server.output_dir]) == 1


@pytest.mark.slow
def test_a_file_whose_executor_died_before_moving_it_is_moved_while_the_monitor_runs(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    server = start_server()
    workspace = make_yaml(server.url)
    workspace.launch("monitor", E3_RESCAN_SECONDS="1")
    workspace.drop("knight.yaml", colour_job(7))
    workspace.wait_row("knight.yaml")
    workspace.die("done", "execute")
    workspace.launch("execute")
    workspace.wait_for(lambda: not workspace.waiting_files(), "the file to be moved", timeout=10)
    check_files_promises(workspace)


@pytest.mark.slow
def test_a_file_whose_agent_died_after_writing_it_down_is_not_taken_in_again(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    server = start_server()
    workspace = make_yaml(server.url)
    workspace.drop_colours(range(20))
    workspace.die("filed")
    assert workspace.counts().pending == 20
    assert workspace.finish() == 0
    check_colours(workspace, 20)
    assert renders([server.output_dir]) == 20
