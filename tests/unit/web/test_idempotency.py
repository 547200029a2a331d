"""A wish under a key is fulfilled once, whatever becomes of whoever was at it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.idempotency import Beginning, Begun, Busy, Different, Repeated, TakenOver
from comfyui_agent.web.idempotency import REPLAYED, IdempotentRequest, once
from support.stores import ScriptedStore, intercept

ME, DEAD, OTHER = "me", "dead", "other"


class Wishes(ScriptedStore):
    """The memory of wishes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}

    async def begin_request(
        self, key: str, scope: str, digest: str, creator: str, made: str, _host: str, *, is_alone: bool
    ) -> Beginning:
        await asyncio.sleep(0)
        row = self.rows.get((key, scope))
        if row is None:
            self.rows[key, scope] = {"digest": digest, "creator": creator, "made": made, "answer": None}
            return Begun()
        if row["digest"] != digest:
            return Different()
        if row["answer"] is not None:
            return Repeated(201, row["answer"])
        if not (is_alone if row["creator"] == creator else row["creator"] == DEAD):
            return Busy()
        row["creator"] = creator
        return TakenOver(row["made"])

    async def agents_of_host(self, _: str) -> list[Any]:
        return []

    async def finish_request(self, key: str, scope: str, _: int, answer: str) -> None:
        self.rows[key, scope]["answer"] = answer

    async def drop_request(self, key: str, scope: str) -> None:
        del self.rows[key, scope]


class Workshop:
    """Makes things, and finds those that were made."""

    def __init__(self) -> None:
        self.store = Wishes()
        self.things: list[str] = []
        self.error: Exception | None = None
        self.is_slow = False
        lock = SimpleNamespace(worker=ME, host="here")
        self.context: Any = SimpleNamespace(store=self.store, lock=lock, under_way=Counter())

    async def make(self, name: str) -> dict[str, Any]:
        if self.is_slow:
            await asyncio.sleep(0.02)
        if isinstance(self.error, Problem):
            raise self.error
        self.things.append(name)
        if self.error is not None:
            raise self.error
        return {"id": name}

    async def find(self, name: str) -> dict[str, Any] | None:
        return {"id": name} if name in self.things else None

    async def ask(self, key: str | None = "k", body: Any = None, name: str = "a") -> Any:
        wish = IdempotentRequest(key=key, route="things", body=body or {"a": 1})
        return await once(self.context, Caller(Role.ADMIN), wish, name, self.make, self.find)

    def left_by(self, worker: str, name: str = "left") -> None:
        digest = IdempotentRequest(key="k", route="things", body={"a": 1}).digest
        row = {"digest": digest, "creator": worker, "made": name, "answer": None}
        self.store.rows["k", "everyone things"] = row


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


def read(response: Any) -> tuple[int, Any, str, bool]:
    return response.status_code, json.loads(response.body), response.headers["location"], REPLAYED in response.headers


async def test_the_first_makes_it_and_the_next_get_the_same_answer(workshop: Workshop) -> None:
    assert read(await workshop.ask(name="first")) == (201, {"id": "first"}, "/api/v1/things/first", False)
    assert read(await workshop.ask(name="second")) == (201, {"id": "first"}, "/api/v1/things/first", True)
    assert workshop.things == ["first"]


async def test_without_a_key_nothing_is_noted(workshop: Workshop) -> None:
    await workshop.ask(None)
    await workshop.ask(None)
    assert (len(workshop.things), workshop.store.rows) == (2, {})


async def test_another_request_under_the_same_key_is_refused(workshop: Workshop) -> None:
    await workshop.ask()
    with pytest.raises(Problem, match="another request"):
        await workshop.ask(body={"a": 2})


async def test_many_at_once_make_one(workshop: Workshop) -> None:
    workshop.is_slow = True
    answers = await asyncio.gather(*(workshop.ask() for _ in range(10)), return_exceptions=True)
    assert workshop.things == ["a"]
    assert sum(isinstance(answer, Problem) for answer in answers) == 9
    assert read(await workshop.ask())[1] == {"id": "a"}
    assert not workshop.context.under_way


async def test_what_was_refused_leaves_no_trace(workshop: Workshop) -> None:
    workshop.error = Problem(409, "it does not fit")
    with pytest.raises(Problem, match="does not fit"):
        await workshop.ask()
    assert workshop.store.rows == {}
    workshop.error = None
    assert read(await workshop.ask(body={"a": 2}))[0] == 201


async def test_what_a_dead_process_had_made_is_found(workshop: Workshop) -> None:
    workshop.left_by(DEAD)
    workshop.things.append("left")
    assert read(await workshop.ask(name="new"))[1] == {"id": "left"}
    assert workshop.things == ["left"]


async def test_what_a_dead_process_had_not_made_is_made_under_the_name_that_it_chose(workshop: Workshop) -> None:
    workshop.left_by(DEAD)
    assert read(await workshop.ask(name="new"))[1] == {"id": "left"}
    assert workshop.things == ["left"]


async def test_what_a_living_process_is_at_is_left_to_it(workshop: Workshop) -> None:
    workshop.left_by(OTHER)
    with pytest.raises(Problem) as refused:
        await workshop.ask()
    assert (refused.value.status, refused.value.headers) == (409, {"Retry-After": "1"})
    assert workshop.things == []


@pytest.mark.parametrize("error", [DatabaseAway("locked"), asyncio.CancelledError(), OSError("disk")])
async def test_what_was_interrupted_is_found_or_made_by_the_next_request(
    workshop: Workshop, error: BaseException
) -> None:
    workshop.error = error  # type: ignore[assignment]
    with pytest.raises(type(error)):
        await workshop.ask(name="first")
    workshop.error = None
    assert read(await workshop.ask(name="second"))[1] == {"id": "first"}
    assert workshop.things == ["first"]


async def test_what_could_not_be_noted_is_found_by_the_next_request(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseAway("locked")

    with monkeypatch.context() as patch:
        intercept(patch, workshop.store, ops.finish_request, away)
        with pytest.raises(DatabaseAway):
            await workshop.ask()
    assert read(await workshop.ask(name="second"))[1] == {"id": "a"}
    assert workshop.things == ["a"]


async def test_while_it_is_made_here_nobody_takes_it_over(workshop: Workshop) -> None:
    workshop.is_slow = True
    making = asyncio.create_task(workshop.ask())
    await asyncio.sleep(0.005)
    for _ in range(3):
        with pytest.raises(Problem, match="being answered now"):
            await workshop.ask()
    await making
    assert workshop.things == ["a"]


def test_a_digest_distinguishes_requests_but_not_the_order_of_their_keys() -> None:
    def digest(body: Any, route: str = "things") -> str:
        return IdempotentRequest(key="k", route=route, body=body).digest

    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    different = [{"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True}, {"a": [1]}, {"a": None}, {}, {"a": 1, "b": 1}]
    assert len({digest(body) for body in different}) == len(different)
    assert digest({"a": 1}) != digest({"a": 1}, "others")
