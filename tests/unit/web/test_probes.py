"""What machines that watch over processes are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.limits import RequestLimits
from comfyui_agent.access.problem import Problem
from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.domain.tokens import Role
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.overview import Gauges
from comfyui_agent.store.records import Counts
from comfyui_agent.web import probes
from comfyui_agent.web.metrics import CONTENT_TYPE, Metrics
from comfyui_agent.web.problems import add_handlers
from support.stores import ScriptedStore

STATS = SystemStats("0.7.0", "3.12", "2.8", "posix", 0, 0, ())
UP = ServerReport("gpu1:8188", "http://gpu1:8188", STATS, 0, 0)
DOWN = ServerReport("gpu2:8188", "http://gpu2:8188", error="connection refused by http://anna:secret@gpu2:8188")


class Store(ScriptedStore):
    """A database that answers, fails or is silent."""

    error: Exception | None = None
    is_silent = False

    async def count_jobs(self) -> Counts:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return Counts()

    async def read_gauges(self) -> Gauges:
        return Gauges(await self.count_jobs(), 0.0, {}, 0)


class Fleet:
    servers: tuple[ServerReport, ...] = (UP,)
    is_silent = False

    async def reports(self) -> list[ServerReport]:
        if self.is_silent:
            await asyncio.Event().wait()
        return list(self.servers)

    async def processes(self) -> dict[str, Any]:
        return {}

    async def agents(self) -> int:
        return 1


class Gate:
    is_open = True
    error: Exception | None = None

    async def admit(self, _: object) -> Caller:
        if self.error is not None:
            raise self.error
        if not self.is_open:
            raise Problem(401, "this needs a token", "Make one.")
        return Caller(Role.ADMIN)


@dataclass
class World:
    """The routes in front of a database, servers and a gate that a test may change."""

    client: httpx.AsyncClient
    store: Store
    fleet: Fleet
    gate: Gate


@pytest.fixture
async def world() -> AsyncIterator[World]:
    store, fleet, gate = Store(), Fleet(), Gate()
    app = FastAPI()
    app.state.context = SimpleNamespace(
        store=store,
        fleet=fleet,
        gate=gate,
        metrics=Metrics(store, fleet),
        workspace=Workspace(Path(), Settings()),
        limits=RequestLimits(Settings().ui),
    )
    app.include_router(probes.router)
    add_handlers(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield World(client, store, fleet, gate)


async def test_a_process_that_answers_is_healthy_whatever_else_is_broken(world: World) -> None:
    world.store.is_silent = world.fleet.is_silent = True
    answer = await world.client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_it_is_ready_with_a_database_and_a_server(world: World) -> None:
    world.fleet.servers = (UP, DOWN)
    answer = await world.client.get("/readyz")
    assert answer.status_code == 200
    servers = {"gpu1:8188": "up", "gpu2:8188": "down"}
    assert answer.json() == {"status": "ready", "database": "ok", "servers": servers}


@pytest.mark.parametrize("halt", list(ServerState))
async def test_a_server_that_people_took_out_of_work_is_there_all_the_same(world: World, halt: ServerState) -> None:
    world.fleet.servers = (ServerReport(UP.name, UP.url, STATS, 0, 0, out_of_work=halt), DOWN)
    answer = await world.client.get("/readyz")
    assert (answer.status_code, answer.json()["servers"]["gpu1:8188"]) == (200, halt.value)


@pytest.mark.parametrize("servers", [(), (DOWN,)])
async def test_it_is_not_ready_without_a_server(world: World, servers: tuple[ServerReport, ...]) -> None:
    world.fleet.servers = servers
    answer = await world.client.get("/readyz")
    states = {report.name: "down" for report in servers}
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "database": "ok", "servers": states}


async def test_it_is_not_ready_without_a_database_and_does_not_say_where_that_lies(world: World) -> None:
    world.store.error = DatabaseAway("the database /home/anna/jobs.db cannot be read")
    answer = await world.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "database": "cannot be read", "servers": {"gpu1:8188": "up"}}


@pytest.mark.timing
async def test_it_says_within_two_seconds_what_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probes.PATIENCE < 2.0
    monkeypatch.setattr(probes, "PATIENCE", 0.05)
    world.store.is_silent = world.fleet.is_silent = True
    began = time.monotonic()
    answer = await world.client.get("/readyz")
    assert time.monotonic() - began < 1.0
    assert answer.status_code == 503
    assert answer.json() == {"status": "not ready", "database": "does not answer", "servers": {}}


async def test_one_server_that_hangs_does_not_hide_what_was_known_a_moment_ago(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.client.get("/readyz")
    monkeypatch.setattr(probes, "PATIENCE", 0.05)
    world.fleet.is_silent = True
    assert (await world.client.get("/readyz")).status_code == 200


async def test_no_secret_is_shown(world: World) -> None:
    world.fleet.servers = (DOWN,)
    assert "secret" not in (await world.client.get("/readyz")).text
    assert "secret" not in (await world.client.get("/metrics")).text


async def test_metrics_are_served_as_prometheus_wants_them(world: World) -> None:
    answer = await world.client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"e3_jobs", "e3_server_state", "e3_job_duration_seconds"} <= names


async def test_only_metrics_need_a_token(world: World) -> None:
    world.gate.is_open = False
    asked = [await world.client.get(path) for path in ("/metrics", "/healthz", "/readyz")]
    assert [answer.status_code for answer in asked] == [401, 200, 200]
    assert asked[2].json() == {"status": "ready"}


async def test_a_stranger_learns_only_yes_or_no(world: World) -> None:
    world.gate.is_open, world.fleet.servers = False, (DOWN,)
    answer = await world.client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready"})
    world.gate.error = DatabaseAway("the database /home/anna/jobs.db is locked")
    assert (await world.client.get("/readyz")).json() == {"status": "not ready"}


async def test_the_answers_are_described(world: World) -> None:
    paths = (await world.client.get("/openapi.json")).json()["paths"]
    assert set(paths["/readyz"]["get"]["responses"]) == {"200", "503"}
    assert list(paths["/metrics"]["get"]["responses"]["200"]["content"]) == [CONTENT_TYPE]
