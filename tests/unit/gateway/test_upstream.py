"""The fleet as one server: asked now and then, and remembered while parts of it are away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from comfyui_agent.clock import Clock
from comfyui_agent.gateway import upstream as module
from comfyui_agent.gateway.upstream import FleetAway, Upstream


class MovedClock(Clock):
    time = 1000.0

    def now(self) -> float:
        return self.time


class Comfy:
    """A ComfyUI that says what the test wants, or is away."""

    def __init__(self, number: int) -> None:
        self.facts: dict[str, Any] = {
            "/object_info": {"Loader": {"input": {"required": {"name": [[f"model{number}"]]}}}, f"Only{number}": {}},
            "/system_stats": {"system": {"os": f"os{number}"}, "devices": [{"name": f"gpu{number}"}]},
            "/features": {"number": number},
            "/models": ["vae", f"folder {number}/"],
            "/models/vae": [f"vae{number}"],
            f"/models/folder%20{number}%2F": ["x"],
        }
        self.asked: Counter[str] = Counter()
        self.headers: list[Any] = []
        self.freed: list[Any] = []
        self.is_away = False
        self.held = asyncio.Event()
        self.held.set()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.rel_url.raw_path
        self.asked[path] += 1
        self.headers.append(request.headers)
        await self.held.wait()
        if self.is_away:
            return web.Response(status=503)
        if path == "/free":
            self.freed.append(await request.json())
            return web.Response()
        if path == "/view" and request.query["filename"] == "a.png":
            return web.Response(body=b"picture", content_type="image/png")
        return web.json_response(self.facts[path]) if path in self.facts else web.Response(status=404)


class Fleet:
    def __init__(self, servers: list[Comfy]) -> None:
        self.servers = servers
        self.clock = MovedClock()
        self.urls = [server.url for server in servers]
        self.upstream = Upstream(lambda: self.urls, self.clock)

    async def settle(self) -> None:
        """Until everything that is asked for in the background is there."""
        facts = (self.upstream._definitions, self.upstream._stats, self.upstream._features, self.upstream._models)
        await asyncio.gather(*(fact.asking for fact in facts if fact.asking is not None))


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    servers = [Comfy(1), Comfy(2)]
    for server in servers:
        await server.server.start_server()
    made = Fleet(servers)
    yield made
    await made.upstream.close()
    for server in servers:
        server.held.set()
        await server.server.close()


async def devices(fleet: Fleet) -> list[str]:
    return [device["name"] for device in (await fleet.upstream.system_stats())["devices"]]


async def test_the_facts_of_all_servers_are_one_answer(fleet: Fleet) -> None:
    upstream = fleet.upstream
    together = {"Loader": {"input": {"required": {"name": [["model1", "model2"]]}}}, "Only1": {}, "Only2": {}}
    assert await upstream.object_info(None) == together
    assert await upstream.object_info("Only2") == {"Only2": {}}
    assert await upstream.object_info("Nothing") == {}
    assert (await upstream.system_stats())["system"] == {"os": "os1"}
    assert await devices(fleet) == ["gpu1", "gpu2"]
    assert await upstream.features() == {"number": 1}
    assert await upstream.models() == {"vae": ["vae1", "vae2"], "folder 1/": ["x"], "folder 2/": ["x"]}
    assert all("Origin" not in headers for server in fleet.servers for headers in server.headers)


async def test_a_server_is_asked_once_for_many_callers_and_again_when_its_answer_is_old(fleet: Fleet) -> None:
    await asyncio.gather(*(fleet.upstream.object_info(None) for _ in range(20)))
    fleet.clock.time += 29
    first = await fleet.upstream.object_info(None)
    assert fleet.servers[0].asked["/object_info"] == 1
    fleet.clock.time += 1
    fleet.servers[0].facts["/object_info"]["New"] = {}
    assert "New" not in await fleet.upstream.object_info(None), "nobody waits for it"
    await fleet.settle()
    second = await fleet.upstream.object_info(None)
    assert "New" in second
    assert fleet.servers[0].asked["/object_info"] == 2
    assert second is not first


async def test_answers_that_stay_the_same_stay_the_same_object(fleet: Fleet) -> None:
    first = await fleet.upstream.object_info(None)
    fleet.clock.time += 31
    await fleet.upstream.object_info(None)
    await fleet.settle()
    assert (await fleet.upstream.object_info(None)) is first
    assert fleet.servers[0].asked["/object_info"] == 2


async def test_whoever_would_get_something_much_older_waits_a_moment(fleet: Fleet) -> None:
    await devices(fleet)
    fleet.clock.time += 50
    fleet.servers[1].facts["/system_stats"]["devices"] = [{"name": "new"}]
    assert await devices(fleet) == ["gpu1", "new"]


async def test_but_no_longer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    await devices(fleet)
    fleet.clock.time += 50
    fleet.servers[1].held.clear()
    assert await devices(fleet) == ["gpu1", "gpu2"]


async def test_what_a_server_said_counts_while_it_is_away_and_as_long_as_it_is_of_the_fleet(fleet: Fleet) -> None:
    first, second = fleet.servers
    await devices(fleet)
    first.is_away = second.is_away = True
    fleet.clock.time += 50
    assert await devices(fleet) == ["gpu1", "gpu2"]
    second.is_away = False
    second.facts["/system_stats"]["devices"] = [{"name": "new"}]
    fleet.clock.time += 2
    await devices(fleet)
    await fleet.settle()
    assert await devices(fleet) == ["gpu1", "new"]
    fleet.urls = fleet.urls[1:]
    fleet.clock.time += 50
    assert await devices(fleet) == ["new"]


async def test_a_server_that_comes_late_is_asked_again_soon(fleet: Fleet) -> None:
    first, second = fleet.servers
    second.is_away = True
    assert list(await fleet.upstream.object_info(None)) == ["Loader", "Only1"]
    second.is_away = False
    fleet.clock.time += 2
    await fleet.upstream.object_info(None)
    await fleet.settle()
    assert "Only2" in await fleet.upstream.object_info(None)
    assert first.asked["/object_info"] == 2


async def test_while_none_has_ever_answered_that_is_said_and_soon_tried_again(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.is_away = True
    for _ in range(3):
        with pytest.raises(FleetAway, match=f"no ComfyUI answers at {fleet.urls[0]}, {fleet.urls[1]}"):
            await fleet.upstream.features()
    assert fleet.servers[0].asked["/features"] == 1, "and not for every caller"
    fleet.servers[1].is_away = False
    fleet.clock.time += 2
    assert await fleet.upstream.features() == {"number": 2}


async def test_without_servers_that_is_said() -> None:
    upstream = Upstream(tuple, MovedClock())
    for asked in (upstream.object_info(None), upstream.free(True, True)):
        with pytest.raises(FleetAway, match="there is no ComfyUI server yet"):
            await asked


@pytest.mark.parametrize("odd", [[], "x", 1, None])
async def test_a_server_that_answers_something_else_counts_as_away(fleet: Fleet, odd: Any) -> None:
    fleet.servers[0].facts |= {"/object_info": odd, "/models": odd, "/features": odd}
    assert "Only1" not in await fleet.upstream.object_info(None)
    assert await fleet.upstream.features() == {"number": 2}


async def test_an_older_server_has_fewer_facts(fleet: Fleet) -> None:
    for path in ("/features", "/models"):
        del fleet.servers[0].facts[path]
    assert await fleet.upstream.features() == {}
    assert await fleet.upstream.models() == {"vae": ["vae2"], "folder 2/": ["x"]}


async def test_what_was_begun_at_the_start_is_not_asked_for_twice(fleet: Fleet) -> None:
    fleet.upstream.start()
    await fleet.upstream.object_info(None)
    assert [server.asked["/object_info"] for server in fleet.servers] == [1, 1]


async def test_memory_is_freed_everywhere(fleet: Fleet) -> None:
    fleet.servers[0].is_away = True
    await fleet.upstream.free(True, False)
    assert fleet.servers[1].freed == [{"unload_models": True, "free_memory": False}]
    fleet.servers[1].is_away = True
    with pytest.raises(FleetAway):
        await fleet.upstream.free(True, True)


async def test_a_file_comes_from_the_server_that_is_named(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    view = fleet.upstream.view
    assert await view(fleet.urls[1], {"filename": "a.png", "type": "temp"}) == (b"picture", "image/png")
    assert fleet.servers[0].asked["/view"] == 0
    assert await view(fleet.urls[1], {"filename": "b.png"}) is None
    assert await view("http://elsewhere:8188", {"filename": "a.png"}) is None
    monkeypatch.setattr(module, "LARGEST_FILE", 6)
    assert await view(fleet.urls[1], {"filename": "a.png"}) is None
    fleet.servers[1].is_away = True
    assert await view(fleet.urls[1], {"filename": "a.png"}) is None
