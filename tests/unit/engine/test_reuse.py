"""`reuse: same`: a result that was made of the same is taken, and rendered only where that is not sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from comfyui_agent.domain.jobs import SAME
from support.engine import Room

MODEL = "a.safetensors"


async def rendered(room: Room, name: str = "a", **facts: object) -> None:
    await room.submit(name, model=MODEL, **{"reuse": SAME, **facts})
    await room.clock.advance(0.5)
    if room.comfy.waiting:
        room.comfy.render()
    await room.clock.advance(1)
    assert (await room.job(name)).status == "done"


def result(room: Room, job_outputs: tuple[str, ...]) -> bytes:
    return (room.workspace.results.folder / job_outputs[0]).read_bytes()


async def test_the_same_again_is_given_the_recorded_result_under_its_own_name(room: Room) -> None:
    await room.start()
    await rendered(room)
    await rendered(room, "again")
    first, again = await room.job("a"), await room.job("again")
    assert len(room.comfy.posts) == 1
    assert (again.reused_from, again.run_count, again.server, again.prompt_id) == (first.id, 0, None, None)
    assert await room.attempts("again") == []
    assert again.outputs != first.outputs
    assert result(room, again.outputs) == result(room, first.outputs)
    assert first.reused_from is None


async def test_a_third_one_names_the_job_that_was_rendered(room: Room) -> None:
    await room.start()
    for name in ("a", "b", "c"):
        await rendered(room, name)
    assert (await room.job("c")).reused_from == (await room.job("a")).id


async def test_it_waits_for_no_turn(room: Room) -> None:
    """Where the queue is long, who only needs a copy has it at once."""
    await room.start()
    await rendered(room)
    await room.submit(*(f"waits {number}" for number in range(20)), priority=1)
    await room.clock.advance(0.5)
    await rendered(room, "again", priority=99)
    assert (await room.job("again")).reused_from
    assert (await room.job("waits 19")).status == "pending"


def other_values(room: Room, facts: dict[str, object]) -> None:
    facts["inputs"] = {"9.filename_prefix": "y"}


def other_bytes(room: Room, facts: dict[str, object]) -> None:
    [path] = Path(room.workspace.results.folder).rglob("a.png")
    path.write_bytes(path.read_bytes() + b"!")


def gone(room: Room, facts: dict[str, object]) -> None:
    [path] = Path(room.workspace.results.folder).rglob("a.png")
    path.unlink()


def other_version(room: Room, facts: dict[str, object]) -> None:
    room.comfy.version = "0.33.0"


def other_model(room: Room, facts: dict[str, object]) -> None:
    room.comfy.models[MODEL] = "checkpoints 0 7000 1.5"


def unknown_model(room: Room, facts: dict[str, object]) -> None:
    room.comfy.models.clear()


def not_asked_for(room: Room, facts: dict[str, object]) -> None:
    facts["reuse"] = None


@pytest.mark.parametrize(
    "change", [other_values, other_bytes, gone, other_version, other_model, unknown_model, not_asked_for]
)
async def test_what_is_not_surely_the_same_is_rendered(
    room: Room, change: Callable[[Room, dict[str, object]], None]
) -> None:
    await room.start()
    await rendered(room)
    facts: dict[str, object] = {}
    change(room, facts)
    await room.clock.advance(60)  # what was known of the server is old
    await rendered(room, "again", **facts)
    assert len(room.comfy.posts) == 2
    assert (await room.job("again")).reused_from is None


async def test_a_job_that_is_rendered_again_gets_another_result(room: Room) -> None:
    """Whoever asks for another take does not want the same."""
    await room.start()
    await rendered(room)
    room.driver.database.execute("UPDATE jobs SET status = 'pending' WHERE config_name = 'a'")
    await room.clock.advance(30)
    room.comfy.render()
    await room.clock.advance(1)
    assert len(room.comfy.posts) == 2
    assert (await room.job("a")).take == 2


async def test_an_agent_that_dies_while_it_copies_leaves_nothing(make_room: Callable[..., Room]) -> None:
    """The job waits as before, and the next agent gives it the result."""
    room = make_room()
    await room.start()
    await rendered(room)
    await room.stop()
    await room.submit("again", model=MODEL, reuse=SAME)
    room.driver.database.execute(
        "UPDATE jobs SET status = 'processing', run_count = 1, worker_id = 'dead', server = 'http://first:8188', "
        "prompt_id = 'p', lease_expires_at = '2000-01-01 00:00:00.000' WHERE config_name = 'again'"
    )
    room.driver.database.execute(
        "INSERT INTO attempts (job_id, number, server, prompt_id, worker_id) "
        "SELECT id, 1, server, prompt_id, worker_id FROM jobs WHERE config_name = 'again'"
    )
    await room.start()
    await room.clock.advance(30)
    again = await room.job("again")
    assert (again.status, again.reused_from) == ("done", (await room.job("a")).id)
    assert len(room.comfy.posts) == 1
