"""Who is asking: everyone on this machine while there are no tokens, else whoever shows one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import Request

from comfyui_agent.domain.tokens import Role, Token, matching
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.problems import Problem

log = logging.getLogger(__name__)

COOKIE = "e3_token"
MOST_FAILURES = 10
WINDOW_SECONDS = 60.0
MOST_HOSTS = 10_000
FRESH_SECONDS = 0.2
PATIENCE = 2.0
LONGEST_TOKEN = 200


@dataclass(frozen=True)
class Caller:
    """Whoever asks. `token` is None while there are none."""

    role: Role
    token: Token | None = None

    @property
    def scope(self) -> str:
        """Whose wishes these are."""
        return "everyone" if self.token is None else f"token {self.token.id}"


class Gate:
    """Knows the tokens, and how often someone has shown a wrong one."""

    def __init__(self, store: Store, *, serves_loopback: bool) -> None:
        self._store = store
        self._serves_loopback = serves_loopback
        self._tokens: list[Token] = []
        self._version = -1
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._welcome: set[tuple[str, int]] = set()

    async def is_open(self) -> bool:
        """Whether there are no tokens, and only this machine can ask."""
        return self._serves_loopback and not await self._known()

    async def admit(self, request: Request) -> Caller:
        """The caller, or why not: 401 without a token, 401 with a wrong one, 429 after too many wrong ones."""
        if await self.is_open():
            return Caller(Role.ADMIN)
        shown = shown_token(request)
        if not shown:
            raise Problem(
                401,
                "this needs a token",
                "Make one with e3 token create; send it as Authorization: Bearer TOKEN, or log in at /login.",
                headers={"WWW-Authenticate": 'Bearer realm="E3"'},
            )
        return await self.check(shown, request.client.host if request.client else "")

    async def check(self, shown: str, host: str) -> Caller:
        """The caller who has this token."""
        token = matching(shown[:LONGEST_TOKEN], await self._known())
        if token is not None and (host, token.id) in self._welcome:
            return Caller(token.role, token)
        waits = self._seconds_to_wait(host)
        if waits > 0:
            raise Problem(
                429,
                f"{MOST_FAILURES} wrong tokens came from {host} within {WINDOW_SECONDS:.0f} s",
                f"Wait {waits:.0f} s, then try again with a right one.",
                headers={"Retry-After": str(int(waits) + 1)},
            )
        if token is None:
            self._note_failure(host)
            raise Problem(
                401,
                "this token is not known here",
                "See e3 token ls; make another with e3 token create.",
                headers={"WWW-Authenticate": 'Bearer realm="E3", error="invalid_token"'},
            )
        if len(self._welcome) >= MOST_HOSTS:
            self._welcome.clear()
        self._welcome.add((host, token.id))
        return Caller(token.role, token)

    async def still_admits(self, who: Caller) -> bool:
        """Whether a caller who was admitted would be now."""
        return await self.is_open() if who.token is None else who.token in await self._known()

    async def _known(self) -> list[Token]:
        """The tokens as they are. While the database cannot be read, those that were known last are the ones."""
        if self._version < 0:
            await self._read()
        elif self._version != self._store.version and time.monotonic() - self._read_at > FRESH_SECONDS:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            done, _ = await asyncio.wait({self._reading}, timeout=PATIENCE)
            for task in done:
                if isinstance(task.exception(), StoreError):
                    log.warning("tokens could not be read: %s", task.exception())
                else:
                    task.result()
        return self._tokens

    async def _read(self) -> None:
        version = self._store.version
        self._tokens = await self._store.tokens()
        self._version, self._read_at = version, time.monotonic()

    def _seconds_to_wait(self, host: str) -> float:
        recent = self._recent(host)
        return WINDOW_SECONDS - (time.monotonic() - recent[0]) if len(recent) >= MOST_FAILURES else 0.0

    def _recent(self, host: str) -> list[float]:
        since = time.monotonic() - WINDOW_SECONDS
        return [at for at in self._failures.get(host, ()) if at > since][-MOST_FAILURES:]

    def _note_failure(self, host: str) -> None:
        self._failures[host] = [*self._recent(host), time.monotonic()]
        self._failures.move_to_end(host)
        while len(self._failures) > MOST_HOSTS:
            self._failures.popitem(last=False)


def shown_token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return request.cookies.get(COOKIE, "")


async def while_admitted(gate: Gate, who: Caller, parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """A stream that ends where its listener's token does: nothing is told to whoever would not be admitted now."""
    async with aclosing(parts):
        async for part in parts:
            if not await gate.still_admits(who):
                return
            yield part


async def caller(request: Request) -> Caller:
    """A dependency of routes: whoever may look."""
    gate: Gate = request.app.state.context.gate
    return await gate.admit(request)


async def admin(request: Request) -> Caller:
    """A dependency of routes: only admins."""
    found = await caller(request)
    if found.role is not Role.ADMIN:
        raise Problem(403, "this is for admins", "Use a token that was made with e3 token create --role admin.")
    return found
