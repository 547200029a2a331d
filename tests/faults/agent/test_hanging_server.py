"""Row 11: a server hangs. It is noticed and set aside, its jobs go elsewhere, and it is tried again later."""

from __future__ import annotations

import pytest

from support.agents import check_promises
from support.breakage import (
    Make,
    Start,
    Stranger,
    coloured,
    errors_of,
    frozen,
    job,
    only_simulator,
    outcomes_of,
    proxied,
    running_at,
    submit,
    told,
    until,
    wait_for_end,
    wait_told,
    with_sleep_node,
    without_flag,
)


def ending(url: str, prompt_id: str) -> str:
    """The last message in the history of a prompt."""
    last: str = Stranger(url).get(f"/history/{prompt_id}")[prompt_id]["status"]["messages"][-1][0]
    return last


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_render_that_never_ends_is_interrupted_and_its_server_set_aside_until_it_works_again(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    only_simulator(server_kind, "--hang-after")
    hanging, other = start_server("--hang-after", "0"), start_server("--render-seconds", "0.1")
    with proxied(hanging) as proxy:
        url = proxy.it.url
        workspace = make_workspace(url, other.url, E3_COMFYUI__STALL_SECONDS="1.5")
        workspace.submit(8)
        agent = workspace.start()
        wait_told(workspace, "alert.server", server=url)
        wait_told(workspace, "job.done", 7)
        assert proxy.do(lambda it: "POST /interrupt" in it.requests)
        wait_told(workspace, "job.done", 8)
        jobs = check_promises(workspace, 8)
        assert {each.server for each in jobs} == {other.url}
        (stalled,) = (each for each in jobs if each.retries_attempted)
        assert stalled.retries_attempted == 1
        assert outcomes_of(workspace, stalled.config_name) == ["timeout", "done"]
        assert "stalled" in errors_of(workspace, stalled.config_name)[0]["message"]
        posted = proxy.do(lambda it: it.requests.count("POST /prompt"))
        submit(workspace, *(job(f"meanwhile_{n}.yaml", coloured(100 + n)) for n in range(4)))
        wait_told(workspace, "job.done", 12)
        assert proxy.do(lambda it: it.requests.count("POST /prompt")) == posted
        hanging.kill()
        without_flag(hanging, "--hang-after")
        hanging.start()
        wait_told(workspace, "server.up", server=url)
        submit(workspace, *(job(f"later_{n}.yaml", coloured(200 + n)) for n in range(4)))
        wait_told(workspace, "job.done", 16)
        workspace.kill(agent)
        assert url in {each.server for each in check_promises(workspace, 16)}


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_a_server_that_never_answers_from_the_start_gets_nothing_and_is_reported(
    start_server: Start, make_workspace: Make
) -> None:
    silent, other = start_server(), start_server()
    workspace = make_workspace(silent.url, other.url)
    workspace.submit(8)
    agent = workspace.start()
    with frozen(silent):
        wait_told(workspace, "job.done", 8)
        wait_told(workspace, "server.down", server=silent.url)
    wait_told(workspace, "server.up", server=silent.url)
    workspace.kill(agent)
    jobs = check_promises(workspace, 8)
    assert [(each.run_count, each.retries_attempted) for each in jobs] == [(1, 0)] * 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_falls_silent_in_mid_run_loses_its_jobs_to_another_and_is_tried_again(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    silent, other = (with_sleep_node(start_server(), server_kind) for _ in range(2))
    workspace = make_workspace(silent.url, other.url, E3_COMFYUI__FAILOVER_SECONDS="1")
    submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=1.5)) for n in range(4)))
    agent = workspace.start()
    until(lambda: all(Stranger(silent.url).queue()), "one that runs and one that waits")
    with frozen(silent):
        wait_told(workspace, "server.down", server=silent.url, timeout=60)
        wait_told(workspace, "job.done", 4, timeout=60)
        jobs = check_promises(workspace, 4)
        assert {each.server for each in jobs} == {other.url}
        assert [each.retries_attempted for each in jobs] == [0] * 4
    wait_told(workspace, "server.up", server=silent.url)
    submit(workspace, *(job(f"later_{n}.yaml", coloured(200 + n, seconds=0.5)) for n in range(4)))
    wait_told(workspace, "job.done", 8)
    workspace.kill(agent)
    assert silent.url in {each.server for each in check_promises(workspace, 8)}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_job_being_sent_when_its_server_falls_silent_goes_to_another(
    start_server: Start, make_workspace: Make
) -> None:
    silent, other = start_server(), start_server()
    with proxied(silent) as proxy:
        workspace = make_workspace(proxy.it.url, E3_COMFYUI__FAILOVER_SECONDS="1")
        agent = workspace.start()
        submit(workspace, job("before.yaml", coloured(2)))  # from then on it is known what such jobs need
        until(lambda: workspace.job("before.yaml").status == "done", "a job that was rendered")
        with frozen(silent):
            submit(workspace, job("sent.yaml", coloured(1)))
            until(lambda: proxy.do(lambda it: it.requests.count("POST /prompt") > 1), "a post")
            workspace.kill(agent)
            workspace.servers.append(other.url)
            agent = workspace.start("--until-idle")
            assert wait_for_end(workspace, agent, 90) == 0
    check_promises(workspace, 2)
    assert workspace.job("sent.yaml").server == other.url


