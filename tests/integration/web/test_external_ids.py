"""`external_id`: whoever was killed while asking finds what became of it by their own key, and makes nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from support.web import Keys, Served, bearer, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
SWEEP = {"workflow": "picture", "set": {"color": "1..2"}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": 1}}]}
MADE: list[tuple[str, dict[str, Any], str, str]] = [
    ("jobs", JOB, "job", "jobs"),
    ("jobs/first/again", {"new_seed": False, "inputs": {"color": 2}}, "job", "jobs"),
    ("jobs/first/vary", {"set": {"color": "1..2"}}, "batch", "batches"),
    ("batches", SWEEP, "batch", "batches"),
    ("books", BOOK, "book", "books"),
]


@pytest.mark.parametrize(("route", "body", "kind", "noun"), MADE, ids=[each[0] for each in MADE])
async def test_what_is_made_is_found_by_the_callers_key_and_made_once(
    house: Served, route: str, body: dict[str, Any], kind: str, noun: str
) -> None:
    await house.post("/api/v1/jobs", {**JOB, "name": "first"})
    key = f"order-{route}!~"
    answer = await house.post(f"/api/v1/{route}", {**body, "external_id": key})
    assert (answer.status, answer.value["external_id"]) == (201, key), answer.text
    made = {"kind": kind, "id": str(answer.value["id"]), "url": f"/api/v1/{noun}/{answer.value['id']}"}
    assert (await house.get(f"/api/v1/find?external_id={quote(key)}")).value == made
    [listed] = (await house.get(f"/api/v1/{noun}?external_id={quote(key)}")).value[noun]
    assert (listed["id"], listed["external_id"]) == (answer.value["id"], key)
    assert (await house.get(made["url"])).value["external_id"] == key
    for other, said in (("jobs", JOB), ("batches", SWEEP), ("books", BOOK)):
        problem = check_problem(await house.post(f"/api/v1/{other}", {**said, "external_id": key}), 409)
        assert (problem["type"], problem["made"]) == ("/docs/problems#external-id-taken", made)


async def test_a_use_has_its_key_and_a_name_that_is_taken_says_so(house: Served) -> None:
    await house.post("/api/v1/jobs", {**JOB, "name": "taken"})
    problem = check_problem(await house.post("/api/v1/jobs", {**JOB, "name": "taken", "external_id": "new"}), 409)
    assert problem["type"] == "/docs/problems#name-taken"
    check_problem(await house.get("/api/v1/find?external_id=new"), 404)
    assert (await house.get("/api/v1/jobs?external_id=new")).value == {"jobs": [], "next": None, "is_whole": True}


async def test_each_token_has_keys_of_its_own(locked_house: tuple[Served, Keys]) -> None:
    house, keys = locked_house
    made = [
        await house.post("/api/v1/jobs", {**JOB, "external_id": "order"}, headers=bearer(key))
        for key in (keys.user, keys.admin)
    ]
    assert [answer.status for answer in made] == [201, 201]
    for key, answer in zip((keys.user, keys.admin), made, strict=True):
        found = (await house.get("/api/v1/find?external_id=order", headers=bearer(key))).value
        assert found["id"] == str(answer.value["id"])
    check_problem(await house.get("/api/v1/find?external_id=order", headers=bearer(keys.read)), 404)


async def test_of_two_requests_with_one_key_at_one_time_one_is_made(house: Served) -> None:
    answers = await asyncio.gather(
        *(
            house.post(f"/api/v1/{route}", {**said, "external_id": f"race-{route}"})
            for _ in range(4)
            for route, said in (("jobs", JOB), ("batches", SWEEP))
        )
    )
    assert sorted(answer.status for answer in answers) == [201] * 2 + [409] * 6
    types = {check_problem(answer, 409)["type"] for answer in answers if answer.status == 409}
    assert types == {"/docs/problems#external-id-taken"}


@pytest.mark.parametrize("key", ["", "two words", "ümlaut", "x" * 201])
async def test_a_key_is_visible_ascii(house: Served, key: str) -> None:
    check_problem(await house.post("/api/v1/jobs", {**JOB, "external_id": key}), 422)
    check_problem(await house.get(f"/api/v1/find?external_id={quote(key)}"), 422)
