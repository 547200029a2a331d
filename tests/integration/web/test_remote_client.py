"""The client of `comfyui_agent.remote`, with and without an event loop, against the real API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from comfyui_agent.domain.results import Result
from comfyui_agent.remote import AsyncClient, Client, DamagedResult, IdTaken, NotReady, Refused, Unreachable, exchange
from comfyui_agent.store import operations as ops
from support.cutting_proxy import Cut, CuttingProxy
from support.pictures import png
from support.web import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVER_PACKAGES = {"fastapi", "starlette", "uvicorn", "apsw", "aiohttp", "PIL", "yaml", "typer"}

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(exchange, "TRIES", 3)


@pytest.fixture
def proxy(house: Served) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(urlsplit(house.url).port or 0)
    yield proxy
    proxy.close()


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest, proxy: CuttingProxy) -> AsyncIterator[Ask]:
    """Calls a method of a client by its name."""
    address = f"http://127.0.0.1:{proxy.port}"
    if request.param == "sync":
        with Client(address) as client:
            yield lambda name, *args, **said: asyncio.to_thread(getattr(client, name), *args, **said)
    else:
        async with AsyncClient(address) as patient:
            yield lambda name, *args, **said: getattr(patient, name)(*args, **said)


async def done(house: Served) -> Result:
    """A finished job; its result as the API shows it."""
    await house.job(f"done {house.store.version}")
    [leased] = await house.lease()
    await house.finish(leased)
    shown = (await house.get(f"/api/v1/jobs/{leased.lease.job_id}")).value
    return Result(**shown["results"][0])


@pytest.mark.parametrize("cut", list(Cut))
async def test_what_is_submitted_through_a_lost_answer_is_made_once(
    house: Served, ask: Ask, proxy: CuttingProxy, cut: Cut
) -> None:
    before = len((await house.get("/api/v1/jobs?limit=1000")).value["jobs"])
    proxy.cut(cut, 1)
    job = await ask("submit", "picture", {"color": 1}, priority=7)
    assert proxy.has_cut
    assert (await ask("job", job.id)).priority == 7
    assert len((await house.get("/api/v1/jobs?limit=1000")).value["jobs"]) == before + 1


async def test_a_key_of_ones_own_finds_what_was_made_and_makes_nothing_twice(house: Served, ask: Ask) -> None:
    key = f"order-{house.store.version}"
    made = await ask("submit", "picture", {"color": 1}, external_id=key)
    assert (await ask("find", key)).id == str(made.id)
    with pytest.raises(IdTaken) as taken:
        await ask("submit", "picture", {"color": 2}, external_id=key)
    assert taken.value.made is not None
    assert taken.value.made.id == str(made.id)


async def test_a_sweep_and_a_book_are_batches_with_results_in_order(house: Served, ask: Ask) -> None:
    sweep = await ask("sweep", "picture", {"color": "1..3"})
    assert sweep.total == 3
    book = await ask("book", "picture", [{"inputs": {"color": 1}}, {"inputs": {"color": 2}}])
    assert [page.page for page in book.pages] == [1, 2]
    assert [each.settings["color"] for each in (await ask("results", sweep.id)).results] == [1, 2, 3]
    with pytest.raises(NotReady):
        await ask("wait_batch", sweep.id, timeout=0.1)
    for batch_id in (sweep.id, book.id):
        await ask("cancel_batch", batch_id)
        assert (await ask("wait_batch", batch_id, timeout=5)).status == "cancelled"


async def test_waiting_ends_with_the_job(house: Served, ask: Ask) -> None:
    job = await house.job(f"waited for {house.store.version}", priority=1)
    waiting = asyncio.ensure_future(ask("wait_job", job.id, timeout=30))
    [leased] = await house.lease()
    await house.fail(leased)
    ended = await waiting
    assert (ended.status, ended.failure_class) == ("failed", "execution")


async def test_what_is_refused_says_why_to_programs_and_people(house: Served, ask: Ask) -> None:
    with pytest.raises(Refused) as refused:
        await ask("submit", "picture", {"colour": 1})
    assert refused.value.status == 409
    assert refused.value.problem.type.endswith("#bad-values")
    assert "inputs.colour" in str(refused.value)
    with pytest.raises(Refused, match="no job 'nobody'"):
        await ask("job", "nobody")


async def test_nobody_there_is_said_after_some_tries() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(Unreachable):
        await asyncio.to_thread(client.status)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_a_result_arrives_whole_or_not_at_all(
    house: Served, ask: Ask, proxy: CuttingProxy, cut: Cut, tmp_path: Path
) -> None:
    result = await done(house)
    proxy.cut(cut, 1)
    path = await ask("download", result, tmp_path)
    assert path == tmp_path / result.name
    assert path.read_bytes() == png()
    damaged = Result(**{**vars(result), "sha256": "0" * 64})
    with pytest.raises(DamagedResult):
        await ask("download", damaged, tmp_path / "other.png")
    assert [each.name for each in tmp_path.iterdir()] == [result.name]


async def test_a_stream_of_events_goes_on_where_it_was_cut(house: Served, proxy: CuttingProxy) -> None:
    async with AsyncClient(f"http://127.0.0.1:{proxy.port}") as client:
        stream = client.events(after=await house.store.run(ops.newest_event))
        names = [f"told {house.store.version} {number}" for number in range(6)]
        heard = []
        for number, name in enumerate(names):
            await house.job(name)
            heard.append((await anext(stream)).data["config_name"])
            if number % 2:
                proxy.drop()
        assert heard == names


async def test_a_program_that_imports_the_client_imports_no_server() -> None:
    code = "import sys, comfyui_agent.remote; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert SERVER_PACKAGES.isdisjoint(found)
