"""The gate: who is let in, who is counted, and what it costs to find out."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from comfyui_agent.access import gate as module
from comfyui_agent.access import limits
from comfyui_agent.access.gate import Caller, Gate, bearer_of, session_of, while_admitted
from comfyui_agent.access.problem import Problem
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.tokens import Role, hash_of
from comfyui_agent.store.errors import DatabaseAway
from support.tokens import EARLIER, LATER, TokenMemory

ADMIN, USER = "e3_admin", "e3_user"
HOST = "10.0.0.7"
NOW = "2025-11-17 00:00:00.000"


@pytest.fixture
def memory() -> TokenMemory:
    made = TokenMemory()
    made.add(ADMIN, Role.ADMIN)
    made.add(USER, Role.USER)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the gate takes for the time."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the gate takes for the time of day."""
    moment = [NOW]
    monkeypatch.setattr(module, "now", lambda: moment[0])
    return moment


def gate(memory: Any, *, is_local: bool = True, **ui: Any) -> Gate:
    return Gate(memory, Ui(**ui), serves_loopback=is_local)


def request(peer: str = HOST, **headers: str) -> Request:
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "scheme": "http", "headers": lines, "client": (peer, 1), "server": ("10.0.0.1", 8190)}
    return Request(scope)


def local(**headers: str) -> Request:
    return request("127.0.0.1", host="127.0.0.1:8190", **headers)


async def refused(asking: Any) -> Problem:
    with pytest.raises(Problem) as found:
        await asking
    return found.value


async def test_without_tokens_everyone_on_this_machine_is_an_admin() -> None:
    assert await gate(TokenMemory()).admit(local()) == Caller(Role.ADMIN)
    assert await gate(TokenMemory()).is_open()


async def test_without_tokens_nobody_is_let_in_where_others_can_ask() -> None:
    closed = gate(TokenMemory(), is_local=False)
    assert not await closed.is_open()
    assert (await refused(closed.admit(request()))).status == 401
    assert (await refused(closed.admit(request(authorization="Bearer x")))).status == 401


async def test_a_token_identifies_its_owner(memory: TokenMemory) -> None:
    found = await gate(memory).admit(request(authorization=f"Bearer {USER}"))
    assert (found.role, found.token, found.scope) == (Role.USER, memory.known[1], "token 2")


@pytest.mark.parametrize(
    ("said", "token"),
    [
        ("", None),
        ("Bearer x", "x"),
        ("bearer  x ", "x"),
        ("Bearer", ""),
        ("Basic x", None),
        ("x", None),
        ("Bearer \xe9", "\xe9"),
    ],
)
def test_a_token_is_shown_in_a_header(said: str, token: str | None) -> None:
    assert bearer_of(request(authorization=said)) == token


@pytest.mark.parametrize(
    ("scheme", "cookies", "held"),
    [
        ("http", "", ""),
        ("http", "e3_session_8190=a", "a"),
        ("http", "e3_session_8191=a; e3_session=b; e3_token=c", ""),
        ("http", "e3_session_8190=a; __Host-e3_session_8190=b", "b"),
        ("https", "e3_session_8190=a; __Host-e3_session_8190=b", "b"),
        ("https", "e3_session_8190=a", ""),
    ],
)
def test_a_session_is_in_a_cookie_of_this_port_and_under_tls_of_this_host_alone(
    scheme: str, cookies: str, held: str
) -> None:
    asked = request(cookie=cookies)
    asked.scope["scheme"] = scheme
    assert session_of(asked) == held


async def test_a_session_is_no_token_and_a_token_is_no_session(memory: TokenMemory) -> None:
    asked = gate(memory)
    _, secret = await asked.log_in(USER, request())
    found = await asked.admit(request(cookie=f"e3_session_8190={secret}"))
    assert (found.role, found.token, found.session) == (Role.USER, memory.known[1], hash_of(secret))
    assert (await refused(asked.admit(request(authorization=f"Bearer {secret}")))).status == 401
    for cookie in (f"e3_session_8190={USER}", f"e3_token={USER}", f"e3_session_8190={hash_of(secret)}"):
        assert (await refused(asked.admit(request(cookie=cookie)))).status == 401
    both = request(cookie=f"e3_session_8190={secret}", authorization=f"Bearer {ADMIN}")
    assert (await asked.admit(both)).role is Role.ADMIN
    empty = request(cookie=f"e3_session_8190={secret}", authorization="Bearer")
    assert (await refused(asked.admit(empty))).status == 401


