"""Which server gets which job: those that have what it needs, and first those that have it loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.store import operations as ops
from support.engine import FIRST, SECOND, FakeComfy, Room

MakeRoom = Callable[..., Room]


async def names_at(room: Room, server: FakeComfy) -> list[str]:
    """The jobs that were posted to a server, in that order."""
    names = {}
    for job in await room.store.run(ops.list_jobs):
        for attempt in await room.store.run(ops.list_attempts, job.id):
            names[attempt.prompt_id] = job.config_name
    return [names[prompt_id] for prompt_id in server.posts]


async def render_all(room: Room, seconds: float = 1.0, most: int = 60) -> None:
    """Every server renders what it has, a prompt each in so many seconds, until nothing is left."""
    for _ in range(most):
        for server in room.servers.values():
            if server.waiting and not server.running:
                server.begin()
        await room.clock.advance(seconds)
        for server in room.servers.values():
            if server.running:
                server.finish()
        await room.clock.advance(0.1)
        if not any(server.waiting for server in room.servers.values()):
            return


# Needs.


async def test_a_row_made_by_hand_gets_its_needs_at_its_first_lease(room: Room) -> None:
    room.driver.database.execute(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('a', 'T2I', 'none', 'pending')"
    )
    await room.submit("b", model="one.safetensors")
    room.driver.database.execute("UPDATE jobs SET needs = NULL")
    await room.start()
    await room.clock.advance(1)
    known = await room.store.run(ops.find_needs, [(await room.job("b")).needs])
    assert [model.value for each in known for model in each.models] == ["one.safetensors"]
    assert "workflow_id" in ((await room.job("a")).error_trace or ""), "what nobody can render says so at its server"
    assert (await room.job("b")).status == "processing"


# Eligibility.


async def test_only_a_server_that_has_the_model_gets_the_job(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    room.servers[FIRST].definitions.models = {"one.safetensors"}
    room.servers[SECOND].definitions.models = {"two.safetensors"}
    await room.submit("a", "b", "c", "d", model="two.safetensors")
    await room.start()
    await render_all(room)
    assert (room.servers[FIRST].posts, len(room.servers[SECOND].posts)) == ([], 4)


async def test_a_job_waits_for_the_server_that_has_its_nodes_and_is_down_for_a_moment(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    room.servers[FIRST].definitions.missing = {"CheckpointLoaderSimple"}
    await room.submit("a", model="two.safetensors")
    await room.start()
    room.servers[SECOND].die()
    await room.clock.advance(3)
    await room.submit("b", model="two.safetensors")
    await room.clock.advance(20)
    assert room.servers[FIRST].posts == []
    room.servers[SECOND].start()
    await room.clock.advance(5)
    await render_all(room)
    assert {(await room.job(name)).status for name in "ab"} == {"done"}


async def test_what_no_server_has_is_said_with_where_it_was_looked_for(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND, retry_limit=0)
    for server in room.servers.values():
        server.definitions.models = {"one.safetensors"}

        def refuse(prompt_id: str, server: FakeComfy = server) -> None:
            server.waiting.remove(prompt_id)
            raise PromptRejected("Value not in list", Failure(FailureClass.MISSING, "Value not in list"))

        server.posting = refuse
    await room.submit("a", model="big.safetensors")
    await room.start()
    await room.clock.advance(2)
    job = await room.job()
    assert (job.status, job.failure_class) == ("failed", "missing")
    assert "no server has model big.safetensors for CheckpointLoaderSimple" in (job.error_trace or "")
    assert "looked for at first:8188, second:8188" in (job.error_trace or "")


# Affinity.


@pytest.mark.parametrize(("stay", "loads"), [(1000, 2), (0, 12)])
async def test_a_server_goes_on_with_the_models_it_has_loaded(make_room: MakeRoom, stay: int, loads: int) -> None:
    room = make_room(FIRST, routing={"stay_seconds": stay})
    for number in range(12):
        await room.submit(f"{number}", model=f"{number % 2}.safetensors")
    await room.start()
    await render_all(room)
    assert (await room.store.run(ops.server_sets))[FIRST].loads == loads
    assert {(await room.job(f"{number}")).status for number in range(12)} == {"done"}


async def test_the_oldest_job_is_overtaken_for_no_longer_than_the_stay(make_room: MakeRoom) -> None:
    room = make_room(FIRST, routing={"stay_seconds": 10})
    await room.submit(*(f"a{number}" for number in range(3)), model="a.safetensors")
    await room.submit("b", model="b.safetensors")
    await room.submit(*(f"c{number:02}" for number in range(30)), model="a.safetensors")
    await room.start()
    await render_all(room)
    order = await names_at(room, room.comfy)
    assert 10 <= order.index("b") <= 15
    shown = (await room.store.run(ops.server_sets))[FIRST]
    assert shown.overtakes == order.index("b") - 3


async def test_models_that_load_at_once_are_not_stayed_with(room: Room) -> None:
    room.comfy.load_seconds = 0.0
    for number in range(12):
        await room.submit(f"{number:02}", model=f"{number % 2}.safetensors")
    await room.start()
    await render_all(room)
    order = await names_at(room, room.comfy)
    assert order[8:] == sorted(order[8:]), "by id, once it is known what loading costs"


async def test_priority_wins_over_loaded_models(room: Room) -> None:
    await room.submit(*(f"a{number}" for number in range(6)), model="a.safetensors")
    await room.start()
    await room.submit("urgent", model="b.safetensors", priority=1)
    await render_all(room)
    assert (await names_at(room, room.comfy)).index("urgent") <= 3, "behind what the server had"


async def test_idle_servers_take_different_models(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    for number in range(10):
        await room.submit(f"{number}", model=f"{number % 2}.safetensors")
    await room.start()
    await render_all(room)
    sets = await room.store.run(ops.server_sets)
    assert (sets[FIRST].loads, sets[SECOND].loads) == (1, 1)


async def test_models_are_not_loaded_for_work_that_another_server_is_through_with_sooner(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    await room.submit("a0", model="a.safetensors")
    needs = (await room.job("a0")).needs
    for server in (FIRST, SECOND):
        room.driver.database.execute("INSERT INTO timings VALUES (?, ?, 1, 1.0, 1, 61.0)", (needs, server))
    await room.start()
    await room.clock.advance(3)
    await room.submit(*(f"a{number}" for number in range(1, 6)), model="a.safetensors")
    await render_all(room)
    assert [len(server.posts) for server in room.servers.values()] in ([6, 0], [0, 6])


async def test_a_server_that_was_away_has_nothing_loaded(room: Room) -> None:
    await room.submit("a", model="a.safetensors")
    await room.start()
    await render_all(room)
    room.comfy.die()
    await room.clock.advance(5)
    assert (await room.store.run(ops.server_sets))[FIRST].model_set is None


async def test_a_job_waits_for_a_paused_server_that_alone_has_its_model(make_room: MakeRoom) -> None:
    room = make_room(FIRST, SECOND)
    room.servers[FIRST].definitions.models = {"one.safetensors"}
    await room.store.run(ops.pause_server, SECOND)
    await room.submit("a", model="two.safetensors")
    await room.start()
    await room.clock.advance(200)
    assert ((await room.job()).status, room.servers[FIRST].posts) == ("pending", [])
    await room.store.run(ops.resume_server, SECOND)
    await room.clock.advance(5)
    await render_all(room)
    assert (await room.job()).status == "done"


async def test_a_job_of_an_unknown_workflow_is_not_passed_by_one_of_a_lower_priority(room: Room) -> None:
    await room.submit("low", model="a.safetensors", priority=90)
    await room.submit("high", model="b.safetensors", priority=10)
    await room.start()
    await room.clock.advance(1)
    assert await names_at(room, room.comfy) == ["high", "low"]


async def test_a_row_with_empty_needs_gets_them_too(room: Room) -> None:
    await room.submit("a", model="one.safetensors")
    room.driver.database.execute("UPDATE jobs SET needs = ''")
    await room.start()
    await room.clock.advance(1)
    assert ((await room.job()).status, bool((await room.job()).needs)) == ("processing", True)
