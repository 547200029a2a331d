"""Books under way: one page at a time where that is asked for, pages that fail, agents that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from comfyui_agent.domain.jobs import Attempt, Job
from comfyui_agent.domain.states import JobStatus
from support.agents import AgentWorkspace, colour_of, renders, server_queue, sized_picture
from support.batches import batch_of, members, queued_id, refusal, write_graph, write_yaml
from support.breakage import coloured
from support.sampling import some
from support.servers import simulator
from support.stores import in_the_shell
from support.workspaces import call_e3, new_workspace

Interval = tuple[float, float]
SERIAL = {"COMFY_ALLOW_PARALLEL_PAGES": "false"}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[AgentWorkspace]:
    """A workspace in front of two simulators; its workflow `slow` takes a while, and `broken` never gets anywhere."""
    servers = [simulator(tmp_path / f"simulator-{number}") for number in range(2)]
    for server in servers:
        server.launch()
    workspace = new_workspace(tmp_path / "shelf", servers[0].url)
    workspace.servers = [server.url for server in servers]
    write_graph(workspace, "slow", coloured(0, seconds=0.3))
    broken = sized_picture()
    broken["2"]["inputs"]["more"] = ["1", 0]  # which the node does not survive
    write_graph(workspace, "broken", broken)
    try:
        for server in servers:
            server.wait_until_up()
        yield workspace
    finally:
        workspace.stop_all()
        for server in servers:
            server.kill()


def create(
    workspace: AgentWorkspace,
    *pages: dict[str, Any],
    book_id: str = "winter",
    workflow: str = "slow",
    **environment: str,
) -> None:
    """Queue a book."""
    path = write_yaml(workspace.root / "book.yaml", {"book_id": book_id, "workflow": workflow, "pages": list(pages)})
    with mock.patch.dict(os.environ, environment):
        assert queued_id(call_e3("book", "create", str(path), cwd=workspace.root)) == book_id


def colours(*numbers: int) -> list[dict[str, Any]]:
    return [{"inputs": {"color": number}} for number in numbers]


def moment(text: str | None) -> float:
    assert text is not None
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def attempts_of(workspace: AgentWorkspace) -> list[tuple[Job, Attempt]]:
    """Every run of every page, in the order in which they began."""
    found = [(job, run) for job in members(workspace, "winter") for run in workspace.attempts(job.config_name)]
    return sorted(found, key=lambda each: (moment(each[1].started_at), each[1].id))


def kept_open(workspace: AgentWorkspace) -> list[Interval]:
    """When pages were at a server, as the memory has it."""
    return [(moment(run.started_at), moment(run.ended_at)) for _, run in attempts_of(workspace)]


def rendered(workspace: AgentWorkspace) -> list[Interval]:
    """When pages were at a server, as the servers have it: from the post to the end."""
    found = []
    for url in workspace.servers:
        with urllib.request.urlopen(f"{url}/history", timeout=10) as answer:
            history = json.load(answer)
        for entry in history.values():
            ended = [facts["timestamp"] for name, facts in entry["status"]["messages"] if name == "execution_success"]
            found.append((entry["prompt"][3]["create_time"] / 1000, ended[0] / 1000))
    return sorted(found)


def overlap(intervals: list[Interval]) -> bool:
    return any(later[0] < earlier[1] for earlier, later in pairwise(intervals))


# One page at a time.


@pytest.mark.slow
def test_usually_pages_are_rendered_side_by_side(shelf: AgentWorkspace) -> None:
    create(shelf, *colours(1, 2, 3, 4))
    assert shelf.finish() == 0
    assert overlap(kept_open(shelf))
    assert overlap(rendered(shelf))
    assert {run.server for _, run in attempts_of(shelf)} == set(shelf.servers)


@pytest.mark.parametrize("where", some(["book", "agent"], 2))
def test_one_page_at_a_time_over_all_servers_and_agents(shelf: AgentWorkspace, where: str) -> None:
    """Whether it was said when the book was made, or to the agents that work it off."""
    create(shelf, *colours(1, 2, 3, 4, 5), **(SERIAL if where == "book" else {}))
    if where == "agent":
        shelf.environment |= SERIAL
    shelf.start("--until-idle")
    assert shelf.finish() == 0
    assert batch_of(shelf, "winter").done == 5
    assert not overlap(kept_open(shelf)), kept_open(shelf)
    assert not overlap(rendered(shelf)), rendered(shelf)
    assert [job.batch_index for job, _ in attempts_of(shelf)] == [0, 1, 2, 3, 4]
    assert all(job.run_count == 1 for job in members(shelf, "winter"))


@pytest.mark.slow
def test_two_such_books_are_rendered_side_by_side(shelf: AgentWorkspace) -> None:
    create(shelf, *colours(1, 2, 3), **SERIAL)
    create(shelf, *colours(4, 5, 6), book_id="other", **SERIAL)
    assert shelf.finish() == 0
    assert not overlap(kept_open(shelf))
    assert overlap(rendered(shelf))


@pytest.mark.slow
def test_a_page_that_waits_for_its_retry_does_not_hold_up_the_next(shelf: AgentWorkspace) -> None:
    pages = [{"inputs": {"color": -1}}, *colours(2, 3, 4)]
    create(shelf, *pages, workflow="picture", COMFY_MAX_RETRIES="1", **SERIAL)
    agent = subprocess.run(
        [sys.executable, "-m", "comfyui_agent", "execute", "--until-idle", "-C", str(shelf.root)],
        env={**os.environ, "COMFY_RETRY_BACKOFF_SEC": "2.5", "E3_POLL_INTERVAL_MS": "250"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert agent.returncode == 1
    runs = attempts_of(shelf)
    assert [job.batch_index for job, _ in runs] == [0, 1, 2, 3, 0]
    assert not overlap(kept_open(shelf))
    (_, first), *_, (_, second) = runs
    assert 2.0 <= moment(second.started_at) - moment(first.ended_at) < 12, "usually 15 s, here 2.5"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["book", "agent"])
def test_a_killed_agent_leaves_the_turn_to_the_next(shelf: AgentWorkspace, where: str) -> None:
    write_graph(shelf, "slow", coloured(0, seconds=1))
    create(shelf, *colours(1, 2, 3), **(SERIAL if where == "book" else {}))
    if where == "agent":
        shelf.environment |= SERIAL
    agent = shelf.start()
    shelf.wait_for(lambda: any(server_queue(url).running for url in shelf.servers), "a page that renders")
    shelf.kill(agent)
    assert shelf.finish() == 0
    assert batch_of(shelf, "winter").done == 3
    assert not overlap(rendered(shelf)), rendered(shelf)
    assert renders([server_folder(shelf, number) for number in range(2)]) == 3
    assert all(job.run_count == 1 for job in members(shelf, "winter"))


def server_folder(workspace: AgentWorkspace, number: int) -> Path:
    return workspace.root.parent / f"simulator-{number}" / "output"


# Pages that fail.


@pytest.mark.parametrize(("limit", "runs"), [("1", 2), pytest.param("0", 1, marks=pytest.mark.slow)])
def test_a_page_whose_retries_are_spent_needs_regeneration(shelf: AgentWorkspace, limit: str, runs: int) -> None:
    pages = [{"inputs": {"color": 1}}, {"inputs": {"color": 2}, "workflow": "broken"}]
    create(shelf, *pages, workflow="picture", COMFY_MAX_RETRIES=limit)
    assert shelf.finish(E3_RETRY_LIMIT="9") == 1
    good, bad = members(shelf, "winter")
    assert (good.status, good.needs_regeneration) == (JobStatus.DONE, False)
    assert (bad.status, bad.failure_class, bad.run_count) == (JobStatus.FAILED, "execution", runs)
    assert (bad.retry_limit, bad.retries_attempted, bad.needs_regeneration) == (int(limit), runs - 1, True)
    (row,) = in_the_shell(shelf.database, "SELECT * FROM book_pages WHERE page = 2")
    assert (row["status"], row["retry_count"], row["needs_regeneration"]) == ("Needs attention", runs - 1, 1)
    errors = json.loads(row["image_error"])
    assert [error["kind"] for error in errors] == ["execution"] * runs
    assert all("unexpected keyword argument" in error["message"] for error in errors)
    told = [(event["event"], event["page"]) for event in shelf.events() if event["event"].startswith("book.page.")]
    assert told == [("book.page.retry", 2)] * (runs - 1) + [("book.page.failed", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "runs"), [("5", 2), ("0", 1)])
def test_a_page_that_the_server_refuses_twice_needs_regeneration(shelf: AgentWorkspace, limit: str, runs: int) -> None:
    create(shelf, {"inputs": {"color": -1}}, workflow="picture", COMFY_MAX_RETRIES=limit)
    assert shelf.finish() == 1
    (page,) = members(shelf, "winter")
    assert (page.failure_class, page.run_count, page.needs_regeneration) == ("invalid", runs, True)
    (row,) = in_the_shell(shelf.database, "SELECT image_error FROM book_pages")
    assert len(json.loads(row["image_error"])) == runs


@pytest.mark.slow
def test_failed_pages_made_anew_have_all_their_retries_again(shelf: AgentWorkspace) -> None:
    create(
        shelf, {"inputs": {"color": 2}, "workflow": "broken"}, *colours(1), workflow="picture", COMFY_MAX_RETRIES="1"
    )
    assert shelf.finish() == 1
    assert call_e3("book", "regenerate", "winter", cwd=shelf.root).stdout == "○ winter: page 1 submitted again\n"
    assert shelf.finish() == 1
    bad, good = members(shelf, "winter")
    assert (bad.run_count, bad.retries_attempted, bad.needs_regeneration) == (4, 1, True)
    assert good.run_count == 1
    found = batch_of(shelf, "winter")
    assert (found.status.value, found.generation, found.failed) == ("complete", 2, 1)
    rows = in_the_shell(shelf.database, "SELECT image_error FROM book_pages ORDER BY page")
    errors = [json.loads(row["image_error"]) for row in rows]
    runs = [run.prompt_id for run in shelf.attempts(bad.config_name)]
    assert len(runs) == 4
    assert [[error["prompt_id"] for error in each] for each in errors] == [runs, []], "all failures, oldest first"
    write_graph(shelf, "broken", sized_picture())  # mended, and read again because something is changed
    assert call_e3("book", "regenerate", "winter", "--set", "color=9", cwd=shelf.root).returncode == 0
    assert shelf.finish() == 0
    assert colour_of(shelf.root / "jobs/finished/image/winter/page_001.png") == 9
    assert batch_of(shelf, "winter").generation == 3


@pytest.mark.slow
def test_a_page_is_not_made_anew_while_it_renders(shelf: AgentWorkspace) -> None:
    write_graph(shelf, "slow", coloured(0, seconds=30))
    create(shelf, *colours(1, 2, 3), **SERIAL)
    shelf.start()
    shelf.wait_for(lambda: any(server_queue(url).running for url in shelf.servers), "a page that renders")
    answer = call_e3("book", "regenerate", "winter", "--page", "1", "--set", "color=9", cwd=shelf.root)
    assert refusal(answer, 1).startswith("page 1 of winter is rendering: ")
    answer = call_e3("book", "regenerate", "winter", "--page", "2", cwd=shelf.root)
    assert refusal(answer, 1).startswith("page 2 of winter waits already: ")
    answer = call_e3("book", "regenerate", "winter", cwd=shelf.root)
    assert refusal(answer, 1).startswith("no page of winter has failed, and 3 are still to come: ")
    first, *_ = members(shelf, "winter")
    assert (first.status, first.run_count) == (JobStatus.PROCESSING, 1)
    assert json.loads(first.inputs or "") == {"1.color": 1}
    assert batch_of(shelf, "winter").generation == 1