async def test_logging_in_again_or_out_leaves_no_session_behind(memory: TokenMemory) -> None:
    asked = gate(memory)
    _, first = await asked.log_in(USER, request())
    _, second = await asked.log_in(ADMIN, request(cookie=f"e3_session_8190={first}"))
    assert list(memory.sessions) == [hash_of(second)]
    await asked.log_out(request(cookie=f"e3_session_8190={second}"))
    problem = await refused(asked.admit(request(cookie=f"e3_session_8190={second}")))
    assert (problem.status, problem.detail, memory.sessions) == (401, "this session has ended", {})


async def test_a_session_ends_with_its_time_and_with_its_token(memory: TokenMemory, today: list[str]) -> None:
    asked = gate(memory)
    memory.add("e3_short", Role.USER, expires_at="2025-11-17 06:00:00.000")
    by_time = request(cookie=f"e3_session_8190={(await asked.log_in(USER, request()))[1]}")
    by_token = request(cookie=f"e3_session_8190={(await asked.log_in('e3_short', request()))[1]}")
    everyone = [await asked.admit(by_time), await asked.admit(by_token)]
    today[0] = "2025-11-17 06:00:00.000"
    assert (await refused(asked.admit(by_token))).status == 401
    assert [await asked.still_admits(who) for who in everyone] == [True, False]
    today[0] = LATER
    assert (await refused(asked.admit(by_time))).status == 401
    assert not await asked.still_admits(everyone[0])


@pytest.mark.parametrize(
    ("facts", "words"), [({"expires_at": EARLIER}, "has expired"), ({"revoked_at": EARLIER}, "was revoked")]
)
async def test_a_token_that_ended_admits_nobody_says_so_and_locks_nobody_out(
    memory: TokenMemory, facts: dict[str, str], words: str
) -> None:
    memory.add("e3_old", Role.ADMIN, **facts)
    asked = gate(memory)
    for _ in range(12):
        problem = await refused(asked.check("e3_old", HOST))
        assert (problem.status, words in problem.detail) == (401, True)
    assert (await asked.check(USER, HOST)).role is Role.USER


async def test_once_there_was_a_token_access_stays_closed(clock: list[float]) -> None:
    memory = TokenMemory(is_closed=True)
    asked = gate(memory)
    assert (await refused(asked.admit(local()))).status == 401
    memory.is_closed = False
    memory.version += 1
    clock[0] += 1
    assert (await asked.admit(local())).role is Role.ADMIN


async def test_what_came_by_a_proxy_is_nobody_on_this_machine() -> None:
    for asked in (local(via="1.2.3.4"), request("127.0.0.1", host="evil.example")):
        assert (await refused(gate(TokenMemory()).admit(asked))).status == 403


async def test_where_a_proxy_is_trusted_this_machine_is_not_open() -> None:
    asked = gate(TokenMemory(), trusted_proxies=("127.0.0.1",))
    assert not await asked.is_open()
    assert (await refused(asked.admit(local()))).status == 401


async def test_a_user_of_a_trusted_proxy_is_admitted_as_that_user(clock: list[float]) -> None:
    memory = TokenMemory()
    asked = gate(memory, trusted_proxies=("10.0.0.7",), proxy_user_header="X-Remote-User", proxy_user_role="read")
    anna = request(**{"x-remote-user": "anna", "x-forwarded-for": "203.0.113.7"})
    found = await asked.admit(anna)
    assert found.token is not None
    assert (found.role, found.token.name, found.address) == (Role.READ, "anna", "203.0.113.7")
    assert (await asked.admit(anna)).token == found.token
    assert await asked.still_admits(found)
    assert len(memory.known) == 1, "once, not with every request"
    assert (await refused(asked.admit(request("10.0.0.8", **{"x-remote-user": "anna"})))).status == 401
    memory.known[0] = replace(memory.known[0], revoked_at=NOW)
    memory.version += 1
    clock[0] += 1
    assert (await refused(asked.admit(anna))).status == 401


async def testwrong_tokens_are_counted_for_who_sent_them_and_not_for_the_proxy(memory: TokenMemory) -> None:
    asked = gate(memory, trusted_proxies=(HOST,))
    mallory = request(authorization="Bearer e3_wrong", **{"x-forwarded-for": "203.0.113.7"})
    for _ in range(10):
        await refused(asked.admit(mallory))
    assert (await refused(asked.admit(mallory))).status == 429
    anna = request(authorization=f"Bearer {USER}", **{"x-forwarded-for": "203.0.113.8"})
    assert (await asked.admit(anna)).role is Role.USER


async def test_a_use_is_noted_beside_the_answer_and_once_a_minute(memory: TokenMemory, clock: list[float]) -> None:
    asked = gate(memory)
    for _ in range(5):
        await asked.check(USER, HOST)
    await asyncio.gather(*asked._background._tasks)
    assert memory.noted == [(2, "")]
    clock[0] += module.NOTE_SECONDS
    memory.error = DatabaseAway("locked")
    assert (await asked.check(USER, HOST)).role is Role.USER, "whether it can be noted or not"
    await asyncio.gather(*asked._background._tasks)
    await asked.close()