@pytest.mark.timeout(180)
def test_a_prompt_that_runs_too_long_is_interrupted_by_its_id_charged_and_tried_again(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url, E3_COMFYUI__TIMEOUT_SECONDS="1", E3_RETRY_LIMIT="1")
    submit(workspace, job("slow.yaml", coloured(1, seconds=60)), job("quick.yaml", coloured(2)))
    assert workspace.finish() == 1
    slow, quick = workspace.job("slow.yaml"), workspace.job("quick.yaml")
    assert (slow.status, slow.failure_class) == ("failed", "timeout")
    assert (slow.retries_attempted, slow.run_count) == (1, 2)
    assert (quick.status, quick.retries_attempted, quick.run_count) == ("done", 0, 1)
    assert [error["kind"] for error in errors_of(workspace, "slow.yaml")] == ["timeout", "timeout"]
    assert "1 s" in (slow.error_trace or "")
    for attempt in workspace.attempts("slow.yaml"):
        assert ending(server.url, attempt.prompt_id or "") == "execution_interrupted"
    assert len(told(workspace, "job.retry", failure_class="timeout")) == 1
    check_promises(workspace, 2, done=1)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_job_that_waits_long_at_the_server_does_not_time_out(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url, E3_COMFYUI__TIMEOUT_SECONDS="2")
    Stranger(server.url).post("/prompt", {"prompt": coloured(77, seconds=3.5)})
    until(lambda: running_at(server, 77), "the stranger's prompt")
    workspace.submit(2)
    agent = workspace.start("--until-idle")
    until(lambda: len(Stranger(server.url).queue()[1]) == 2, "both at the server")
    assert wait_for_end(workspace, agent) == 0
    jobs = check_promises(workspace, 2)
    assert [(each.run_count, each.retries_attempted) for each in jobs] == [(1, 0)] * 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_time_before_a_take_over_counts(start_server: Start, make_workspace: Make, server_kind: str) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url, E3_COMFYUI__TIMEOUT_SECONDS="4", E3_RETRY_LIMIT="0")
    submit(workspace, job("slow.yaml", coloured(1, seconds=60)))
    first = workspace.start()
    until(lambda: running_at(server, 1), "the prompt to run")
    workspace.wait_for(lambda: bool(workspace.attempts("slow.yaml")[0].running_seconds), "the note that it runs")
    workspace.kill(first)
    assert workspace.finish() == 1
    slow = workspace.job("slow.yaml")
    assert (slow.failure_class, slow.run_count) == ("timeout", 1)
    (attempt,) = workspace.attempts("slow.yaml")
    messages = Stranger(server.url).get(f"/history/{attempt.prompt_id}")[attempt.prompt_id]["status"]["messages"]
    began, ended = (messages[n][1]["timestamp"] / 1000 for n in (0, -1))
    # From the start of the execution, with the time since the last note and until the second agent sees it.
    assert 4 <= ended - began < 8


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_job_taken_over_while_it_waits_does_not_time_out(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url, E3_COMFYUI__TIMEOUT_SECONDS="2")
    Stranger(server.url).post("/prompt", {"prompt": coloured(77, seconds=3.5)})
    until(lambda: running_at(server, 77), "the stranger's prompt")
    workspace.submit(2)
    first = workspace.start()
    until(lambda: len(Stranger(server.url).queue()[1]) == 2, "both at the server")
    workspace.kill(first)
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 2)
    assert [(each.run_count, each.retries_attempted) for each in jobs] == [(1, 0)] * 2
