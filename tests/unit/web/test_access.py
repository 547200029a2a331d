"""The gate: who is let in, who is counted, and what it costs to find out."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request

from comfyui_agent.domain.tokens import Role, Token, hash_of
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web import access
from comfyui_agent.web.access import Caller, Gate, shown_token, while_admitted
from comfyui_agent.web.problems import Problem

ADMIN, USER = "e3_admin", "e3_user"
HOST = "10.0.0.7"


@dataclass
class Memory:
    """Tokens, and a version that goes up with every change."""

    known: list[Token] = field(default_factory=list)
    version: int = 1
    reads: int = 0
    error: Exception | None = None
    delay: float = 0.0

    async def tokens(self) -> list[Token]:
        self.reads += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        return list(self.known)

    def add(self, secret: str, role: Role) -> Token:
        token = Token(len(self.known) + 1, str(role), role, hash_of(secret), "2025-11-16 02:08:00.000")
        self.known.append(token)
        self.version += 1
        return token


@pytest.fixture
def memory() -> Memory:
    made = Memory()
    made.add(ADMIN, Role.ADMIN)
    made.add(USER, Role.USER)
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the gate takes for the time."""
    now = [1000.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    return now


def gate(memory: Any, *, is_local: bool = True) -> Gate:
    return Gate(memory, serves_loopback=is_local)


def request(host: str = HOST, **headers: str) -> Request:
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "headers": lines, "client": (host, 1)})


async def refused(asking: Any) -> Problem:
    with pytest.raises(Problem) as found:
        await asking
    return found.value


async def test_without_tokens_everyone_on_this_machine_is_an_admin() -> None:
    assert await gate(Memory()).admit(request()) == Caller(Role.ADMIN)
    assert await gate(Memory()).is_open()


async def test_without_tokens_nobody_is_let_in_where_others_can_ask() -> None:
    closed = gate(Memory(), is_local=False)
    assert not await closed.is_open()
    assert (await refused(closed.admit(request()))).status == 401
    assert (await refused(closed.admit(request(authorization="Bearer x")))).status == 401


async def test_whoever_shows_a_token_is_who_it_was_made_for(memory: Memory) -> None:
    found = await gate(memory).admit(request(authorization=f"Bearer {USER}"))
    assert (found.role, found.token, found.scope) == (Role.USER, memory.known[1], "token 2")
    assert (await gate(memory).admit(request(cookie=f"e3_token={ADMIN}"))).role is Role.ADMIN


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, ""),
        ({"authorization": "Bearer x"}, "x"),
        ({"authorization": "bearer  x "}, "x"),
        ({"authorization": "Basic x"}, ""),
        ({"authorization": "x"}, ""),
        ({"cookie": "e3_token=c"}, "c"),
        ({"authorization": "Bearer x", "cookie": "e3_token=c"}, "x"),
        ({"authorization": "Bearer", "cookie": "e3_token=c"}, ""),
        ({"authorization": "Bearer \xe9"}, "\xe9"),
    ],
)
def test_a_token_is_shown_in_a_header_or_in_a_cookie(headers: dict[str, str], token: str) -> None:
    assert shown_token(request(**headers)) == token


async def test_every_token_is_compared_in_constant_time_whichever_it_is(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
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


async def test_ten_wrong_tokens_from_one_host_close_the_door_for_a_minute(memory: Memory, clock: list[float]) -> None:
    asked = gate(memory)
    for _ in range(10):
        assert (await refused(asked.check("e3_wrong", HOST))).status == 401
        clock[0] += 1
    problem = await refused(asked.check("e3_wrong", HOST))
    assert problem.status == 429
    assert 0 < int(problem.headers["Retry-After"]) <= 60
    assert (await refused(asked.check(ADMIN, HOST))).status == 429, "nor can it be guessed on"
    assert (await refused(asked.check("e3_wrong", "10.0.0.8"))).status == 401
    clock[0] += int(problem.headers["Retry-After"])
    assert (await asked.check(ADMIN, HOST)).role is Role.ADMIN


async def test_a_token_that_has_come_from_a_host_before_comes_through(memory: Memory, clock: list[float]) -> None:
    asked = gate(memory)
    await asked.check(ADMIN, HOST)
    for _ in range(10):
        await refused(asked.check("e3_wrong", HOST))
    assert (await asked.check(ADMIN, HOST)).role is Role.ADMIN
    assert (await refused(asked.check(USER, HOST))).status == 429


async def test_wrong_tokens_are_forgotten_one_by_one(memory: Memory, clock: list[float]) -> None:
    asked = gate(memory)
    for _ in range(30):
        assert (await refused(asked.check("e3_wrong", HOST))).status == 401
        clock[0] += 7


async def test_a_request_without_a_token_is_not_counted(memory: Memory) -> None:
    asked = gate(memory)
    for _ in range(20):
        assert (await refused(asked.admit(request()))).status == 401
    assert (await asked.check(USER, HOST)).role is Role.USER


async def test_only_so_many_hosts_are_remembered(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_HOSTS", 5)
    asked = gate(memory)
    for number in range(50):
        await refused(asked.check("e3_wrong", f"10.0.0.{number}"))
        await asked.check(USER, f"10.1.0.{number}")
    assert len(asked._failures) <= 5
    assert len(asked._welcome) <= 5


async def test_a_very_long_token_is_a_wrong_one(memory: Memory) -> None:
    assert (await refused(gate(memory).check("e3_" + "x" * 10_000_000, HOST))).status == 401
    longest = "x" * access.LONGEST_TOKEN
    memory.add(longest, Role.ADMIN)
    assert (await gate(memory).check(longest, HOST)).role is Role.ADMIN


async def test_tokens_are_read_again_only_when_something_has_changed_and_not_too_often(
    memory: Memory, clock: list[float]
) -> None:
    asked = gate(memory)
    for _ in range(5):
        clock[0] += 10
        assert not await asked.is_open()
    assert memory.reads == 1
    memory.known.clear()
    memory.version += 1
    clock[0] += access.FRESH_SECONDS + 0.01
    assert await asked.is_open()
    assert memory.reads == 2
    memory.version += 1
    assert await asked.is_open()
    assert memory.reads == 2, "it was read just now"


async def test_while_the_database_is_away_the_tokens_are_those_that_were_known(
    memory: Memory, clock: list[float]
) -> None:
    asked = gate(memory)
    await asked.check(USER, HOST)
    memory.error = DatabaseAway("locked")
    memory.known.clear()
    memory.version += 1
    clock[0] += 10
    assert (await asked.check(USER, HOST)).role is Role.USER
    assert not await asked.is_open()


async def test_tokens_that_were_never_read_let_nobody_in(memory: Memory) -> None:
    memory.error = DatabaseAway("locked")
    with pytest.raises(DatabaseAway):
        await gate(memory).is_open()


async def test_a_stream_ends_where_its_token_does(memory: Memory, clock: list[float]) -> None:
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
    assert [part async for part in while_admitted(gate(Memory()), everyone, parts())] == [b"0", b"1", b"2"]
    assert [part async for part in while_admitted(asked, everyone, parts())] == []
