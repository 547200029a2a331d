"""Where the page listens: on this machine, or elsewhere with tokens, or not at all and why."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from comfyui_agent.access.listen_address import Listening, NotAllowed, NotServed, PortTaken, is_loopback, listen
from comfyui_agent.domain.tokens import Role, Token
from support.stores import ScriptedStore


class Memory(ScriptedStore):
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens

    async def tokens(self) -> list[Token]:
        return self._tokens


def memory(tokens: int = 0, revoked_at: str | None = None) -> Any:
    return Memory([Token(number, "", Role.USER, "", "", revoked_at=revoked_at) for number in range(tokens)])


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which something else listens."""
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.53",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "::1",
        "[::1]",
        "e3.localhost",
        "ip6-localhost",
    ],
)
def test_these_reach_only_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "192.168.1.1",
        "example.com",
        "localhost.example.com",
        "notlocalhost",
        "",
        "127.1",
        "1",
        "[",
        "::2",
    ],
)
def test_these_may_reach_others(host: str) -> None:
    assert not is_loopback(host)


async def test_it_listens_at_once_and_says_where() -> None:
    with contextlib.closing(await listen(memory(), "127.0.0.1", 0)) as listening:
        assert listening.port > 0
        assert listening.url == f"http://127.0.0.1:{listening.port}"
        with socket.create_connection(("127.0.0.1", listening.port), timeout=2):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.com", "::"])
async def test_an_address_that_others_can_reach_needs_a_token_first(host: str) -> None:
    for known in (memory(), memory(2, revoked_at="2025-11-16 02:08:00.000")):
        with pytest.raises(NotAllowed, match="e3 token create"):
            await listen(known, host, 0)


async def test_with_a_token_it_listens_everywhere() -> None:
    with contextlib.closing(await listen(memory(1), "0.0.0.0", 0)) as listening:
        assert listening.url == f"http://127.0.0.1:{listening.port}", "an address that can be opened"


async def test_a_port_that_is_taken_is_said_to_be(taken: int) -> None:
    with pytest.raises(PortTaken, match=f"port {taken} of 127.0.0.1 is taken"):
        await listen(memory(), "127.0.0.1", taken)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "256.1.1.1", "x" * 300, "\u00e9" * 70])
async def test_an_address_that_is_not_of_this_machine_is_said_to_be_none(host: str) -> None:
    with pytest.raises(NotServed):
        await listen(memory(1), host, 0)


def test_an_address_of_the_newer_kind_is_written_with_brackets() -> None:
    with contextlib.closing(socket.socket(socket.AF_INET6)) as made:
        try:
            made.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no such address")
        listening = Listening("::1", made)
        assert listening.url == f"http://[::1]:{listening.port}"
