"""Requests under a key: of all who ask at once one makes it, and what a dead process left is taken over."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.idempotency import Beginning, Begun, Busy, Different, Repeated, TakenOver
from comfyui_agent.store.store import Store
from support.stores import HOST, Database, register

DAY = 24 * 3600

ONE_OF_MANY = """
import asyncio, sys
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store

async def main():
    store = open_store(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        me = sys.argv[2]
        await store.run(ops.register_agent, me, "host", me)
        found = await store.run(ops.begin_request, f"key {number}", "s", "d", me, me, "host", is_alone=False)
        print(type(found).__name__, flush=True)
    await store.close()

asyncio.run(main())
"""


async def begin(store: Store, key: str = "key", scope: str = "batches ada", **facts: Any) -> Beginning:
    said = {"digest": "d1", "creator": "first", "made": "fox_1", "host": HOST, "is_alone": False} | facts
    return await store.run(ops.begin_request, key, scope, **said)


async def test_a_request_is_begun_once_and_its_answer_is_given_again(store: Store) -> None:
    await register(store, "first")
    assert await begin(store) == Begun()
    assert await begin(store) == Busy()
    await store.run(ops.finish_request, "key", "batches ada", 201, '{"id": "fox_1"}')
    for creator in ("first", "second"):
        assert await begin(store, creator=creator, made="other_1") == Repeated(201, '{"id": "fox_1"}')
    assert await begin(store, is_alone=True) == Repeated(201, '{"id": "fox_1"}')


async def test_the_same_key_for_something_else_is_told_apart(store: Store) -> None:
    await begin(store)
    assert await begin(store, digest="d2") == Different()
    assert await begin(store, digest="d2", is_alone=True) == Different()
    await store.run(ops.finish_request, "key", "batches ada", 201, "{}")
    assert await begin(store, digest="d2") == Different()


async def test_the_same_key_of_someone_else_is_another_request(store: Store) -> None:
    await register(store, "first")
    assert await begin(store) == Begun()
    assert await begin(store, scope="batches bob") == Begun()
    assert await begin(store, scope="books ada", digest="d2") == Begun()
    await store.run(ops.finish_request, "key", "batches bob", 201, "bob's")
    assert await begin(store) == Busy()


async def test_what_a_dead_process_began_is_taken_over_with_the_name_that_it_chose(store: Store) -> None:
    await register(store, "second", "third")
    await begin(store)
    assert await begin(store, creator="second", made="fox_2") == TakenOver("fox_1")
    assert await begin(store, creator="third") == Busy()
    await store.run(ops.remove_agent, "second")
    assert await begin(store, creator="third") == TakenOver("fox_1")
    await store.run(ops.finish_request, "key", "batches ada", 201, "made")
    assert await begin(store) == Repeated(201, "made")


async def test_what_a_process_gave_up_it_takes_over_itself(store: Store) -> None:
    await register(store, "first")
    await begin(store)
    assert await begin(store, is_alone=True, made="fox_2") == TakenOver("fox_1")


async def test_what_was_dropped_is_as_if_it_had_never_been_asked_for(store: Store) -> None:
    await begin(store)
    await store.run(ops.drop_request, "key", "batches ada")
    assert await begin(store, digest="d2") == Begun()


async def test_an_answer_that_was_given_stands(store: Store) -> None:
    await begin(store)
    await store.run(ops.finish_request, "key", "batches ada", 201, "first")
    await store.run(ops.finish_request, "key", "batches ada", 500, "second")
    await store.run(ops.drop_request, "key", "batches ada")
    assert await begin(store) == Repeated(201, "first")


async def test_a_request_is_remembered_for_a_week(store: Store, database: Database) -> None:
    await begin(store)
    await begin(store, key="unfinished")
    await store.run(ops.finish_request, "key", "batches ada", 201, "made")
    database.clock.advance(7 * DAY - 1)
    assert await begin(store) == Repeated(201, "made")
    database.clock.advance(2)
    assert await begin(store) == Begun()
    assert [row["key"] for row in database.by_hand("SELECT key FROM idempotent_requests")] == ["key"]


@pytest.mark.parametrize("creator_is_dead", [False, True])
async def test_of_all_who_begin_at_once_one_may_go_on(store: Store, database: Database, creator_is_dead: bool) -> None:
    stores = [store, database.open(), database.open()]
    if creator_is_dead:
        await begin(store, creator="dead")
    workers = {f"{number}-{place}": each for number in range(6) for place, each in enumerate(stores)}
    await register(store, *workers)
    found = await asyncio.gather(*(begin(each, creator=worker) for worker, each in workers.items()))
    going_on = TakenOver("fox_1") if creator_is_dead else Begun()
    assert Counter(found) == {going_on: 1, Busy(): 17}


async def test_of_several_processes_one_may_go_on(store: Store, database: Database) -> None:
    command, pipe = [sys.executable, "-c", ONE_OF_MANY, database.place], asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(*command, f"p{number}", stdin=pipe, stdout=pipe) for number in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
    answers = await asyncio.gather(*(asyncio.wait_for(process.communicate(b"go\n"), 30) for process in started))
    for told in zip(*(said.split() for said, _ in answers), strict=True):
        assert Counter(told) == {b"Begun": 1, b"Busy": 2}
    assert [process.returncode for process in started] == [0, 0, 0]
