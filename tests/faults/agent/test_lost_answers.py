"""Row 3: answers to posts get lost while an agent works. Each prompt is looked up, none is posted twice."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.fault_proxy import Fault, Garbage, Late, Refuse, Reset, Silence
from support.agents import both_databases, check_promises, renders
from support.breakage import Make, Start, prompts_posted, proxied
from support.sampling import some

JOBS = 20
POST = "POST /prompt"


@both_databases
@pytest.mark.parametrize(
    ("fault", "times"),
    some(
        [
            pytest.param(Reset(), 10, id="reset-before-the-answer"),
            pytest.param(Reset(after=190), 10, id="reset-in-the-body"),
            pytest.param(Garbage(), 10, id="garbage"),
            pytest.param(Garbage(after=190), 10, id="garbage-in-the-body"),
            pytest.param(Late(0.3), 2, id="arrives-after-its-sender-gave-up"),
            pytest.param(Silence(), 2, id="never-answered", marks=pytest.mark.slow),
        ],
        10,
    ),
)
def test_jobs_whose_posts_are_never_answered_are_rendered_once(
    start_server: Start, make_workspace: Make, fault: Fault, times: int
) -> None:
    server = start_server()
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        workspace.submit(JOBS)
        proxy.do(lambda it: it.inject(fault, on=POST, times=times))
        assert workspace.finish(timeout=100) == 0
        jobs = check_promises(workspace, JOBS)
        assert renders([server.output_dir]) == JOBS
        assert [job.retries_attempted for job in jobs] == [0] * JOBS
        assert [job.run_count for job in jobs] == [1] * JOBS
        assert prompts_posted(proxy) == JOBS


@pytest.mark.slow
def test_posts_that_never_arrive_are_made_again_under_new_ids(start_server: Start, make_workspace: Make) -> None:
    server = start_server()
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        workspace.submit(JOBS)
        proxy.do(lambda it: it.inject(Refuse(), on=POST, times=2))
        assert workspace.finish() == 0
        jobs = check_promises(workspace, JOBS)
        assert renders([server.output_dir]) == JOBS
        assert [job.retries_attempted for job in jobs] == [0] * JOBS
        assert prompts_posted(proxy) == JOBS + 2
        ids = [attempt.prompt_id for job in jobs for attempt in workspace.attempts(job.config_name)]
        assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_an_agent_killed_while_answers_are_lost_leaves_nothing_to_render_twice(
    start_server: Start, make_workspace: Make
) -> None:
    server = start_server("--render-seconds", "0.05")
    with proxied(server) as proxy:
        workspace = make_workspace(proxy.it.url)
        workspace.submit(JOBS)
        proxy.do(lambda it: it.inject(Reset(), on=POST, times=None))
        for share in (5, 15):
            agent = workspace.start()
            workspace.wait_done(share)
            workspace.kill(agent)
        assert workspace.finish() == 0
        jobs = check_promises(workspace, JOBS)
        assert renders([server.output_dir]) == JOBS
        assert [job.retries_attempted for job in jobs] == [0] * JOBS
