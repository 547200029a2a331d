"""Who may ask: everyone on this machine until there is a token, then whoever shows one; wrong ones are counted."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from comfyui_agent.domain.tokens import Role, hash_of
from support.web import Answer, Served, bearer, check_problem, served, watching
from support.workspaces import call_e3

WINDOW = 60
AT_ONCE = 2.0
"""Seconds within which a running page has heard of a token."""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "house") as place:
        yield place


async def e3(house: Served, *arguments: str) -> Any:
    """The command line, beside the page that is served."""
    answer = await asyncio.to_thread(call_e3, *arguments, "--json", "-C", str(house.workspace.root))
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


async def soon(ask: Callable[[], Awaitable[Answer]], status: int) -> Answer:
    """The answer, as soon as it is of that status."""
    deadline = time.monotonic() + AT_ONCE
    while (answer := await ask()).status != status:
        assert time.monotonic() < deadline, f"still {answer.status}"
        await asyncio.sleep(0.02)
    return answer


async def form(house: Served, path: str = "/login", **said: str) -> Answer:
    body = "&".join(f"{key}={quote(value, safe='')}" for key, value in said.items())
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": house.url}
    return await house.post(path, data=body, headers=headers)


async def test_the_first_token_closes_a_running_page_and_the_last_one_opens_it_again(house: Served) -> None:
    assert (await house.get("/api/v1/me")).value == {"role": "admin", "token": None}
    made = await e3(house, "token", "create", "--role", "user", "--name", "shop")
    await soon(lambda: house.get("/api/v1/me"), 401)
    check_problem(await house.get("/api/v1/jobs"), 401)
    assert (await house.get("/api/v1/me", headers=bearer(made["token"]))).value == {"role": "user", "token": "shop"}
    await e3(house, "token", "revoke", str(made["id"]))
    assert (await soon(lambda: house.get("/api/v1/me"), 200)).value["role"] == "admin"


async def test_a_token_that_is_taken_back_is_worth_nothing_at_once(house: Served) -> None:
    shop = await e3(house, "token", "create", "--role", "user", "--name", "shop")
    studio = await e3(house, "token", "create", "--role", "admin", "--name", "studio")
    await soon(lambda: house.get("/api/v1/me", headers=bearer(shop["token"])), 200)
    await e3(house, "token", "revoke", str(shop["id"]))
    await soon(lambda: house.get("/api/v1/me", headers=bearer(shop["token"])), 401)
    assert (await house.get("/api/v1/me", headers=bearer(studio["token"]))).status == 200


@pytest.mark.parametrize("path", ["/api/v1/events", "/stream?page=/queue"])
async def test_a_stream_tells_nothing_more_to_a_token_that_was_taken_back(house: Served, path: str) -> None:
    user = await house.token(Role.USER)
    await house.token(Role.ADMIN)
    [known, _] = await house.store.tokens()
    async with watching(house, path, Authorization=f"Bearer {user}") as stream:
        await house.job("before")
        await stream.until(lambda frame: "before" in frame.data)
        await house.store.revoke_token(known.id)
        await soon(lambda: house.get("/api/v1/me", headers=bearer(user)), 401)
        await house.job("afterwards")
        assert not [frame for frame in await stream.rest() if "afterwards" in frame.data]


@pytest.mark.parametrize("path", ["/api/v1/events", "/stream?page=/queue"])
async def test_a_stream_tells_nothing_more_to_everyone_once_there_is_a_token(house: Served, path: str) -> None:
    async with watching(house, path) as stream:
        await house.token(Role.ADMIN)
        await soon(lambda: house.get("/api/v1/me"), 401)
        await house.job("afterwards")
        assert not [frame for frame in await stream.rest() if "afterwards" in frame.data]


async def test_nothing_of_a_token_is_kept_but_its_hash_and_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(tmp_path / "house") as house:
        secret = await house.token(Role.USER)
        other = "e3_" + "B" * 43
        for token in (secret, other):
            for headers in (bearer(token), {"Cookie": f"e3_token={token}"}):
                for path in ("/", "/api/v1/me", "/api/v1/jobs/nobody", f"/api/v1/jobs/{token}", "/stream"):
                    await house.get(path, headers=headers)
            answer = await form(house, token=token, next="/")
            assert token not in answer.text
        body = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
        key = {"Idempotency-Key": "once"}
        assert (await house.post("/api/v1/jobs", body, headers={**bearer(secret), **key})).status == 201
        listed = await house.get("/api/v1/me", headers=bearer(secret))
        assert secret not in listed.text
        hashes = [token.hash for token in await house.store.tokens()]
    files = [path for path in (tmp_path / "house" / "database").rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    assert hashes == [hash_of(secret)]
    assert hashes[0].encode() in kept
    for token in (secret, other):
        assert token.encode() not in kept
        assert token[3:].encode() not in kept
        assert token not in caplog.text.replace(f"/api/v1/jobs/{token}", "")


async def test_ten_wrong_tokens_are_answered_with_a_pause_and_a_token_that_is_known_goes_on(house: Served) -> None:
    good, other = await house.token(Role.ADMIN, "good"), await house.token(Role.USER, "other")
    assert (await house.get("/api/v1/me", headers=bearer(good))).status == 200
    for number in range(10):
        check_problem(await house.get("/api/v1/me", headers=bearer(f"e3_wrong{number}")), 401)
    refused = await house.get("/api/v1/me", headers=bearer("e3_wrong"))
    said = check_problem(refused, 429)
    assert "10 wrong tokens" in said["detail"]
    assert 0 < int(refused.headers["Retry-After"]) <= WINDOW
    assert (await house.get("/api/v1/me", headers=bearer(good))).status == 200
    check_problem(await house.get("/api/v1/me", headers=bearer(other)), 429)
    check_problem(await house.get("/api/v1/me"), 401)
    blocked = await form(house, token="e3_wrong")
    assert (blocked.status, "Set-Cookie" in blocked.headers) == (429, False)
    assert "Wait" in blocked.text


async def test_a_page_that_others_can_reach_is_never_open(tmp_path: Path) -> None:
    async with served(tmp_path / "house") as house:
        secret = await house.token(Role.ADMIN)
    async with served(tmp_path / "house", host="0.0.0.0") as reached:
        assert (await reached.get("/api/v1/me", headers=bearer(secret))).value["role"] == "admin"
        assert (await reached.get("/healthz", headers={"Host": "e3.example"})).status == 200
        named = {**bearer(secret), "Host": "e3.example"}
        assert (await reached.get("/api/v1/me", headers=named)).status == 200
        [token] = await reached.store.tokens()
        await reached.store.revoke_token(token.id)
        await soon(lambda: reached.get("/api/v1/me", headers=bearer(secret)), 401)
        check_problem(await reached.get("/api/v1/me"), 401)
