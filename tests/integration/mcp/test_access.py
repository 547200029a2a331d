"""Who may call which tool: the tokens, owners and limits of the page hold for AI agents, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from support.mcp_clients import agent_at
from support.web import Keys, Served, bearer, check_problem, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"Accept": "application/json, text/event-stream"}
PICTURE = {"workflow": "picture", "inputs": {"color": 1}}
BOOK = {"workflow": "picture", "pages": [{"inputs": {"color": 1}}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Served, Keys]]:
    async with served(tmp_path_factory.mktemp("locked")) as asking:
        yield asking, Keys(**{role.value: await asking.token(role) for role in Role})


async def test_strangers_and_other_sites_get_nothing(locked: tuple[Served, Keys]) -> None:
    house, keys = locked
    for headers, status in (
        ({}, 401),
        (bearer("e3_wrong"), 401),
        (bearer(keys.metrics), 403),
        ({**bearer(keys.user), "Origin": "http://evil.example"}, 403),
        ({**bearer(keys.user), "Sec-Fetch-Site": "cross-site"}, 403),
    ):
        check_problem(await house.post("/mcp", LIST, headers={**HEADERS, **headers}), status)
    for method in ("GET", "DELETE"):
        check_problem(await house.ask(method, "/mcp", headers={**HEADERS, **bearer(keys.user)}), 405)
    for kind, data, status in (
        ("application/json", b"[" * 100_000, 413),
        ("text/plain", b"{}", 415),
    ):
        headers = {**HEADERS, **bearer(keys.read), "Content-Type": kind}
        check_problem(await house.post("/mcp", headers=headers, data=data), status)


async def test_readers_look_users_change_their_own_and_admins_all(locked: tuple[Served, Keys]) -> None:
    house, keys = locked
    other = await house.token(Role.USER, "other")
    async with (
        agent_at(house.url, keys.read) as reader,
        agent_at(house.url, keys.user) as user,
        agent_at(house.url, other) as stranger,
        agent_at(house.url, keys.admin) as admin,
    ):
        made = await user.ask("submit_job", **PICTURE, key="mine")
        assert (await reader.ask("status", id=made["name"]))["state"] == "Pending"
        assert await reader.ask("list_workflows")
        changes: list[tuple[str, dict[str, Any]]] = [
            ("submit_job", PICTURE),
            ("submit_sweep", {"workflow": "picture", "set": {"color": "1"}, "dry_run": True}),
            ("submit_book", BOOK),
            ("cancel", {"id": made["name"]}),
            ("retry", {"id": made["name"]}),
            ("regenerate", {"id": made["name"]}),
        ]
        for tool, arguments in changes:
            assert "may look, not change anything" in await reader.refused(tool, **arguments), tool
        assert "for admins" in await user.refused("doctor")
        assert await admin.ask("doctor")
        assert "yours to change" in await stranger.refused("cancel", id=made["name"])
        theirs = await stranger.ask("submit_job", **PICTURE, key="mine")
        assert (theirs["is_new"], theirs["id"] != made["id"]) == (True, True), "keys are of the token that gave them"
        assert (await user.ask("status", id="mine"))["id"] == made["id"]
        assert "was not made" in await reader.refused("status", id="mine")
        assert "is for admins" in await user.refused("submit_job", **PICTURE, priority=1)
        assert (await admin.ask("cancel", id=made["name"], confirm=True))["confirmed"]
        book = (await user.ask("submit_book", **BOOK, key="book"))["id"]
        assert "are for admins" in await user.refused("regenerate", id=book, pages=[1], new_seed=True)
        [leased] = await house.lease(1, book)
        await house.finish(leased)
        assert "has not failed" in await user.refused("regenerate", id=book, pages=[1], confirm=True)
        assert (await admin.ask("regenerate", id=book, pages=[1], confirm=True))["jobs"] == 1
    events = [each.name for each in await house.store.run(ops.audit_trail, most=100)]
    assert {"audit.job.submit", "audit.job.cancel", "audit.book.create", "audit.book.regenerate"} <= {*map(str, events)}


async def test_each_caller_gets_only_their_own_identity(locked: tuple[Served, Keys]) -> None:
    """Many at once, over connections that are shared: no call is done in the name of another."""
    house, _ = locked
    tokens = [await house.token(Role.USER, f"caller {number}") for number in range(4)]

    async def submit(number: int) -> None:
        async with agent_at(house.url, tokens[number]) as agent:
            answers = await asyncio.gather(*(agent.ask("submit_job", **PICTURE, key=f"{n}") for n in range(3)))
            for answer in answers:
                job = await house.store.run(ops.find_job, answer["name"])
                assert job is not None
                assert await house.store.run(ops.token_name, job.created_by) == f"caller {number}"

    await asyncio.gather(*map(submit, range(4)))


async def test_the_limits_of_a_token_hold(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("limited")
    async with served(folder, changes_per_minute=3, open_jobs_per_user=2) as house:
        token = await house.token(Role.USER)
        async with agent_at(house.url, token) as agent:
            await agent.ask("submit_job", **PICTURE, key="1")
            await agent.ask("submit_job", **PICTURE, key="1")
            await agent.ask("submit_job", **PICTURE, key="2")
            assert "at most 2 may wait or render" in await agent.refused("submit_job", **PICTURE, key="3")
            assert "more than 3 changes a minute" in await agent.refused("cancel", id="1", confirm=True)
            assert (await agent.ask("cancel", id="1"))["confirmed"] is False
            assert (await agent.ask("status", id="1"))["state"] == "Pending"
