"""Whatever people, files and servers have written: a page shows it as text, and none of it becomes a part of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.domain.tokens import Role
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.web.site import ADDRESSES
from support.stores import broken, wish
from support.web import Served, bearer, served, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARK = "e3evil"
EVIL = (
    f"<script>alert('{MARK}')</script><{MARK} onclick=alert(1)><img src=x onerror=\"alert(2)\">"
    f"'\"--></title></textarea><a href='javascript:alert(3)'>{{{{7*7}}}}&lt;{MARK}&gt;\u2028</script>"
)
NAME = EVIL.replace("/", "|")
"""What can be the name of a file."""
PEOPLE = {"Accept": "text/html"}
GRAPH = {
    "6": {"class_type": EVIL, "inputs": {"text": EVIL, EVIL: EVIL}, "_meta": {"title": EVIL}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["6", 0], "filename_prefix": EVIL}},
}


class Looking(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"

    def handle_endtag(self, _: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        assert not (self._script and data.strip()), f"a script stands in the page: {data[:200]}"
        self.words += data


def check_page(text: str) -> Looking:
    """Nothing in it runs, and nothing of what is shown has become a part of it."""
    page = Looking()
    page.feed(text)
    page.close()
    for tag, attributes in page.tags:
        assert tag != MARK
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} has {name}={value}"
            assert name not in ("style", "srcdoc"), f"{tag} has {name}"
            assert not (value or "").strip().lower().startswith(("javascript:", "data:text")), f"{tag} {name}={value}"
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/assets/")
        if tag in ("img", "iframe", "link", "source", "video", "audio"):
            place = attributes.get("src") or attributes.get("href") or "/"
            assert place.startswith(("/", "data:image/")), f"{tag} loads {place}"
    return page


def said(page: Looking) -> str:
    """All that it says, in words and in attributes."""
    return page.words + "".join(value or "" for _, attributes in page.tags for value in attributes.values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def haunted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, str]]:
    """A house in which everything that can be named is named after a script, and the token of an admin."""
    async with served(tmp_path_factory.mktemp("haunted")) as house:
        _write_files(house.workspace.root)
        await _queue_everything(house)
        agent = AgentLock(house.workspace.locks)
        live = LiveFile(house.workspace.locks, agent.worker)
        live.write([(LiveRun(3, NAME, "sweep_1", f"http://{MARK}<b>:1", EVIL, EVIL, 1, 2, EVIL, EVIL), None)])
        try:
            yield house, await house.token(Role.ADMIN, EVIL)
        finally:
            live.remove()
            agent.release()


def _write_files(root: Path) -> None:
    (root / "workflows" / f"{NAME[:80]}.json").write_text(json.dumps(GRAPH))
    recipe = {"template_path": "workflows/picture.json", "required_inputs": [], "description": EVIL}
    with (root / "config" / "workflows.yaml").open("a") as recipes:
        recipes.write(f"\nevil: {json.dumps(recipe)}\n")
    reports = root / "infra" / "observability"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"load_{NAME[:60]}.html").write_text(f"<title>{EVIL}</title><h1>{EVIL}</h1>")
    document = {"summary": {"total_jobs": EVIL, "completed": 1}, "environment": {"server": EVIL}, "scenario": EVIL}
    (reports / "load_2.json").write_text(json.dumps(document))
    (reports / "chaos_3.json").write_text(json.dumps({"scenario": EVIL, "verdict": EVIL, "findings": [EVIL]}))


async def _queue_everything(house: Served) -> None:
    """A job in every state, a sweep and a book, with scripts for names, prompts, errors and settings."""
    store, template = house.store, Template.of(GRAPH)
    facts: dict[str, Any] = {
        "job_type": "T2I",
        "workflow_id": EVIL,
        "template": template,
        "inputs": {"6.text": EVIL, f"6.{MARK}<b>": EVIL},
        "metadata": {"note": EVIL, EVIL: EVIL},
    }
    for number, end in enumerate(("done", "failed", "rendering", "waiting")):
        await store.run(ops.submit_jobs, [NewJob(f"{end}-{NAME}", priority=number, **facts)])
        if end == "waiting":
            continue
        [leased] = await house.lease()
        if end == "done":
            await house.finish(leased)
        elif end == "failed":
            failure = broken(message=EVIL, node_id=EVIL, node_type=EVIL, traceback=EVIL)
            await store.run(ops.fail_job, leased.lease, failure, GiveUp(FailureClass.EXECUTION))
    settings = {"combination": {EVIL: EVIL}, "inputs": {EVIL: EVIL}, "page": 1}
    axes = [{"name": EVIL, "places": ["6.text"], "values": [EVIL, "b"]}]
    for batch_id, kind in (("sweep_1", BatchKind.SWEEP), ("book_1", BatchKind.BOOK)):
        await store.run(
            ops.create_batch, NewBatch(batch_id, EVIL, kind, {"axes": axes, "title": EVIL, "mode": "matrix"}), None
        )
        members = [wish(f"{batch_id}-{n}-{NAME}", batch_id=batch_id, batch_index=n, priority=n - 99) for n in range(3)]
        await store.run(ops.fill_batch, [_with(member, settings) for member in members])
        await store.run(ops.open_batch, batch_id)
        done, failed = await house.lease(2, batch_id)
        await house.finish(done)
        await store.run(ops.fail_job, failed.lease, broken(message=EVIL), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.pause_server, f"http://{MARK}'\"<b>:8188")


def _with(job: NewJob, metadata: dict[str, Any]) -> NewJob:
    return replace(job, metadata=metadata, workflow_id=EVIL)


def addresses() -> list[str]:
    """Every page, of a job in every state."""
    names = {"batch_id": "sweep_1", "book_id": "book_1"}
    jobs = [f"/jobs/{number}" for number in (1, 2, 3, 4)]
    return [*jobs, "/batches/book_1", *(each.path.format(**names) for each in ADDRESSES if "{name}" not in each.path)]


def questions() -> list[str]:
    """Every page with a script for each thing that can be asked of it."""
    word, names = quote(EVIL, safe=""), {"batch_id": "sweep_1", "book_id": "book_1", "name": "1"}
    asked = [f"{each.path.format(**names)}?{ask}={word}" for each in ADDRESSES for ask in sorted(each.parameters)]
    return [*asked, f"/queue?q={MARK}", "/queue?status=failed", "/new?workflow=evil", f"/login?next=/{word}"]


@pytest.mark.parametrize("path", addresses())
async def test_a_page_shows_scripts_as_text_and_runs_none(haunted: tuple[Served, str], path: str) -> None:
    house, token = haunted
    answer = await house.get(path, headers={**PEOPLE, **bearer(token)})
    assert answer.status == 200, answer.text[:2000]
    page = check_page(answer.text)
    if path != "/new":
        assert MARK in said(page), "it is shown"
    if path in ("/jobs/1", "/jobs/2"):
        assert EVIL in said(page).replace("\r\n", "\n"), "it is shown whole"
    if path == "/jobs/2":
        assert page.words.count(f"alert('{MARK}')") >= 2


async def test_a_page_that_is_asked_for_scripts_runs_none(haunted: tuple[Served, str]) -> None:
    house, token = haunted
    for path in questions():
        answer = await house.get(path, headers={**PEOPLE, **bearer(token)})
        assert answer.status in (200, 404), f"{path}: {answer.text[:2000]}"
        try:
            check_page(answer.text)
        except AssertionError as error:
            raise AssertionError(f"{path}: {error}") from error


@pytest.mark.parametrize("path", addresses())
async def test_the_parts_of_a_page_that_are_sent_later_show_scripts_as_text_too(
    haunted: tuple[Served, str], path: str
) -> None:
    house, token = haunted
    address = f"/stream?page={quote(path, safe='')}"
    async with watching(house, address, Authorization=f"Bearer {token}") as stream:
        frames = await stream.until(lambda frame: frame.event == "fragments")
        for part in frames[-1].value:
            check_page(part["html"])


@pytest.mark.parametrize(
    "path",
    [
        f"/{quote(EVIL, safe='')}",
        f"/jobs/{quote(NAME, safe='')}",
        f"/batches/{quote(NAME, safe='')}",
        f"/books/{quote(NAME, safe='')}",
        f"/admin/books/{quote(NAME, safe='')}",
        f"/assets/{quote(EVIL, safe='')}",
        f"/stream?page={quote('/' + EVIL, safe='')}",
        f"/healthz/{quote(EVIL, safe='')}",
    ],
)
async def test_a_page_of_a_problem_shows_what_was_asked_for_as_text(haunted: tuple[Served, str], path: str) -> None:
    house, token = haunted
    answer = await house.get(path, headers={**PEOPLE, **bearer(token)})
    assert answer.status == 404
    assert answer.headers["Content-Type"].startswith("text/html")
    assert MARK in said(check_page(answer.text))


async def test_the_login_page_shows_a_wrong_token_nowhere_and_its_target_as_text(haunted: tuple[Served, str]) -> None:
    house, _ = haunted
    body = f"token={quote(EVIL, safe='')}&next={quote('/' + EVIL, safe='')}"
    answer = await house.post("/login", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status == 401
    check_page(answer.text)


async def test_answers_for_programs_carry_the_text_as_it_is(haunted: tuple[Served, str]) -> None:
    house, token = haunted
    job = (await house.get("/api/v1/jobs/2", headers=bearer(token))).value
    assert job["config_name"] == f"failed-{NAME}"
    assert job["inputs"]["6.text"] == EVIL
    assert job["attempts"][0]["error"]["message"] == EVIL
    batch = (await house.get("/api/v1/batches/sweep_1", headers=bearer(token))).value
    assert batch["name"] == EVIL