async def test_every_token_is_compared_in_constant_time_whichever_it_is(
    memory: TokenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[Any, Any]] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))
    asked = gate(memory)
    for shown in (ADMIN, USER):
        await asked.check(shown, HOST)
    await refused(asked.check("e3_nobody", HOST))
    assert len(compared) == 3 * 2
    assert all(len(a) == len(b) == 64 for a, b in compared), "hashes are compared, never what was shown"


async def test_after_tenwrong_tokens_from_an_address_only_a_right_one_is_admitted(
    memory: TokenMemory, clock: list[float]
) -> None:
    asked = gate(memory)
    for _ in range(10):
        assert (await refused(asked.check("e3_wrong", HOST))).status == 401
        clock[0] += 1
    problem = await refused(asked.check("e3_wrong", HOST))
    assert problem.status == 429
    assert 0 < int(problem.headers["Retry-After"]) <= 60
    assert (await refused(asked.check("e3_wrong", "10.0.0.8"))).status == 401
    clock[0] += int(problem.headers["Retry-After"]) - 0.3
    problem = await refused(asked.check("e3_wrong", HOST))
    assert (problem.headers["Retry-After"], problem.remedy) == ("1", "Wait 1 s, or send a right one.")
    assert (await asked.check(ADMIN, HOST)).role is Role.ADMIN


async def test_wrong_sessions_and_missing_tokens_are_not_counted(memory: TokenMemory) -> None:
    asked = gate(memory)
    for each in (request(cookie="e3_session_8190=x"), request()):
        for _ in range(12):
            assert (await refused(asked.admit(each))).status == 401
    assert (await refused(asked.check("e3_wrong", HOST))).status == 401, "and not 429"


async def testwrong_tokens_are_forgotten_one_by_one(memory: TokenMemory, clock: list[float]) -> None:
    asked = gate(memory)
    for _ in range(30):
        assert (await refused(asked.check("e3_wrong", HOST))).status == 401
        clock[0] += 7


async def test_only_so_many_hosts_are_remembered(memory: TokenMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CALLERS", 5)
    asked = gate(memory)
    for number in range(50):
        await refused(asked.check("e3_wrong", f"10.0.0.{number}"))
        await asked.check(USER, f"10.1.0.{number}")
    assert len(asked.wrong_tokens._times) <= 5


async def test_a_very_long_token_is_a_wrong_one(memory: TokenMemory) -> None:
    assert (await refused(gate(memory).check("e3_" + "x" * 10_000_000, HOST))).status == 401
    longest = "x" * module.LONGEST_TOKEN
    memory.add(longest, Role.ADMIN)
    assert (await gate(memory).check(longest, HOST)).role is Role.ADMIN


async def test_tokens_are_read_again_only_when_something_has_changed_and_not_too_often(
    memory: TokenMemory, clock: list[float]
) -> None:
    asked = gate(memory)
    for _ in range(5):
        clock[0] += 10
        assert not await asked.is_open()
    assert memory.reads == 1
    memory.known.clear()
    memory.is_closed = False
    memory.version += 1
    clock[0] += module.FRESH_SECONDS + 0.01
    assert await asked.is_open()
    assert memory.reads == 2
    memory.version += 1
    assert await asked.is_open()
    assert memory.reads == 2, "it was read just now"


async def test_while_the_database_is_away_the_tokens_are_those_that_were_known(
    memory: TokenMemory, clock: list[float]
) -> None:
    asked = gate(memory)
    await asked.check(USER, HOST)
    memory.error = DatabaseAway("locked")
    memory.known.clear()
    memory.version += 1
    clock[0] += 10
    assert (await asked.check(USER, HOST)).role is Role.USER
    assert not await asked.is_open()


async def test_tokens_that_were_never_read_let_nobody_in(memory: TokenMemory) -> None:
    memory.error = DatabaseAway("locked")
    with pytest.raises(DatabaseAway):
        await gate(memory).is_open()


async def test_a_stream_ends_where_its_token_does(memory: TokenMemory, clock: list[float]) -> None:
    closed: list[bool] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            for number in range(3):
                yield str(number).encode()
        finally:
            closed.append(True)

    asked = gate(memory)
    who = await asked.check(USER, HOST)
    heard = []
    async for part in while_admitted(asked, who, parts()):
        heard.append(part)
        memory.known.remove(memory.known[-1])
        memory.version += 1
        clock[0] += 1
    assert (heard, closed) == ([b"0"], [True])
    everyone = Caller(Role.ADMIN)
    assert [part async for part in while_admitted(gate(TokenMemory()), everyone, parts())] == [b"0", b"1", b"2"]
    assert [part async for part in while_admitted(asked, everyone, parts())] == []
