"""Connections: whoever does not read is cut, nobody takes all places, and probes have some of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from comfyui_agent.web import connections
from comfyui_agent.web.connections import SHORTAGE, Connection, ConnectionLimits

FAR, OTHER, NEAR = "10.0.0.7", "10.0.0.8", "127.0.0.1"


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time is moved by the test, and whose timers are called by it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self._scheduled if not each.cancelled() and each.when() <= until]:  # type: ignore[attr-defined]
            first = min(due, key=lambda each: each.when())
            self.now = first.when()
            first._run()
            first.cancel()
        self.now = until


class Wire:
    """The other side of a connection: what it has not read, and whether it was cut."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.unread = 0
        self.is_cut = False
        self.limits: tuple[int, int] = (-1, -1)

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = high, low

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.is_cut

    def abort(self) -> None:
        self.is_cut = True


@pytest.fixture
def clock() -> Any:
    loop = Clock()
    yield loop
    loop.close()


class Side:
    """One connection, with the wire in place of a socket."""

    def __init__(self, clock: Clock, places: ConnectionLimits, address: str = FAR) -> None:
        config = uvicorn.Config(lambda: None, log_config=None, lifespan="off")
        self.wire = Wire(address)
        self.connection = Connection(config, ServerState(), {}, clock, limits=places)
        self.connection.connection_made(self.wire)

    @property
    def shortage(self) -> str:
        return str(self.connection.app_state.get(SHORTAGE, ""))

    def stops_reading(self, unread: int) -> None:
        self.connection._stop_head_timer()
        self.wire.unread = unread
        self.connection.pause_writing()


@pytest.fixture
def places() -> ConnectionLimits:
    return ConnectionLimits()


def test_who_does_not_read_is_cut_after_some_time(clock: Clock, places: ConnectionLimits) -> None:
    side = Side(clock, places)
    assert side.wire.limits == (1, 0), "it is told as soon as something is left"
    side.stops_reading(100_000)
    clock.pass_(connections.WRITE_SECONDS)
    assert not side.wire.is_cut
    clock.pass_(2 * connections.LOOK_SECONDS)
    assert side.wire.is_cut


def test_who_reads_slowly_is_not_cut_nor_who_has_read_all(clock: Clock, places: ConnectionLimits) -> None:
    slow, done = Side(clock, places), Side(clock, places)
    slow.stops_reading(10_000_000)
    done.stops_reading(1)
    done.wire.unread = 0
    done.connection.resume_writing()
    for _ in range(100):
        slow.wire.unread -= connections.LEAST_READ
        clock.pass_(connections.LOOK_SECONDS)
    assert not slow.wire.is_cut
    assert not done.wire.is_cut
    clock.pass_(connections.WRITE_SECONDS + connections.LOOK_SECONDS)
    assert slow.wire.is_cut
    assert not done.wire.is_cut


def test_no_address_takes_all_places_and_it_is_said_what_is_short(
    clock: Clock, places: ConnectionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 40)
    monkeypatch.setattr(connections, "PER_ADDRESS", 10)
    far = [Side(clock, places) for _ in range(11)]
    assert [bool(each.shortage) for each in far] == [False] * 10 + [True]
    assert far[-1].shortage == f"too many connections from {FAR}: 10 are open"
    near = [Side(clock, places, NEAR) for _ in range(31)]
    assert [bool(each.shortage) for each in near] == [False] * 30 + [True]
    assert Side(clock, places, OTHER).shortage == "too many connections: 40 are open"
    far[0].connection.cut()
    assert not Side(clock, places, OTHER).shortage


def test_one_that_hangs_makes_room_for_one_that_comes(
    clock: Clock, places: ConnectionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PER_ADDRESS", 3)
    sides = [Side(clock, places) for _ in range(3)]
    for each in sides:
        each.connection._stop_head_timer()
    sides[1].stops_reading(100_000)
    clock.pass_(2 * connections.LOOK_SECONDS)
    assert not Side(clock, places).shortage
    assert [each.wire.is_cut for each in sides] == [False, True, False]
    assert Side(clock, places).shortage


def test_spare_places_are_few_and_their_oldest_is_given_to_who_comes(
    clock: Clock, places: ConnectionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PER_ADDRESS", 1)
    monkeypatch.setattr(connections, "MOST_SPARE", 2)
    sides = [Side(clock, places) for _ in range(4)]
    assert [each.wire.is_cut for each in sides] == [False, True, False, False]
    clock.pass_(connections.SPARE_HEAD_SECONDS)
    assert [each.wire.is_cut for each in sides] == [False, True, True, True], "nor is one kept that asks nothing"
