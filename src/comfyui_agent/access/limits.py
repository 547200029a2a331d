"""How much one caller may ask for: requests per minute and at once, wrong tokens, and open jobs."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from comfyui_agent.access.problem import QUOTA, too_many
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.actor import Actor

if TYPE_CHECKING:
    from comfyui_agent.access.gate import Caller
    from comfyui_agent.config.settings import Settings, Ui
    from comfyui_agent.store.store import Store

MOST_CALLERS = 10_000
OPEN_FACTOR = 10
"""Without tokens all programs of this machine share one address."""
QUOTA_RETRY_SECONDS = 60
MOST_WRONG_TOKENS = 10
WRONG_TOKEN_SECONDS = 60.0
AUDIT_SECONDS = 60.0
MOST_AUDITED = 100
OTHERS = "other addresses"
AT_ONCE = 8
LONGEST_PAUSE = 2.0


class WrongTokens:
    """Counts wrong tokens by address. A right token is always admitted, whatever the count.

    The audit trail gets one row a minute for each address: a row for each token would let strangers fill the database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._times: OrderedDict[str, list[float]] = OrderedDict()
        self._unwritten: Counter[str] = Counter()

    def count(self, address: str) -> None:
        """Count one more. Problem 429 if there were too many before."""
        now = time.monotonic()
        recent = [at for at in self._times.get(address, ()) if at > now - WRONG_TOKEN_SECONDS]
        if len(recent) >= MOST_WRONG_TOKENS:
            detail = f"{MOST_WRONG_TOKENS} wrong tokens came from {address} within {WRONG_TOKEN_SECONDS:.0f} s"
            seconds = math.ceil(WRONG_TOKEN_SECONDS - (now - recent[0]))
            raise too_many(detail, f"Wait {seconds} s, or send a right one.", seconds)
        self._times[address] = [*recent, now]
        self._times.move_to_end(address)
        while len(self._times) > MOST_CALLERS:
            self._times.popitem(last=False)
        is_known = address in self._unwritten or len(self._unwritten) < MOST_AUDITED
        self._unwritten[address if is_known else OTHERS] += 1

    async def keep_auditing(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_SECONDS)
            await self.audit()

    async def audit(self) -> None:
        counted, self._unwritten = self._unwritten, Counter()
        for address, count in counted.items():
            message = f"{count:,} wrong token{'s' if count != 1 else ''} within a minute"
            await Actor("unknown", address).audit(self._store, EventName.AUDIT_LOGIN_FAILED, message=message)


class TokenBuckets:
    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one token. Returns how many seconds to wait if there is none, else 0."""
        now = self._clock()
        left, at = self._left.pop(key, (self._size, now))
        left = min(self._size, left + (now - at) * self._size / 60.0)
        wait = 0.0 if left >= 1.0 else (1.0 - left) * 60.0 / self._size
        self._left[key] = (left if wait else left - 1.0, now)
        if len(self._left) > MOST_CALLERS:
            self._left.popitem(last=False)
        return wait


class RequestLimits:
    """Requests per minute of each token, or of each address while no token is needed."""

    def __init__(self, settings: Ui) -> None:
        self._limits = {"changes": settings.changes_per_minute, "reads": settings.reads_per_minute}
        self._buckets = {
            (what, factor): TokenBuckets(most * factor)
            for (what, most), factor in product(self._limits.items(), (1, OPEN_FACTOR))
        }

    def count(self, what: Literal["changes", "reads"], caller: Caller) -> None:
        """Count a request that may change something, or any other. Problem 429 if there were too many."""
        key, factor = (caller.scope, 1) if caller.token is not None else (caller.address, OPEN_FACTOR)
        seconds = math.ceil(self._buckets[what, factor].take(key)) if self._limits[what] else 0
        if not seconds:
            return
        detail = f"{caller.actor} has asked for more than {self._limits[what] * factor:,} {what} a minute"
        remedy = f"Wait {seconds} s, and ask less often; whoever runs E3 can raise ui.{what}_per_minute."
        raise too_many(detail, remedy, seconds)


class OpenJobQuota:
    """Limits how many jobs of one user's token may wait or render. Admins have no quota."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._reserved: Counter[int] = Counter()

    @asynccontextmanager
    async def room(self, caller: Caller, count: int) -> AsyncIterator[None]:
        """Reserve room for `count` jobs while they are queued. Problem 429 if there is none."""
        if caller.token is None or caller.role is Role.ADMIN or not self._most or not count:
            yield
            return
        token_id = caller.token.id
        self._reserved[token_id] += count  # before the query, so that concurrent requests see each other
        try:
            known = await self._store.run(ops.open_jobs_of, token_id, self._most)
            if known + self._reserved[token_id] > self._most:
                detail = (
                    f"{count:,} more {'job' if count == 1 else 'jobs'} would be too many: {known:,} of your token have "
                    f"not ended, and at most {self._most:,} may wait or render at a time"
                )
                remedy = "Queue fewer, wait until some have ended, or cancel some; whoever runs E3 can raise "
                raise too_many(detail, f"{remedy}ui.open_jobs_per_user.", QUOTA_RETRY_SECONDS, QUOTA)
            yield
        finally:
            self._reserved[token_id] -= count
            if not self._reserved[token_id]:
                del self._reserved[token_id]


def actor_for(caller: Caller, settings: Settings, quota: OpenJobQuota) -> Actor:
    """The caller as use cases know them: their rights, quota and lowest priority come from their token."""
    return Actor(
        name=caller.actor,
        address=caller.address or None,
        token_id=caller.token_id,
        rights=caller.rights,
        lowest_priority=None if caller.role is Role.ADMIN else settings.user_priority_floor,
        room=partial(quota.room, caller),
    )


class Turns:
    """At most `at_once` turns at a time for each caller. Others wait in the order in which they came."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[Callable[[], None]]:
        """Wait for a turn. The block gets a function that ends the turn early."""
        semaphore = self._semaphores.setdefault(caller, asyncio.Semaphore(self._at_once))
        await semaphore.acquire()
        with ExitStack() as turn:
            turn.callback(semaphore.release)
            yield turn.close


class TimeShare:
    """One turn at a time. All turns together take at most one part in `parts` of the time."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._busy = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._busy.acquire()
        began = time.monotonic()
        try:
            yield
        finally:
            pause = min(LONGEST_PAUSE, (time.monotonic() - began) * (self._parts - 1))
            asyncio.get_running_loop().call_later(pause, self._busy.release)
