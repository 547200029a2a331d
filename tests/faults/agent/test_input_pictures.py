"""Input pictures: a copy travels with the job to whichever server renders it, whatever becomes of the original."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.domain.states import JobStatus
from support.agents import colour_of
from support.breakage import only_simulator, proxied
from support.sampling import some
from support.servers import ServerProcess
from support.yaml_workspaces import (
    MakeYaml,
    YamlWorkspace,
    check_files_promises,
    input_files,
    picture_job,
    rendered_pictures,
    write_picture,
    yaml_workspaces,
)

RED, BLUE = (200, 30, 40), (10, 20, 250)
NUMBER = {RED: 0xC81E28, BLUE: 0x0A14FA}

Start = Callable[..., ServerProcess]


@pytest.fixture
def make_yaml(tmp_path: Path) -> Iterator[MakeYaml]:
    with yaml_workspaces(tmp_path) as make:
        yield make


def drop_with_picture(workspace: YamlWorkspace, count: int, image: str = "pictures/castle.png") -> None:
    """Jobs that want one picture in sizes of their own, so that no cache answers."""
    for number in range(count):
        workspace.drop(f"castle_{number:03}.yaml", picture_job(image, size=16 + number))


def take_in(workspace: YamlWorkspace) -> None:
    assert workspace.launch("monitor", "--until-idle", E3_RESCAN_SECONDS="0.5").wait(60) == 0, workspace.tail()


def check_colour(workspace: YamlWorkspace, colour: tuple[int, int, int]) -> None:
    for job in check_files_promises(workspace):
        assert colour_of(workspace.root / job.outputs[0]) == NUMBER[colour], job.config_name


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_picture_deleted_after_submission_is_rendered_on_whichever_server(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    servers = [start_server("--render-seconds", "0.1"), start_server("--render-seconds", "0.1")]
    workspace = make_yaml(*(server.url for server in servers))
    picture = write_picture(workspace.root / "pictures" / "castle.png", RED)
    drop_with_picture(workspace, 16)
    take_in(workspace)
    picture.unlink()
    picture.parent.rmdir()
    assert workspace.launch("execute", "--until-idle").wait(90) == 0, workspace.tail()
    check_colour(workspace, RED)
    assert all(rendered_pictures(server) for server in servers)
    assert [len(input_files(server)) for server in servers] == [1, 1]


def test_a_picture_replaced_after_submission_is_the_one_that_was_submitted(
    start_server: Start, make_yaml: MakeYaml
) -> None:
    workspace = make_yaml(start_server().url)
    picture = write_picture(workspace.root / "pictures" / "castle.png", RED)
    drop_with_picture(workspace, 4)
    take_in(workspace)
    write_picture(picture, BLUE)
    assert workspace.finish() == 0
    check_colour(workspace, RED)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_fifty_jobs_with_one_picture_leave_one_file_at_each_server(start_server: Start, make_yaml: MakeYaml) -> None:
    servers = [start_server("--render-seconds", "0.02"), start_server("--render-seconds", "0.02")]
    workspace = make_yaml(*(server.url for server in servers))
    write_picture(workspace.root / "pictures" / "castle.png", RED)
    drop_with_picture(workspace, 50)
    assert workspace.finish(timeout=100) == 0
    check_colour(workspace, RED)
    assert all(rendered_pictures(server) for server in servers)
    assert [len(input_files(server)) for server in servers] == [1, 1]
    assert len(list((workspace.root / "database" / "inputs").iterdir())) == 1


@pytest.mark.slow
def test_a_picture_is_sent_to_a_server_once(start_server: Start, make_yaml: MakeYaml) -> None:
    with proxied(start_server()) as proxy:
        workspace = make_yaml(proxy.do(lambda it: it.url))
        write_picture(workspace.root / "pictures" / "castle.png", RED)
        drop_with_picture(workspace, 10)
        assert workspace.finish() == 0
        check_colour(workspace, RED)
        assert proxy.do(lambda it: sum(request == "POST /upload/image" for request in it.requests)) == 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_names_for_the_same_bytes_are_one_picture_at_the_server(start_server: Start, make_yaml: MakeYaml) -> None:
    server = start_server()
    workspace = make_yaml(server.url)
    first = write_picture(workspace.root / "pictures" / "castle.png", RED)
    shutil.copy(first, workspace.root / "日本 (1).png")
    workspace.drop("a.yaml", picture_job("pictures/castle.png", size=20))
    workspace.drop("b.yaml", picture_job("日本 (1).png", size=21))
    assert workspace.finish() == 0
    check_colour(workspace, RED)
    assert len(input_files(server)) == 1


def lose_inputs(workspace: YamlWorkspace, server: ServerProcess) -> None:
    """The server dies while jobs with one picture are rendered, and comes back without it; all jobs end."""
    write_picture(workspace.root / "pictures" / "castle.png", RED)
    drop_with_picture(workspace, 12)
    agent = workspace.start()
    workspace.wait_done(3, timeout=60)
    server.kill()
    [brought] = input_files(server)
    shutil.rmtree(brought.parent)
    server.start()
    workspace.wait_for(lambda: workspace.counts().done + workspace.counts().failed == 12, "all to end", timeout=60)
    workspace.kill(agent)
    workspace.finish()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_that_comes_back_without_its_inputs_is_given_them_again(
    start_server: Start, make_yaml: MakeYaml, server_kind: str
) -> None:
    server = start_server("--render-seconds", "0.3")
    workspace = make_yaml(server.url)
    lose_inputs(workspace, server)
    check_colour(workspace, RED)
    if server_kind == "sim":  # a real one is through with such prompts before it can lose anything
        assert len(input_files(server)) == 1


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_server_that_comes_back_without_its_inputs_costs_no_retry(start_server: Start, make_yaml: MakeYaml) -> None:
    server = start_server("--render-seconds", "0.3")
    workspace = make_yaml(server.url, E3_RETRY_LIMIT="0")
    lose_inputs(workspace, server)
    check_colour(workspace, RED)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", some(["uploaded", "before_upload"], 2))
def test_an_agent_killed_between_picture_and_prompt_costs_nothing(
    start_server: Start, make_yaml: MakeYaml, moment: str
) -> None:
    server = start_server()
    workspace = make_yaml(server.url)
    picture = write_picture(workspace.root / "pictures" / "castle.png", RED)
    drop_with_picture(workspace, 3)
    workspace.die(moment)
    assert len(input_files(server)) == (moment == "uploaded")
    picture.unlink()
    assert workspace.finish() == 0
    check_colour(workspace, RED)
    assert rendered_pictures(server) == 3
    assert [job.retries_attempted for job in workspace.jobs()] == [0] * 3
    assert len(input_files(server)) == 1


@pytest.mark.slow
def test_a_kept_picture_that_is_gone_fails_its_job_and_no_other(
    start_server: Start, make_yaml: MakeYaml, server_kind: str
) -> None:
    only_simulator(server_kind, "a retry of its own accord")
    workspace = make_yaml(start_server().url, E3_RETRY_LIMIT="0")
    write_picture(workspace.root / "pictures" / "castle.png", RED)
    write_picture(workspace.root / "pictures" / "lake.png", BLUE)
    workspace.drop("castle.yaml", picture_job("pictures/castle.png"))
    workspace.drop("lake.yaml", picture_job("pictures/lake.png", size=20))
    take_in(workspace)
    kept = {path.read_bytes(): path for path in (workspace.root / "database" / "inputs").iterdir()}
    assert len(kept) == 2
    kept[(workspace.root / "pictures" / "castle.png").read_bytes()].unlink()
    assert workspace.launch("execute", "--until-idle").wait(60) == 1, workspace.tail()
    job = workspace.job("castle.yaml")
    assert job.status is JobStatus.FAILED
    assert "is gone: submit the job again" in (job.error_trace or "").splitlines()[0]
    assert workspace.job("lake.yaml").status is JobStatus.DONE
    retried = workspace.call("retry", "castle.yaml")
    assert retried.returncode == 0, retried.stderr
    assert workspace.finish() == 0
    assert colour_of(workspace.root / workspace.job("castle.yaml").outputs[0]) == NUMBER[RED]
