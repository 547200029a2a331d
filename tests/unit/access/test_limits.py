"""What one caller may ask for: so many at once, so many a minute, so many open jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyui_agent.access import limits
from comfyui_agent.access.gate import Caller
from comfyui_agent.access.limits import AT_ONCE, OPEN_FACTOR, OpenJobQuota, RequestLimits, TokenBuckets, Turns
from comfyui_agent.access.problem import Problem
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.tokens import Role, Token
from support.stores import ScriptedStore

HOST = "10.0.0.7"


def caller(number: int = 1, role: Role = Role.USER, address: str = HOST) -> Caller:
    return Caller(role, Token(number, "studio", role, "hash", "2026-01-01 00:00:00.000"), address=address)


def test_a_bucket_gives_all_at_once_and_then_as_it_is_refilled() -> None:
    now = [100.0]
    buckets = TokenBuckets(60, lambda: now[0])
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0.0, "each has one of its own"
    now[0] += 0.5
    assert buckets.take("a") == pytest.approx(0.5)
    now[0] += 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") == pytest.approx(1.0)
    now[0] += 3600
    assert [buckets.take("a") > 0 for _ in range(61)] == [False] * 60 + [True], "it never holds more than its size"


def test_buckets_of_many_callers_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CALLERS", 10)
    buckets = TokenBuckets(60)
    for number in range(1000):
        buckets.take(str(number))
    assert len(buckets._left) == 10


def test_changes_and_reads_are_counted_apart_and_each_token_for_itself() -> None:
    counted = RequestLimits(Ui(changes_per_minute=2, reads_per_minute=3))
    for _ in range(2):
        counted.count("changes", caller(1, Role.ADMIN))
    for _ in range(3):
        counted.count("reads", caller())
    counted.count("changes", caller(2))
    with pytest.raises(Problem) as found:
        counted.count("changes", caller(1, Role.ADMIN, "another address"))
    assert found.value.status == 429
    assert int(found.value.headers["Retry-After"]) == 30
    assert "token 1 (studio)" in found.value.detail
    assert "2 changes a minute" in found.value.detail
    assert "ui.changes_per_minute" in found.value.remedy
    with pytest.raises(Problem, match="3 reads a minute"):
        counted.count("reads", caller())


def test_without_tokens_each_address_has_ten_times_as_much() -> None:
    counted = RequestLimits(Ui(changes_per_minute=1))
    everyone = Caller(Role.ADMIN, address=HOST)
    for _ in range(OPEN_FACTOR):
        counted.count("changes", everyone)
    counted.count("changes", Caller(Role.ADMIN, address="::1"))
    with pytest.raises(Problem, match="10 changes a minute"):
        counted.count("changes", everyone)


def test_zero_is_no_limit() -> None:
    counted = RequestLimits(Ui(changes_per_minute=0, reads_per_minute=0))
    for _ in range(1000):
        counted.count("changes", caller())
        counted.count("reads", Caller(Role.ADMIN))


class Memory(ScriptedStore):
    """So many jobs of each token have not ended."""

    def __init__(self, known: int) -> None:
        self.known = known

    async def open_jobs_of(self, token_id: int, most: int) -> int:  # noqa: ARG002
        return min(self.known, most)


async def test_room_that_is_kept_by_one_request_is_not_there_for_the_next() -> None:
    memory: Any = Memory(6)
    quota = OpenJobQuota(memory, 10)
    async with quota.room(caller(), 3):
        with pytest.raises(Problem, match="2 more jobs would be too many: 6 of your token"):
            async with quota.room(caller(), 2):
                pass
        async with quota.room(caller(), 1), quota.room(caller(2), 4), quota.room(caller(role=Role.ADMIN), 1_000):
            pass
    async with quota.room(caller(), 4):
        pass
    assert not quota._reserved


async def test_an_address_has_so_many_turns_at_once_and_keeps_no_other_waiting() -> None:
    turns, may, begun = Turns(), asyncio.Event(), []

    async def ask(address: str) -> None:
        async with turns.turn(address):
            begun.append(address)
            await may.wait()

    asking = [asyncio.ensure_future(ask("a")) for _ in range(AT_ONCE + 5)]
    asking.append(asyncio.ensure_future(ask("b")))
    await asyncio.sleep(0)
    assert (begun.count("a"), begun.count("b")) == (AT_ONCE, 1)
    may.set()
    await asyncio.gather(*asking)
    assert begun.count("a") == AT_ONCE + 5
    assert not turns._semaphores


async def test_a_turn_can_be_ended_early_and_only_once() -> None:
    turns = Turns(at_once=1)
    async with turns.turn("a") as end:
        end()
        end()
        async with turns.turn("a"):
            assert turns._semaphores["a"].locked()
    assert not turns._semaphores
