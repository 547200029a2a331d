"""`Idempotency-Key`: whoever sends a request again gets the same answer, and nothing is made twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.liveness import registered
from comfyui_agent.usecases import batches
from comfyui_agent.web.api.jobs import NewJobSaid
from comfyui_agent.web.idempotency import IdempotentRequest
from support.stores import intercept, wish
from support.web import Answer, Keys, Served, bearer, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEAD = "host-1-deadbeef-part"
"""A process that is gone."""


@dataclass(frozen=True)
class Create:
    """A route that makes something."""

    route: str
    body: Callable[[str], dict[str, Any]]
    """A wish of some name."""
    noun: str

    def __str__(self) -> str:
        return self.route

    @property
    def address(self) -> str:
        return f"/api/v1/{self.route}"

    async def send(self, house: Served, key: str, name: str = "x", **headers: str) -> Answer:
        return await house.post(self.address, self.body(name), headers={"Idempotency-Key": key, **headers})

    async def count(self, house: Served) -> int:
        if self.route == "jobs":
            return len(await house.store.run(ops.list_jobs, limit=100_000))
        kind = BatchKind.BOOK if self.route == "books" else BatchKind.SWEEP
        return len(await house.store.run(ops.newest_batches, kind=kind, limit=10_000))


CREATES = [
    Create(
        "jobs",
        lambda name: {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}, "metadata": {"name": name}},
        "config_name",
    ),
    Create("batches", lambda name: {"workflow": "picture", "name": name, "set": {"color": "1..3"}}, "id"),
    Create("books", lambda name: {"workflow": "picture", "title": name, "pages": [{"inputs": {"color": 1}}, {}]}, "id"),
]
every_create = pytest.mark.parametrize("create", CREATES, ids=str)


async def begun_by_a_dead_one(house: Served, create: Create, key: str, made: str, name: str = "x") -> None:
    """A wish over which a process died, after it had noted what it was about to make."""
    body = create.body(name)
    said = NewJobSaid(**body).model_dump(mode="json", exclude_unset=True) if create.route == "jobs" else body
    digest = IdempotentRequest(key=key, route=create.route, body=said).digest
    await house.store.run(ops.begin_request, key, f"everyone {create.route}", digest, DEAD, made, "host", is_alone=True)


@every_create
async def test_the_same_request_gets_the_same_answer_and_is_made_once(house: Served, create: Create) -> None:
    before = await create.count(house)
    first = await create.send(house, "lost-answer")
    assert first.status == 201, first.text
    assert "Idempotency-Replayed" not in first.headers
    for _ in range(3):
        again = await create.send(house, "lost-answer")
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["Location"] == first.headers["Location"]
        assert again.headers["Idempotency-Replayed"] == "true"
    assert await create.count(house) == before + 1
    assert (await house.get(first.headers["Location"])).status == 200


@every_create
async def test_the_answer_is_the_first_one_also_when_things_have_moved_on(house: Served, create: Create) -> None:
    first = await create.send(house, "moved-on", "moved")
    await house.post(f"{first.headers['Location'].replace('books', 'batches')}/cancel")
    assert (await create.send(house, "moved-on", "moved")).body == first.body


@every_create
async def test_the_order_of_keys_in_a_body_is_no_difference(house: Served, create: Create) -> None:
    first = await create.send(house, "order")
    turned = dict(reversed(create.body("x").items()))
    again = await house.post(create.address, turned, headers={"Idempotency-Key": "order"})
    assert (again.status, again.body) == (201, first.body)


@every_create
async def test_a_key_that_was_used_for_another_request_is_a_conflict(house: Served, create: Create) -> None:
    await create.send(house, "used", "first")
    before = await create.count(house)
    said = check_problem(await create.send(house, "used", "second"), 409)
    assert "another request" in said["detail"]
    assert await create.count(house) == before


async def test_a_key_is_of_one_route(house: Served) -> None:
    answers = [await create.send(house, "everywhere") for create in CREATES]
    assert [answer.status for answer in answers] == [201, 201, 201]


@every_create
async def test_without_a_key_each_request_makes_one(house: Served, create: Create) -> None:
    before = await create.count(house)
    for _ in range(2):
        assert (await house.post(create.address, create.body("x"))).status == 201
    assert await create.count(house) == before + 2


@every_create
async def test_ten_at_once_make_one(house: Served, create: Create) -> None:
    before = await create.count(house)
    answers = await asyncio.gather(*(create.send(house, "ten", "ten") for _ in range(10)))
    assert await create.count(house) == before + 1
    made = [answer for answer in answers if answer.status == 201]
    assert made
    assert len({answer.body for answer in made}) == 1
    for answer in answers:
        if answer.status != 201:
            assert "being answered now" in check_problem(answer, 409)["detail"]
            assert answer.headers["Retry-After"] == "1"
    assert (await create.send(house, "ten", "ten")).body == made[0].body


@every_create
async def test_what_a_process_was_about_to_make_when_it_died_is_made_then(house: Served, create: Create) -> None:
    await begun_by_a_dead_one(house, create, "died-before", f"died_before_{create.route}", "x")
    before = await create.count(house)
    answer = await create.send(house, "died-before")
    assert answer.status == 201
    assert answer.value[create.noun] == f"died_before_{create.route}"
    assert await create.count(house) == before + 1
    assert (await create.send(house, "died-before")).body == answer.body


@every_create
async def test_what_a_process_had_made_when_it_died_is_found_and_not_made_again(house: Served, create: Create) -> None:
    lost = await create.send(house, "not-noted", "found")
    made = lost.value[create.noun]
    await begun_by_a_dead_one(house, create, "died-after", made, "found")
    before = await create.count(house)
    answer = await create.send(house, "died-after", "found")
    assert (answer.status, answer.value[create.noun]) == (201, made)
    assert answer.headers["Location"] == lost.headers["Location"]
    assert await create.count(house) == before


@pytest.mark.parametrize("create", CREATES[1:], ids=str)
async def test_what_a_process_had_half_made_when_it_died_is_made_whole(house: Served, create: Create) -> None:
    made = f"half_{create.route}"
    kind = BatchKind.BOOK if create.route == "books" else BatchKind.SWEEP
    await house.store.run(ops.create_batch, NewBatch(made, "half", kind), DEAD)
    await house.store.run(ops.fill_batch, [wish(f"{made}_left", batch_id=made, batch_index=0)])
    await begun_by_a_dead_one(house, create, "half", made)
    answer = await create.send(house, "half")
    assert answer.status == 201, answer.text
    assert (answer.value["id"], answer.value["status"]) == (made, "active")
    assert answer.value["total"] == (2 if create.route == "books" else 3)
    assert await house.store.run(ops.find_job_by_name, f"{made}_left") is None


@every_create
async def test_while_a_process_that_lives_is_at_it_the_request_is_a_conflict(house: Served, create: Create) -> None:
    other = AgentLock(house.workspace.locks, is_part=True)
    async with registered(house.store, other):
        said = create.body("x")
        body = NewJobSaid(**said).model_dump(mode="json", exclude_unset=True) if create.route == "jobs" else said
        digest = IdempotentRequest(key="alive", route=create.route, body=body).digest
        await house.store.run(
            ops.begin_request,
            "alive",
            f"everyone {create.route}",
            digest,
            other.worker,
            f"alive_{create.route}",
            other.host,
            is_alone=True,
        )
        check_problem(await create.send(house, "alive"), 409)
    assert (await create.send(house, "alive")).status == 201


@every_create
async def test_a_request_that_was_refused_does_not_burn_its_key(house: Served, create: Create) -> None:
    wrong = create.body("x") | ({"workflow_id": "nowhere"} if create.route == "jobs" else {"workflow": "nowhere"})
    refused = await house.post(create.address, wrong, headers={"Idempotency-Key": "mended"})
    assert refused.status in (404, 409)
    assert (await create.send(house, "mended")).status == 201


@every_create
async def test_what_was_made_is_found_again_when_that_could_not_be_noted(
    house: Served, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseAway("the database is locked")

    before = await create.count(house)
    with monkeypatch.context() as patch:
        intercept(patch, house.store, ops.finish_request, away)
        check_problem(await create.send(house, "unnoted", "unnoted"), 503)
    assert await create.count(house) == before + 1
    answer = await create.send(house, "unnoted", "unnoted")
    assert answer.status == 201, answer.text
    assert await create.count(house) == before + 1


@every_create
async def test_what_was_made_is_found_again_when_the_database_went_away_right_after(
    house: Served, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseAway("the database is locked")

    before = await create.count(house)
    with monkeypatch.context() as patch:
        if create.route == "jobs":
            intercept(patch, house.store, ops.find_job_by_name, away)
        else:
            patch.setattr(batches, "read_back", away)
        check_problem(await create.send(house, "gone-away", "gone-away"), 503)
    assert await create.count(house) == before + 1
    assert (await create.send(house, "gone-away", "gone-away")).status == 201
    assert await create.count(house) == before + 1


@every_create
@pytest.mark.parametrize("key", ["", "x" * 201, "two words", "ta\tb", "\u00e9"])
async def test_a_key_that_is_none_is_refused(house: Served, create: Create, key: str) -> None:
    body = b'{"nothing": "of this is looked at"}'
    said = f"POST {create.address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIdempotency-Key: {key}\r\n"
    said += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = await house.raw(said.encode("latin-1") + body)
    assert any(each["key"].lower() == "idempotency-key" for each in check_problem(answer, 422)["errors"])


@every_create
async def test_a_key_belongs_to_its_sender(locked_house: tuple[Served, Keys], create: Create) -> None:
    house, keys = locked_house
    mine = await create.send(house, "shared", **bearer(keys.user))
    theirs = await create.send(house, "shared", **bearer(keys.admin))
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.value[create.noun] != theirs.value[create.noun]
    assert (await create.send(house, "shared", **bearer(keys.user))).body == mine.body


async def test_a_dry_run_uses_no_key(house: Served) -> None:
    body = CREATES[1].body("dry")
    for _ in range(2):
        dry = await house.post("/api/v1/batches", {**body, "dry_run": True}, headers={"Idempotency-Key": "dry"})
        assert (dry.status, "Idempotency-Replayed" in dry.headers) == (200, False)
    assert (await house.post("/api/v1/batches", body, headers={"Idempotency-Key": "dry"})).status == 201
