"""--imitate: what a server older than those of the conformance suite does not do."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.graphs import picture, slow_graph
from support.wire import Wire

from .conftest import Shared, connected

OLD, USUAL = "0.3.50", "0.33.0"


@pytest.fixture(params=[OLD, USUAL])
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def wire(shared: Shared, version: str) -> AsyncIterator[Wire]:
    async with connected(shared.get(*switches(version))) as ready:
        yield ready
        await ready.leave()


@pytest.fixture
async def slow(shared: Shared, version: str) -> AsyncIterator[Wire]:
    """A server on which a render is longer than the test."""
    async with connected(shared.get(*switches(version), "--render-seconds", "60")) as ready:
        yield ready
        await ready.leave()


def switches(version: str) -> list[str]:
    return [] if version == USUAL else ["--imitate", version]


def history_error(entry: dict[str, Any]) -> str:
    event: str = entry["status"]["messages"][-1][0]
    return event


async def test_the_version_is_shown(wire: Wire, version: str) -> None:
    assert (await wire.get("/system_stats")).body["system"]["comfyui_version"] == version


@pytest.mark.parametrize("given", ["0.7", "0.7.0"])
async def test_a_patch_level_need_not_be_given(shared: Shared, given: str) -> None:
    async with connected(shared.get("--imitate", given)) as older:
        assert (await older.get("/system_stats")).body["system"]["comfyui_version"] == "0.7.0"


async def test_an_interrupt_with_an_id_spares_other_prompts_since_0_3_57(slow: Wire, version: str) -> None:
    prompt_id = await slow.submit(await slow_graph(slow))
    await slow.running(prompt_id)
    await slow.interrupt(str(uuid.uuid4()))
    if version == OLD:
        assert history_error(await slow.finished(prompt_id)) == "execution_interrupted"
    else:
        await slow.running(prompt_id)
        await slow.interrupt(prompt_id)
        assert history_error(await slow.finished(prompt_id)) == "execution_interrupted"


async def test_the_creation_time_is_noted_since_0_3_69(wire: Wire, version: str) -> None:
    entry = await wire.run(picture())
    assert ("create_time" in entry["prompt"][3]) is (version != OLD)


async def test_jobs_are_listed_since_0_6(wire: Wire, version: str) -> None:
    await wire.run(picture())
    answer = await wire.get("/api/jobs")
    assert answer.status == (404 if version == OLD else 200)
