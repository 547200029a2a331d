"""Who made it: a user changes their own jobs, batches and books; admins and shared tokens change all."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from comfyui_agent.web.guard import UNSAFE
from comfyui_agent.web.page_server import create_app
from support.batches import document
from support.store_batches import queue
from support.stores import wish
from support.web import Answer, Served, bearer, check_problem, routes_of, served
from support.workspaces import call_e3

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
SWEEP = {"name": "knights", "workflow": "picture", "set": {"color": "1..2"}}
FLOOR = 10


@dataclass(frozen=True)
class House:
    """A page with two users, one of them not alone: a shared token, and an admin."""

    served: Served
    ann: dict[str, str]
    bob: dict[str, str]
    shift: dict[str, str]
    admin: dict[str, str]

    async def job(self, name: str, who: dict[str, str], **said: Any) -> dict[str, Any]:
        answer = await self.served.post("/api/v1/jobs", {**JOB, "name": name, **said}, headers=who)
        assert answer.status == 201, answer.text
        made: dict[str, Any] = answer.value
        return made

    async def e3(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(call_e3, *arguments, "-C", str(self.served.workspace.root))

    async def status(self, name: str) -> JobStatus:
        found = await self.served.store.run(ops.find_job_by_name, name)
        assert found is not None
        return found.status


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with served(tmp_path_factory.mktemp("owners")) as place:
        yield House(
            place,
            *[bearer(await place.token(Role.USER, name)) for name in ("ann", "bob")],
            bearer(await place.token(Role.USER, "shift", is_shared=True)),
            bearer(await place.token(Role.ADMIN, "studio")),
        )


async def test_what_is_made_over_http_remembers_its_token_and_shows_its_name(house: House) -> None:
    page = house.served
    job = await house.job("mine", house.ann)
    batch = (await page.post("/api/v1/batches", SWEEP, headers=house.ann)).value
    book = {"book_id": "anns", "workflow": "picture", "pages": [{"inputs": {"color": 1}}]}
    assert (await page.post("/api/v1/books", book, headers=house.ann)).status == 201
    for path in (f"/api/v1/jobs/{job['id']}", f"/api/v1/batches/{batch['id']}", "/api/v1/books/anns"):
        shown = (await page.get(path, headers=house.bob)).value
        assert (shown["created_by"], shown["created_by_name"]) == (1, "ann"), path
    assert {member.created_by async for member in ops.batch_members(page.store, batch["id"])} == {1}
    assert {member.created_by async for member in ops.batch_members(page.store, "anns")} == {1}
    for screen in ("/jobs/mine", f"/batches/{batch['id']}", "/books/anns"):
        assert "ann" in (await page.get(screen, headers=house.bob)).text.split("Made by")[1][:100], screen


async def test_the_command_line_shows_who_made_it_and_makes_what_is_nobodys(house: House) -> None:
    await house.job("told", house.bob)
    batch = (await house.served.post("/api/v1/batches", SWEEP, headers=house.bob)).value
    assert "token 2 (bob)" in (await house.e3("show", "told")).stdout
    assert "token 2 (bob)" in (await house.e3("batch", "show", batch["id"])).stdout
    shown = document(await house.e3("show", "told", "--json"))
    assert (shown["created_by"], shown["created_by_name"]) == (2, "bob")
    await house.served.store.run(ops.submit_jobs, [wish("by-file", source="jobs/processing/image/by-file")])
    assert "made by" not in (await house.e3("show", "by-file")).stdout
    shown = document(await house.e3("show", "by-file", "--json"))
    assert (shown["created_by"], shown["created_by_name"]) == (None, None)


CHANGES = [
    ("POST", "/api/v1/jobs/{job}/cancel", None, False),
    ("POST", "/api/v1/jobs/{job}/retry", None, True),
    ("PUT", "/api/v1/jobs/{job}/priority", {"priority": 60}, False),
    ("PUT", "/api/v1/jobs/{job}/take", {"number": 1}, "done"),
    ("POST", "/api/v1/jobs/{job}/dismiss", None, True),
    ("POST", "/api/v1/jobs/dismiss", {"names": ["{job}"]}, True),
    ("POST", "/api/v1/jobs/cancel", {"names": ["{job}"]}, False),
    ("POST", "/api/v1/jobs/retry", {"names": ["{job}"]}, True),
    ("PUT", "/api/v1/jobs/{job}/rating", {"rating": "star"}, True),
    ("POST", "/api/v1/jobs/rate", {"names": ["{job}"], "rating": "reject"}, True),
    ("POST", "/api/v1/batches/{batch}/cancel", None, False),
    ("POST", "/api/v1/batches/{batch}/retry", {"cancelled": True}, True),
    ("POST", "/api/v1/batches/{batch}/dismiss", None, True),
    ("POST", "/api/v1/batches/{batch}/grid", {}, True),
    ("POST", "/books/{batch}/regenerate", {"pages": [1]}, True),
    ("POST", "/api/v1/books/{batch}/regenerate", {"pages": [1]}, True),
]


ONWARD = tuple(f"/api/v1/jobs/1/{what}" for what in ("again", "vary", "use"))
"""Make something of anybody's job, which stays as it is. What they make belongs to who asks."""
MAKING = (
    "/api/v1/jobs",
    "/api/v1/batches",
    "/api/v1/books",
    "/api/v1/inputs",
    "/api/v1/jobs/bulk",
    "/login",
    "/logout",
    "/api/v1/results/export",
    "/mcp",
    *ONWARD,
)


