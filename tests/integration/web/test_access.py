"""Who may ask: everyone on this machine until there is a token, then whoever shows one; wrong ones are counted."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import Request

from comfyui_agent.access.problem import Problem
from comfyui_agent.domain.tokens import Role, hash_of, proxy_hash
from comfyui_agent.store import operations as ops
from comfyui_agent.web import page_server
from comfyui_agent.web.page_server import create_app
from comfyui_agent.web.problems import shown
from support.web import FORM, TLS, Answer, Served, bearer, check_problem, served, watching
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


async def test_the_first_token_closes_a_running_page_until_someone_opens_it_again(house: Served) -> None:
    assert (await house.get("/api/v1/me")).value == {"role": "admin", "token": None}
    made = await e3(house, "token", "create", "--role", "user", "--name", "shop")
    await soon(lambda: house.get("/api/v1/me"), 401)
    check_problem(await house.get("/api/v1/jobs"), 401)
    assert (await house.get("/api/v1/me", headers=bearer(made["token"]))).value == {"role": "user", "token": "shop"}
    cookie = await house.log_in(made["token"])
    await e3(house, "token", "revoke", str(made["id"]))
    await soon(lambda: house.get("/api/v1/me", headers=bearer(made["token"])), 401)
    check_problem(await house.get("/api/v1/me"), 401)
    await e3(house, "token", "open")
    assert (await soon(lambda: house.get("/api/v1/me"), 200)).value["role"] == "admin"
    again = await e3(house, "token", "create", "--role", "user")
    await soon(lambda: house.get("/api/v1/me"), 401)
    assert (await house.get("/api/v1/me", headers=bearer(again["token"]))).status == 200
    for old in (bearer(made["token"]), cookie):
        check_problem(await house.get("/api/v1/me", headers=old), 401)


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
    [known, _] = await house.store.run(ops.list_tokens)
    async with watching(house, path, Authorization=f"Bearer {user}") as stream:
        await house.job("before")
        await stream.until(lambda frame: "before" in frame.data)
        await house.store.run(ops.revoke_token, known.id)
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
            for headers in (bearer(token), {"Cookie": f"e3_session_{urlsplit(house.url).port}={token}"}):
                for path in ("/", "/api/v1/me", "/api/v1/jobs/nobody", f"/api/v1/jobs/{token}", "/stream"):
                    await house.get(path, headers=headers)
            answer = await house.form(token=token, next="/")
            assert token not in answer.text + str(answer.headers)
        session = (await house.log_in(secret))["Cookie"].partition("=")[2]
        body = {"job_type": "T2I", "workflow_id": "picture", "inputs": {"color": 1}}
        key = {"Idempotency-Key": "once"}
        assert (await house.post("/api/v1/jobs", body, headers={**bearer(secret), **key})).status == 201
        listed = await house.get("/api/v1/me", headers=bearer(secret))
        assert secret not in listed.text
        hashes = [token.hash for token in await house.store.run(ops.list_tokens)]
    files = [path for path in (tmp_path / "house" / "database").rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    assert hashes == [hash_of(secret)]
    assert hashes[0].encode() in kept
    assert hash_of(session).encode() in kept
    for token in (secret, other, session):
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
    assert (await house.get("/api/v1/me", headers=bearer(other))).status == 200
    check_problem(await house.get("/api/v1/me"), 401)
    blocked = await house.form(token="e3_wrong")
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
        [token] = await reached.store.run(ops.list_tokens)
        await reached.store.run(ops.revoke_token, token.id)
        await soon(lambda: reached.get("/api/v1/me", headers=bearer(secret)), 401)
        check_problem(await reached.get("/api/v1/me"), 401)
        await reached.store.run(ops.open_access, revoke=True)
        check_problem(await reached.get("/api/v1/me"), 401)


async def test_a_stream_ends_with_its_session(house: Served) -> None:
    cookie = await house.log_in(await house.token(Role.USER))
    async with watching(house, "/api/v1/events", **cookie) as stream:
        await house.job("before")
        await stream.until(lambda frame: "before" in frame.data)
        assert (await house.post("/logout", headers={**cookie, "Content-Type": FORM})).status == 303
        check_problem(await house.get("/api/v1/me", headers=cookie), 401)
        await house.job("afterwards")
        assert not [frame for frame in await stream.rest() if "afterwards" in frame.data]


async def test_behind_a_trusted_proxy_people_are_who_it_says_and_nothing_else_is_open(tmp_path: Path) -> None:
    ui = {"trusted_proxies": ("127.0.0.1",), "proxy_user_header": "X-Remote-User"}
    async with served(tmp_path / "house", **ui) as house:
        check_problem(await house.get("/api/v1/me"), 401)
        anna = {"X-Remote-User": "anna", "X-Forwarded-For": "203.0.113.7"}
        assert (await house.get("/api/v1/me", headers=anna)).value == {"role": "user", "token": "anna"}
        assert [row.address for row in await house.store.run(ops.audit_trail, actor="anna")] == ["203.0.113.7"]
        check_problem(await house.post("/api/v1/servers/nobody/pause", headers=anna), 403)
        check_problem(await house.get("/api/v1/me", headers={**anna, "Host": "evil.example"}), 403)
        await house.store.run(ops.create_token, "anna", Role.ADMIN, proxy_hash("anna"))
        await soon(lambda: house.post("/api/v1/servers/nobody/pause", headers=anna), 404)
        [known] = await house.store.run(ops.list_tokens)
        await house.store.run(ops.revoke_token, known.id)
        await soon(lambda: house.get("/api/v1/me", headers=anna), 401)
        await house.store.run(ops.create_token, "anna", Role.READ, proxy_hash("anna"))
        assert (await soon(lambda: house.get("/api/v1/me", headers=anna), 200)).value["role"] == "read"
        assert [token.id for token in await house.store.run(ops.list_tokens)] == [known.id]


async def test_when_a_token_was_used_is_known(house: Served) -> None:
    secret = await house.token(Role.USER)
    cookie = await house.log_in(secret)
    for headers in (bearer(secret), cookie, cookie):
        assert (await house.get("/api/v1/me", headers=headers)).status == 200
    await asyncio.gather(*house.context.gate._background._tasks)
    [known] = await house.store.run(ops.list_tokens)
    assert known.last_used_at is not None


async def test_a_refusal_shows_no_path_of_this_machine(house: Served) -> None:
    """Whatever refuses, and whether programs or people are told."""
    root, outside = house.workspace.root, house.workspace.root.parent
    (root / "workflows" / "broken.json").write_text("{")
    wish = {"job_type": "T2I", "workflow_id": "broken", "inputs": {}}
    answers = [
        await house.post("/api/v1/jobs", wish),
        await house.post("/api/v1/batches", {"workflow": "broken", "set": {"color": "1"}}),
        await house.get("/new?workflow=broken", headers={"Accept": "text/html"}),
        await house.get("/api/v1/workflows/broken"),
        await house.post("/api/v1/jobs", {**wish, "workflow_id": "picture", "outputs": {"file_path": "../../x.png"}}),
    ]
    assert [answer.status for answer in answers] == [404, 404, 200, 404, 409]
    for words in (f"the database {root}/database/x.db is away", f"the workspace {root.resolve()}: no", f"'{root}'"):
        problem = shown(
            Request({"type": "http", "app": create_app(house.context), "path": "/api/v1", "headers": []}),
            Problem(503, words, words, errors=[("key", words)]),
        )
        answers.append(Answer(503, {}, bytes(problem.body), None))
    for answer in answers:
        assert str(outside) not in answer.text
    assert "the database database/x.db is away" in answers[5].text
    assert "the workspace .: no" in answers[6].text


async def test_a_stalled_tls_handshake_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "HEAD_SECONDS", 0.2)
    async with served(tmp_path / "house", **TLS) as house:
        assert house.url.startswith("https://127.0.0.1:")
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(house.url).port)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_where_a_result_lies_is_for_whoever_is_on_this_machine(house: Served) -> None:
    job = await house.job("fox.yaml")
    [leased] = await house.lease()
    [name] = await house.finish(leased)
    screens = (f"/jobs/{job.id}", f"/jobs/{job.id}/large")
    place = str(house.workspace.results.folder / name)
    assert [f'data-copy="{place}"' in (await house.get(screen)).text for screen in screens] == [True, True]
    headers = bearer(await house.token(Role.ADMIN))
    assert [place in (await house.get(screen, headers=headers)).text for screen in screens] == [False, False]
