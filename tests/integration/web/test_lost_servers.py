"""A job at a server that does not answer says on every screen that it waits for it; a stuck server says so, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.server_states import LostServer, StuckPrompt
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store import operations as ops
from comfyui_agent.web.html import environment
from comfyui_agent.web.pages.job import _sentence
from comfyui_agent.web.pages.overview import queue_sentence
from support.stores import broken
from support.web import SERVER, Served, served

SINCE = "2026-11-15 12:03:11.000"
STATS = SystemStats("0.7.0", "", "", "", 1, 1, ())


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as found:
        yield found


async def test_every_screen_says_which_server_a_job_waits_for_and_not_that_it_renders(house: Served) -> None:
    job = await house.job("fox.yaml")
    (leased,) = await house.lease()
    await house.store.run(ops.wait_for_server, leased.lease, broken(FailureClass.SERVER_LOST, "it waits"), 60.0, 0.0)
    shown = (await house.get(f"/api/v1/jobs/{job.id}")).value
    assert (shown["status"], shown["failure_class"]) == ("pending", "server_lost")
    since = f"gpu:8188, which has not answered since {shown['lost_at'][:19]} UTC"
    screen = (await house.get(f"/jobs/{job.id}")).text
    assert f"Pending, with priority 50. It waits for {since}" in screen
    assert "Its server stopped answering" in screen
    assert "Start that ComfyUI" in screen
    queue = (await house.get("/queue")).text
    assert "Waits for a server" in queue
    assert since in queue
    overview = (await house.get("/")).text
    assert "wait" in overview
    assert (await house.store.run(ops.read_overview)).lost == [LostServer(SERVER, 1, shown["lost_at"])]


async def test_the_first_sentence_names_servers_that_do_not_answer(house: Served) -> None:
    await house.job("fox.yaml")
    found = replace(await house.store.run(ops.read_overview), lost=[LostServer(SERVER, 1, SINCE)])
    down, up = ServerReport("gpu:8188", SERVER, error="refused"), ServerReport("b", "http://b", STATS, 0, 0)
    assert "1 wait for a server (gpu:8188 has not answered since 12:03:11 UTC)" in queue_sentence(found, [down], 1)
    assert "1 waits for gpu:8188 (no answer since 12:03:11 UTC)" in queue_sentence(found, [down, up], 1)


async def test_a_job_whose_server_has_just_gone_says_that_it_waits_for_it(house: Served) -> None:
    await house.job("fox.yaml")
    (leased,) = await house.lease()
    job = await house.store.run(ops.find_job_by_id, leased.lease.job_id)
    assert job is not None
    live = LiveRun(job.id, job.config_name, None, SERVER, "away")
    assert _sentence(job, live, "") == "Waits for gpu:8188, which does not answer."


def test_a_server_is_stuck_while_it_has_the_prompt_that_does_not_end() -> None:
    report = ServerReport("gpu:8188", SERVER, STATS, 1, 0, prompts=frozenset({"p1"}))
    stuck = [StuckPrompt("p1", SERVER, "no sign of life", SINCE)]
    judged = report.judged({}, stuck)
    assert (judged.state, judged.as_json()["stuck_since"]) == ("stuck", SINCE)
    shown = (
        environment()
        .get_template("servers_list.html")
        .render(
            id="servers",
            servers=[(judged, [])],
            uses={},
            processes={},
            logs={},
            stuck_remedy="Restart it",
            is_admin=False,
        )
    )
    assert "Stuck since 2026-11-15 12:03:11 UTC" in shown
    assert replace(report, prompts=frozenset()).judged({}, stuck).state == "up"
    assert report.judged({}, [replace(stuck[0], server="http://other")]).state == "up"