async def test_every_change_of_something_owned_is_in_this_list(house: House) -> None:
    known = {(method, re.sub(r"{\w+}", "1", path)) for method, path, *_ in CHANGES}
    for method, route in routes_of(create_app(house.served.context)):
        path = re.sub(r"{\w+}", "1", route)
        if method in UNSAFE and path not in MAKING and (method, path) not in known:
            refused = check_problem(await house.served.ask(method, path, {}, headers=house.ann), 403)
            assert refused["detail"] == "this is for admins", route


@pytest.mark.parametrize(("method", "path", "body", "has_ended"), CHANGES, ids=[f"{c[0]} {c[1]}" for c in CHANGES])
async def test_only_its_maker_may_change_it(house: House, method: str, path: str, body: Any, has_ended: Any) -> None:
    name = f"change-{CHANGES.index((method, path, body, has_ended))}"
    page = house.served
    noun = "books" if "book" in path else "batches" if "batch" in path else "jobs"

    async def make(suffix: str, who: dict[str, str]) -> tuple[str, str]:
        """A job or a batch of one job, which may have ended; what to call both."""
        made = f"{name}-{suffix}"
        if noun == "jobs":
            member = await house.job(made, who)
        elif noun == "books":
            book = {"book_id": made, "workflow": "picture", "pages": [{"inputs": {"color": 1}}]}
            assert (await page.post("/api/v1/books", book, headers=who)).status == 201
        else:
            sweep = {**SWEEP, "name": made, "set": {"color": "1"}}
            made = (await page.post("/api/v1/batches", sweep, headers=who)).value["id"]
        if noun != "jobs":
            [member] = [job.as_json() async for job in ops.batch_members(page.store, made)]
        if path.endswith("{batch}/dismiss"):  # only what failed can be
            await page.fail((await page.lease(1, made))[0])
        elif has_ended == "done":
            await page.finish(next(each for each in await page.lease(64) if each.lease.job_id == member["id"]))
        elif has_ended:
            await page.store.run(ops.cancel_jobs, [JobId(member["id"])])
        return made, member["config_name"]

    async def ask(made: tuple[str, str], who: dict[str, str]) -> Answer:
        said = {**body, "names": [made[1]]} if body and "names" in body else body
        return await page.ask(method, path.format(job=made[1], batch=made[0]), said, headers=who)

    thing = await make("anns", house.ann)
    before = await page.store.run(ops.find_job_by_name, thing[1])
    said = check_problem(await ask(thing, house.bob), 403)
    assert "not yours" in said["detail"]
    assert "ann" not in said["detail"].replace(thing[0], "").replace(thing[1], "").split(), "whose it is is not said"
    assert "admin" in said["remedy"]
    assert await page.store.run(ops.find_job_by_name, thing[1]) == before
    allowed = {409} if path.endswith("/rating") else {200, 201, 202}  # what has no result is not rated
    assert (await ask(thing, house.ann)).status in allowed
    for suffix, who in (("shift", house.shift), ("admin", house.admin)):
        assert (await ask(await make(suffix, house.ann), who)).status in allowed, suffix


async def test_what_no_token_made_is_for_admins_and_shared_tokens(house: House) -> None:
    page = house.served
    for number, (who, status) in enumerate(((house.ann, 403), (house.shift, 202), (house.admin, 202))):
        await page.store.run(ops.submit_jobs, [wish(f"filed-{number}")])
        await queue(page.store, 2, f"old_{number}")
        assert (await page.post(f"/api/v1/jobs/filed-{number}/cancel", headers=who)).status == status
        assert (await page.post(f"/api/v1/batches/old_{number}/cancel", headers=who)).status == status
    refused = check_problem(await page.post("/api/v1/jobs/filed-0/cancel", headers=house.ann), 403)
    assert "was not made with a token" in refused["detail"]


