"""Row 14: a stranger clears the history or the queue while jobs wait. Results are looked for, else rendered again."""

from __future__ import annotations

import pytest

from support.agents import check_promises, renders
from support.breakage import (
    Make,
    Start,
    Stranger,
    again_and_again,
    coloured,
    job,
    outcomes_of,
    submit,
    until,
    with_sleep_node,
)

JOBS = 30


@pytest.mark.slow
def test_a_history_that_is_cleared_all_the_time_costs_no_render(start_server: Start, make_workspace: Make) -> None:
    server = start_server("--render-seconds", "0.03")
    workspace = make_workspace(server.url)
    workspace.submit(JOBS)
    with again_and_again(lambda: Stranger(server.url).post("/history", {"clear": True}), pause=0.005):
        assert workspace.finish() == 0
    jobs = check_promises(workspace, JOBS)
    assert [(each.run_count, each.retries_attempted) for each in jobs] == [(1, 0)] * JOBS
    assert renders([server.output_dir]) == JOBS


@pytest.mark.slow
def test_a_history_cleared_while_no_agent_looked_costs_no_render(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = start_server("--render-seconds", "0.3")
    workspace = make_workspace(server.url)
    workspace.submit(4)
    agent = workspace.start()
    until(lambda: any(Stranger(server.url).queue()), "a prompt at the server")
    workspace.kill(agent)
    until(lambda: not any(Stranger(server.url).queue()), "an idle server")
    before = renders([server.output_dir])
    assert before
    Stranger(server.url).post("/history", {"clear": True})
    assert workspace.finish() == 0
    jobs = check_promises(workspace, 4)
    assert [(each.run_count, each.retries_attempted) for each in jobs] == [(1, 0)] * 4
    assert renders([server.output_dir]) == 4


def test_jobs_deleted_from_the_queue_by_a_stranger_run_again_uncharged(
    start_server: Start, make_workspace: Make, server_kind: str
) -> None:
    server = with_sleep_node(start_server(), server_kind)
    workspace = make_workspace(server.url)
    submit(workspace, *(job(f"job_{n}.yaml", coloured(n + 1, seconds=0.3)) for n in range(6)))
    stranger = Stranger(server.url)
    cleared: set[str] = set()

    def clear() -> None:
        waiting = {prompt.prompt_id for prompt in stranger.queue()[1]}
        if waiting and not cleared:
            stranger.post("/queue", {"clear": True})
            cleared.update(waiting)

    with again_and_again(clear):
        assert workspace.finish() == 0
    assert cleared
    jobs = check_promises(workspace, 6)
    assert [each.retries_attempted for each in jobs] == [0] * 6
    assert renders([server.output_dir]) == 6
    again = [each.config_name for each in jobs if each.run_count == 2]
    assert again
    assert {outcome for name in again for outcome in outcomes_of(workspace, name)} == {"server_lost", "done"}
