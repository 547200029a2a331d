"""The screens of batches and books, built from a real database: what is on them, and what of it is rendered again."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from comfyui_agent.access.gate import Caller
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job, NewJob
from comfyui_agent.domain.tokens import Role, Token
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.forecasts import Forecasts
from comfyui_agent.usecases.prompts import Prompts
from comfyui_agent.web.cell_facts import CellFacts
from comfyui_agent.web.context import Context
from comfyui_agent.web.html import render_fragment, render_page
from comfyui_agent.web.outputs import Outputs
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View
from comfyui_agent.web.site import view_of
from comfyui_agent.web.submissions import Submissions
from support.store_batches import fall, land, lease_of
from support.stores import SERVER, SqliteDatabase

EVIL = "<script>alert('x')</script>\"&"


@dataclass
class Fleet:
    """What agents have at work."""

    runs: list[LiveRun] = field(default_factory=list)
    workers: int = 1

    async def live(self) -> list[LiveRun]:
        return self.runs

    async def agents(self) -> int:
        return self.workers

    async def reports(self) -> list[Any]:
        return []

    async def processes(self) -> dict[str, Any]:
        return {}


SHARED = Token(1, "studio", Role.USER, "hash", "2026-01-01 00:00:00.000", is_shared=True)


@dataclass
class House:
    """A database with a page in front of it."""

    store: Store
    fleet: Fleet
    context: Context

    async def look(self, page: str, role: Role = Role.ADMIN) -> tuple[Screen, View]:
        address, view = view_of(self.context, Caller(role, SHARED), page)
        return await address.build(view), view

    async def page(self, page: str, role: Role = Role.ADMIN) -> str:
        return render_page(*await self.look(page, role))

    async def parts(self, page: str) -> dict[str, Fragment]:
        screen, _ = await self.look(page)
        return {part.id: part for part in screen.fragments}

    async def part(self, page: str, name: str, role: Role = Role.ADMIN) -> str:
        screen, view = await self.look(page, role)
        return render_fragment(next(part for part in screen.fragments if part.id == name), view)

    async def sweep(self, axes: dict[str, list[Any]], batch_id: str = "fox_1", name: str = "fox") -> list[Job]:
        said = [{"name": each, "places": [each], "values": values} for each, values in axes.items()]
        metadata = {"axes": said, "mode": "matrix", "workflow": "wf"}
        combinations: list[dict[str, Any]] = [{}]
        for each, values in axes.items():
            combinations = [{**found, each: value} for found in combinations for value in values]
        jobs = [
            NewJob(f"{batch_id}_{index}", "T2I", "wf", metadata={"combination": values}, inputs={"1.a": index})
            for index, values in enumerate(combinations)
        ]
        return await self._queue(NewBatch(batch_id, name, BatchKind.SWEEP, metadata), jobs)

    async def book(self, pages: int, batch_id: str = "tales") -> list[Job]:
        jobs = [
            NewJob(f"{batch_id}_{page}", "T2I", "wf", metadata={"page": page, "inputs": {"prompt": f"prompt {page}"}})
            for page in range(1, pages + 1)
        ]
        return await self._queue(NewBatch(batch_id, "Tales", BatchKind.BOOK, {"title": "Winter tales"}), jobs)

    async def _queue(self, batch: NewBatch, jobs: list[NewJob]) -> list[Job]:
        await self.store.run(ops.create_batch, batch, None)
        facts = [{**vars(job), "batch_id": batch.id, "batch_index": index} for index, job in enumerate(jobs)]
        await self.store.run(ops.fill_batch, [NewJob(**each) for each in facts])
        await self.store.run(ops.open_batch, batch.id)
        return [job async for job in ops.batch_members(self.store, batch.id)]

    async def render(self, *, done: int = 0, failed: int = 0) -> None:
        """The next members end so."""
        await land(self.store, await lease_of(self.store, None, most=done) if done else [])
        await fall(self.store, await lease_of(self.store, None, most=failed) if failed else [])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    database = SqliteDatabase(tmp_path)
    store = database.open()
    workspace = Workspace(tmp_path, Settings())
    fleet = Fleet()
    forecasts, outputs = Forecasts(store, workspace), Outputs(workspace)
    facts = {"forecasts": forecasts, "outputs": outputs, "submissions": Submissions(store, workspace)}
    facts["cells"] = CellFacts(Prompts(store), outputs)
    context = SimpleNamespace(store=store, workspace=workspace, fleet=fleet, **facts)
    yield House(store, fleet, cast("Context", context))
    await database.close()


# The grid.


async def test_the_grid_has_a_cell_for_every_member_and_says_what_each_is(house: House) -> None:
    await house.sweep({"cfg": [4, 8], "seed": [1, 2, 3]})
    await house.render(done=2, failed=1)
    page = await house.page("/batches/fox_1")
    for words in ("cfg = 4", "cfg = 8", "seed = 1", "seed = 3", "cfg \\ seed", "2 of 6 done, 1 needs attention"):
        assert words in page, words
    assert "is-done" in await house.part("/batches/fox_1", "cell-0")
    assert "is-failed" in await house.part("/batches/fox_1", "cell-2")
    assert "Retry" in await house.part("/batches/fox_1", "cell-2")
    assert "is-pending" in await house.part("/batches/fox_1", "cell-5")


async def test_only_cells_that_changed_are_rendered_again(house: House) -> None:
    jobs = await house.sweep({"cfg": [4, 8], "seed": [1, 2, 3]})
    before = await house.parts("/batches/fox_1")
    await house.render(done=1)
    house.fleet.runs = [LiveRun(jobs[3].id, jobs[3].config_name, "fox_1", SERVER, "rendering", "KSampler", 3, 20)]
    after = await house.parts("/batches/fox_1")
    cells = [name for name in after if name.startswith("cell-")]
    assert len(cells) == 6
    assert [name for name in cells if before[name].key != after[name].key] == ["cell-0", "cell-3"]
    assert all(after[name].key is not None for name in cells)


async def test_a_step_and_a_preview_make_a_cell_look_different(house: House) -> None:
    (job,) = await house.sweep({"seed": [1]})
    seen = set()
    for step, preview in ((1, ""), (2, ""), (2, "a"), (2, "b"), (2, "b")):
        house.fleet.runs = [LiveRun(job.id, "", "fox_1", SERVER, "rendering", step=step, steps=9, preview=preview)]
        seen.add((await house.parts("/batches/fox_1"))["cell-0"].key)
    assert len(seen) == 4


async def test_a_member_that_is_gone_leaves_its_place_empty(house: House) -> None:
    jobs = await house.sweep({"cfg": [4, 8], "seed": [1, 2]})
    await house.store.driver.write(lambda session: session.run("discard_members", id="fox_1", most=1))
    gone = {job.id for job in jobs} - {job.id async for job in ops.batch_members(house.store, "fox_1")}
    place = next(job.batch_index for job in jobs if job.id in gone)
    assert "No job" in await house.part("/batches/fox_1", f"cell-{place}")


async def test_members_in_one_state_are_a_list_with_a_link_of_its_own(house: House) -> None:
    await house.sweep({"seed": [1, 2, 3, 4]})
    await house.render(done=1, failed=2)
    listed = await house.part("/batches/fox_1?status=attention", "batch-list")
    assert listed.count("<figure") == 2
    assert "seed = 2" in listed
    assert "/batches/fox_1?status=attention" in await house.part("/batches/fox_1", "batch-tabs")


async def test_what_was_cancelled_or_dismissed_is_in_no_count_and_has_a_list_of_its_own(house: House) -> None:
    await house.sweep({"seed": [1, 2, 3, 4]})
    await house.render(done=1, failed=2)
    first = (await house.store.run(ops.list_jobs, attention=True))[0]
    await house.store.run(ops.dismiss_jobs, [first.id])
    await ops.cancel_batch(house.store, "fox_1")
    tabs = await house.part("/batches/fox_1", "batch-tabs")
    assert "△ Needs attention 1<" in tabs
    assert "◌ Cancelled or dismissed 2<" in tabs
    assert "<svg" not in tabs  # a bar is for what moves
    listed = await house.part("/batches/fox_1?status=aside", "batch-list")
    assert (listed.count("<figure"), listed.count("is-aside")) == (2, 2)
    actions = await house.part("/batches/fox_1", "batch-actions")
    assert "Retry 1 failed job of" in actions
    assert "Dismiss 1 failed job of" in actions


@pytest.mark.parametrize(
    "page", ["/batches/none", "/batches/fox_1?status=broken", "/batches/fox_1?status=done&cursor=x"]
)
async def test_what_is_not_there_is_said(house: House, page: str) -> None:
    await house.sweep({"seed": [1]})
    with pytest.raises(NoScreen):
        await house.look(page)


# Actions.


async def test_actions_ask_with_the_count_and_only_admins_pause(house: House) -> None:
    await house.sweep({"seed": [1, 2, 3, 4, 5]})
    await house.render(done=1, failed=2)
    actions = await house.part("/batches/fox_1", "batch-actions")
    assert "Retry 2 failed" in actions
    assert "Cancel 2 jobs of fox that have not ended?" in actions
    assert "/api/v1/batches/fox_1/pause" in actions
    assert "/pause" not in await house.part("/batches/fox_1", "batch-actions", Role.USER)


async def test_what_was_cancelled_is_not_counted_as_failed(house: House) -> None:
    await house.sweep({"seed": [1, 2, 3]})
    await house.render(failed=1)
    await ops.cancel_batch(house.store, "fox_1")
    assert "Retry 1 failed" in await house.part("/batches/fox_1", "batch-actions")
    await house.store.run(ops.retry_batch, "fox_1")
    await ops.cancel_batch(house.store, "fox_1")
    assert "Retry 3 cancelled" in await house.part("/batches/fox_1", "batch-actions")


async def test_nobody_at_work_is_said_with_what_to_do(house: House) -> None:
    await house.sweep({"seed": [1, 2]})
    assert (await house.look("/batches/fox_1"))[0].sentence == "0 of 2 done."
    house.fleet.workers = 0
    words = "0 of 2 done. No agent works here: start one with e3 run."
    assert (await house.look("/batches/fox_1"))[0].sentence == words


# Comparing.


async def test_two_results_are_compared_by_a_link_that_names_what_is_different(house: House) -> None:
    jobs = await house.sweep({"cfg": [4, 8], "seed": [1, 2], "steps": [9]})
    await house.render(done=4)
    pair = f"/batches/fox_1?compare={jobs[0].id},{jobs[3].id}"
    part = (await house.parts(pair))["compare"]
    assert part.values["differing"] == ["cfg", "seed"]
    shown = await house.part(pair, "compare")
    assert re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", shown) == [
        *(("cfg", "4"), ("seed", "1")),
        *(("cfg", "8"), ("seed", "2")),
        ("steps", "9"),
    ]
    assert f'href="/batches/fox_1?compare={jobs[3].id},{jobs[0].id}">Swap' in shown
    assert (await house.page(pair)).count(" checked>") == 2


async def test_what_is_of_another_batch_or_of_none_is_not_compared(house: House) -> None:
    await house.sweep({"seed": [1, 2]})
    (other,) = await house.sweep({"seed": [1]}, "other_1")
    for asked in (f"{other.id},99999", "x,y", "-1", "fox_1_0", "1" * 40, EVIL):
        assert (await house.parts(f"/batches/fox_1?compare={asked}"))["compare"].values["sides"] == []


async def test_long_texts_that_differ_at_their_end_are_different(house: House) -> None:
    jobs = await house.sweep({"prompt": ["a" * 5000 + "b", "a" * 5000 + "c"]})
    part = (await house.parts(f"/batches/fox_1?compare={jobs[0].id},{jobs[1].id}"))["compare"]
    assert part.values["differing"] == ["prompt"]


# Books.


async def test_a_page_that_failed_says_why_and_offers_to_be_made_again(house: House) -> None:
    await house.book(3)
    await house.render(done=1, failed=1)
    card = await house.part("/books/tales", "page-2", Role.USER)
    for words in ("Page 2", "Needs attention", "What you can do", "Regenerate page", "/books/tales/regenerate"):
        assert words in card, words
    assert json.dumps({"pages": [2]}) in card
    assert "Regenerate page" not in await house.part("/books/tales", "page-1", Role.USER)
    assert "Retry all failed pages" in await house.part("/books/tales", "book-actions", Role.USER)


async def test_a_done_page_stays_visible_while_it_is_made_anew(house: House) -> None:
    jobs = await house.book(1)
    await house.render(done=1)
    assert "page-before" not in await house.part("/books/tales", "page-1")
    await house.store.run(ops.resubmit_jobs, [(jobs[0].id, None)])
    card = await house.part("/books/tales", "page-1")
    assert "page-before" in card
    assert "Pending" in card


async def test_cancelled_pages_are_left_alone_by_retry_all(house: House) -> None:
    await house.book(2)
    await ops.cancel_batch(house.store, "tales")
    assert "Retry all failed pages" not in await house.part("/books/tales", "book-actions")


async def test_a_long_book_is_shown_in_parts(house: House) -> None:
    await house.book(130)
    numbers = [name for name in await house.parts("/books/tales?from=61") if name.startswith("page-")]
    assert numbers == [f"page-{number}" for number in range(61, 121)]
    assert "Pages 61 to 120 of 130" in await house.page("/books/tales?from=61")


async def test_a_sweep_is_no_book(house: House) -> None:
    await house.sweep({"seed": [1]})
    with pytest.raises(NoScreen):
        await house.look("/books/fox_1")


# Lists, and the admin's view.


async def test_batches_come_newest_first_each_with_its_sentence_and_by_kind(house: House) -> None:
    await house.sweep({"seed": [1, 2]})
    await house.render(done=2)
    await house.book(2)
    page = await house.page("/batches")
    assert page.index("Tales") < page.index("2 of 2 done, complete")
    assert "Tales" not in await house.page("/batches?kind=sweep")
    with pytest.raises(NoScreen):
        await house.look("/batches?kind=films")


async def test_a_list_is_rendered_again_only_when_others_are_in_it(house: House) -> None:
    await house.sweep({"seed": [1, 2]})
    before = await house.parts("/batches")
    await house.render(done=1)
    after = await house.parts("/batches")
    assert before["batches"].key == after["batches"].key
    assert before["batch-0"].key != after["batch-0"].key
    await house.book(1)
    assert (await house.parts("/batches"))["batches"].key != after["batches"].key


async def test_an_admin_sees_every_error_and_no_token(house: House) -> None:
    await house.book(2)
    await house.render(failed=1)
    await house.store.run(ops.create_token, "anna", Role.USER, "0123456789abcdef")
    page = await house.page("/admin")
    for words in ("1 job needs attention", "All errors as JSON", "&#34;outcome&#34;", "anna"):
        assert words in page, words
    assert "0123456789abcdef" not in page
    book = await house.page("/admin/books/tales")
    for words in ("Prompt ids", "All errors (1)", "/admin/books/tales/regenerate-page/2", "prompt 2"):
        assert words in book, words


async def test_alerts_of_the_last_day_are_shown_the_newest_first(house: House) -> None:
    await house.sweep({"seed": [1]})
    await house.store.run(ops.add_event, Event(EventName.ALERT_DISK, message="the disk is full"))
    assert [alert.message for alert in await house.store.run(ops.alerts, 3600)] == ["the disk is full"]
    await house.store.run(ops.add_event, Event(EventName.SERVER_DOWN, server=SERVER, message="no alert"))
    await house.store.run(ops.add_event, Event(EventName.ALERT_SERVER, server=SERVER, message="it is gone"))
    assert [alert.message for alert in await house.store.run(ops.alerts, 3600)] == ["it is gone", "the disk is full"]
    assert "2 alerts in the last day" in await house.page("/admin")


async def test_script_in_a_text_is_shown_and_not_run(house: House) -> None:
    jobs = await house.sweep({EVIL: [EVIL, "b"], "seed": [1, 2]}, "evil_1", EVIL)
    await house.render(done=1, failed=1)
    addresses = ["/batches", "/batches/evil_1", f"/batches/evil_1?compare={jobs[0].id},{jobs[1].id}", "/admin"]
    for address in [*addresses, "/batches/evil_1?status=failed", f"/batches/evil_1?x={EVIL}&page={EVIL}"]:
        page = await house.page(address)
        assert "<script>alert" not in page, address
    assert "&lt;script&gt;" in await house.page("/batches/evil_1")


# The overview.


async def test_a_target_is_drawn_only_where_it_is_set(house: House) -> None:
    assert (await house.parts("/"))["overview-pace"].values["pace"]["target"] == 0.0
    settings = Settings.model_validate({"sla": {"images_per_minute": 12}})
    house.context.workspace = Workspace(house.context.workspace.root, settings)
    assert (await house.parts("/"))["overview-pace"].values["pace"]["target"] == 12.0


async def test_what_is_paused_does_not_keep_the_last_work_from_leading(house: House) -> None:
    await house.sweep({"seed": [1, 2, 3]})
    await house.render(done=1, failed=1)
    assert "1 of 3 done" in (await house.look("/"))[0].sentence
    await house.store.run(ops.pause_batch, "fox_1")
    sentence = (await house.look("/"))[0].sentence
    assert re.fullmatch(r"<span .*>The last work</span>: 1 picture in 1 s, 1 needs attention. 1 paused.", sentence)
    assert "1 Error while rendering" in await house.part("/", "overview-results")