async def test_several_jobs_are_changed_only_if_all_of_them_are_the_callers(house: House) -> None:
    page = house.served
    for name, who in (("several-1", house.ann), ("several-2", house.bob), ("several-3", house.ann)):
        await house.job(name, who)
    names = {"names": ["several-1", "several-2", "several-3"]}
    said = check_problem(await page.post("/api/v1/jobs/cancel", names, headers=house.ann), 403)
    assert "1 of these 3 jobs is not yours to change: several-2" in said["detail"]
    assert [await house.status(name) for name in names["names"]] == [JobStatus.PENDING] * 3
    changed = await page.post("/api/v1/jobs/cancel", names, headers=house.shift)
    assert changed.value["changed"] == names["names"]
    check_problem(await page.post("/api/v1/jobs/retry", names, headers=house.bob), 403)
    assert [await house.status(name) for name in names["names"]] == [JobStatus.FAILED] * 3


async def test_all_that_failed_are_all_of_ones_own(house: House) -> None:
    page = house.served
    names = []
    for who in (house.ann, house.bob):
        batch = (await page.post("/api/v1/batches", {**SWEEP, "set": {"color": "1"}}, headers=who)).value
        [leased] = await page.lease(1, batch["id"])
        await page.fail(leased)
        names.append(leased.config_name)
    answer = await page.post("/api/v1/jobs/retry", {"failed": True}, headers=house.bob)
    assert answer.value == {"changed": [names[1]], "refused": []}
    assert await house.status(names[0]) is JobStatus.FAILED
    answer = await page.post("/api/v1/jobs/retry", {"failed": True}, headers=house.admin)
    assert answer.value["changed"] == [names[0]]


async def test_the_page_offers_only_what_may_be_done(house: House) -> None:
    page = house.served
    await house.job("offered", house.ann)
    batch = (await page.post("/api/v1/batches", {**SWEEP, "name": "offered"}, headers=house.ann)).value
    for who, is_offered in ((house.ann, True), (house.bob, False), (house.shift, True), (house.admin, True)):
        for screen in ("/jobs/offered", f"/batches/{batch['id']}"):
            text = (await page.get(screen, headers=who)).text
            assert ('/cancel"' in text) is is_offered, screen


@pytest.mark.parametrize("noun", ["jobs", "batches", "books"])
async def test_users_ask_for_no_priority_below_the_floor(house: House, noun: str) -> None:
    page = house.served
    said: dict[str, dict[str, Any]] = {
        "jobs": JOB,
        "batches": {**SWEEP, "name": "floor"},
        "books": {"workflow": "picture", "title": "floor", "pages": [{"inputs": {"color": 1}}]},
    }
    for who in (house.ann, house.shift):
        refused = await page.post(f"/api/v1/{noun}", {**said[noun], "priority": FLOOR - 1}, headers=who)
        assert "users may ask for 10 and above" in check_problem(refused, 409)["detail"]
        assert refused.value["errors"][0]["key"] == "priority"
    for priority, who in ((FLOOR, house.ann), (FLOOR - 1, house.admin), (-5, house.admin)):
        made = await page.post(f"/api/v1/{noun}", {**said[noun], "priority": priority}, headers=who)
        assert made.status == 201, made.text
    made = await page.post(f"/api/v1/{noun}", said[noun], headers=who)
    members = [job async for job in ops.batch_members(page.store, str(made.value["id"]))]
    assert (members[0].priority if members else made.value["priority"]) == 50, "the default is everyone's"


async def test_a_user_moves_their_own_job_down_to_the_floor(house: House) -> None:
    page = house.served
    await house.job("moved", house.ann)
    path = "/api/v1/jobs/moved/priority"
    assert (await page.put(path, {"priority": FLOOR}, headers=house.ann)).value["priority"] == FLOOR
    check_problem(await page.put(path, {"priority": FLOOR - 1}, headers=house.ann), 409)
    check_problem(await page.put(path, {"priority": FLOOR}, headers=house.bob), 403)
    assert (await page.put(path, {"priority": -1}, headers=house.admin)).value["priority"] == -1


async def test_a_name_is_reserved_once(house: House) -> None:
    made = await house.job("taken", house.ann)
    for who in (house.bob, house.admin):
        check_problem(await house.served.post("/api/v1/jobs", {**JOB, "name": "taken"}, headers=who), 409)
    found = await house.served.store.run(ops.find_job_by_name, "taken")
    assert found is not None
    assert (found.id, found.created_by) == (made["id"], 1)


async def test_a_file_that_takes_a_name_over_belongs_to_nobody(house: House) -> None:
    """What a job file says is the file's, also where a token made a job of that name before."""
    page = house.served
    job = await house.job("over.yaml", house.ann)
    await page.store.run(ops.cancel_jobs, [JobId(job["id"])])
    file = page.workspace.root / "over.yaml"
    file.write_text("job_type: T2I\nworkflow_id: picture\ninputs: {color: 2}\n")
    assert (await house.e3("add", str(file))).returncode == 0
    found = await page.store.run(ops.find_job_by_name, "over.yaml")
    assert found is not None
    assert (found.status, found.created_by) == (JobStatus.PENDING, None)
