"""Row 16: a result is gone, empty, cut short, or old and from the cache. It is rendered again, the cache avoided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from comfyui_agent.lab.fault_proxy import Fault, Garbage, Reset
from support.agents import AgentWorkspace, check_promises, renders
from support.breakage import (
    Make,
    Start,
    Stranger,
    coloured,
    errors_of,
    job,
    outcomes_of,
    proxied,
    running_at,
    submit,
    told,
    until,
    wait_for_end,
    wait_told,
    with_sleep_node,
)
from support.sampling import some


@dataclass(frozen=True)
class Meanwhile(Fault):
    """Does something just before the server hears of a request."""

    work: Callable[[], None]

    async def request(self) -> None:
        self.work()


def pictures_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.png") if path.is_file()]


def avoids_cache(workspace: AgentWorkspace, url: str, name: str) -> list[bool]:
    """For each run of a job, whether its prompt was made so that no cache answers it."""
    stranger = Stranger(url)
    graphs = [
        stranger.get(f"/history/{attempt.prompt_id}")[attempt.prompt_id]["prompt"][2]
        for attempt in workspace.attempts(name)
    ]
    return ["e3_attempt" in graph["1"]["inputs"] for graph in graphs]


@pytest.mark.parametrize(
    "spoil",
    some(
        [
            pytest.param(lambda path: path.write_bytes(path.read_bytes()[:60]), id="cut-short"),
            pytest.param(lambda path: path.unlink(), id="gone"),
            pytest.param(lambda path: path.write_bytes(b""), id="empty"),
            pytest.param(lambda path: path.write_bytes(b"<html>sorry</html>"), id="not-a-picture"),
        ],
        4,
    ),
)
def test_a_spoiled_result_is_rendered_again_with_the_cache_avoided(
    start_server: Start, make_workspace: Make, spoil: Callable[[Path], None]
) -> None:
    server = start_server()

    def spoil_all() -> None:
        for path in pictures_of(server.output_dir):
            spoil(path)

    with proxied(server) as proxy:
        proxy.do(lambda it: it.inject(Meanwhile(spoil_all), on="GET /view"))
        workspace = make_workspace(proxy.it.url)
        workspace.submit(6)
        assert workspace.finish() == 0
    jobs = check_promises(workspace, 6)
    again = [each for each in jobs if each.run_count > 1]
    assert again
    for each in again:
        assert outcomes_of(workspace, each.config_name) == ["output", "done"]
        assert each.retries_attempted == 1
        assert avoids_cache(workspace, server.url, each.config_name) == [False, True]
        assert errors_of(workspace, each.config_name)[0]["kind"] == "output"
    assert told(workspace, "job.retry", failure_class="output")


@pytest.mark.slow
def test_a_result_that_is_spoiled_every_time_fails_as_output_and_leaves_no_file(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server()

    def cut_all() -> None:
        for path in pictures_of(server.output_dir):
            path.write_bytes(path.read_bytes()[:60])

    with proxied(server) as proxy:
        proxy.do(lambda it: it.inject(Meanwhile(cut_all), on="GET /view", times=None))
        workspace = make_workspace(proxy.it.url)
        workspace.submit(2)
        assert workspace.finish() == 1
    for each in check_promises(workspace, 2, done=0):
        assert (each.failure_class, each.run_count, each.retries_attempted) == ("output", 3, 2)
        assert each.error_trace


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "rerendered"),
    some(
        [
            pytest.param(Reset(after=500), 0, id="cut"),
            pytest.param(Reset(), 0, id="reset"),
            pytest.param(Garbage(after=400), None, id="garbage"),
        ],
        2,
    ),
)
def test_a_download_that_breaks_a_few_times_ends_well(
    start_server: Start, make_workspace: Make, fault: Fault, rerendered: int | None
) -> None:
    server = start_server()
    with proxied(server) as proxy:
        proxy.do(lambda it: it.inject(fault, on="GET /view", times=2))
        workspace = make_workspace(proxy.it.url)
        workspace.submit(6)
        assert workspace.finish() == 0
    jobs = check_promises(workspace, 6)
    if rerendered is not None:
        assert [each.retries_attempted for each in jobs] == [rerendered] * 6
        assert renders([server.output_dir]) == 6


def test_an_answer_from_the_cache_whose_file_is_gone_is_rendered_again(
    start_server: Start, make_workspace: Make
) -> None:
    """A preview has no prefix that would keep two runs apart, so that the second is answered from the cache."""
    graph = coloured(7)
    graph["2"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    server = start_server()
    workspace = make_workspace(server.url)
    submit(workspace, job("first.yaml", graph))
    assert workspace.finish() == 0
    made = pictures_of(server.folder)
    assert made
    for path in made:
        path.unlink()
    submit(workspace, job("second.yaml", graph))
    assert workspace.finish() == 0
    check_promises(workspace, 2)
    assert outcomes_of(workspace, "second.yaml") == ["output", "done"]
    assert "cache" in errors_of(workspace, "second.yaml")[0]["message"]
    assert avoids_cache(workspace, server.url, "second.yaml") == [False, True]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_strangers_interrupt_costs_a_rerun_and_no_retry(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit(workspace, job("victim.yaml", coloured(1, seconds=0.8)), job("other.yaml", coloured(2)))
    agent = workspace.start("--until-idle")
    for times in (1, 2, 3, 4):  # more often than retries are allowed
        until(lambda: running_at(server, 1), "the victim to run")
        Stranger(server.url).post("/interrupt", {})
        wait_told(workspace, "job.retry", times, failure_class="interrupted")
    assert wait_for_end(workspace, agent) == 0
    check_promises(workspace, 2)
    victim = workspace.job("victim.yaml")
    assert outcomes_of(workspace, "victim.yaml") == ["interrupted"] * 4 + ["done"]
    assert (victim.retries_attempted, victim.run_count) == (0, 5)
