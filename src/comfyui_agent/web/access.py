"""Who is asking: everyone on this machine until there is a token, then whoever shows one or has logged in."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timezone

from fastapi import Request

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.ownership import Rights, rights_of
from comfyui_agent.domain.tokens import LoginSession, Role, Token, hash_of, matching, mint_session, proxy_hash
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.store.tokens import Access
from comfyui_agent.web import failures
from comfyui_agent.web.failures import Failures
from comfyui_agent.web.problems import Problem
from comfyui_agent.web.proxies import Proxies, check_direct

log = logging.getLogger(__name__)

MOST_NOTED = 10_000
EVERYONE = "everyone"
"""Callers who cannot be told apart, because there are no tokens."""
FRESH_SECONDS = 0.2
PATIENCE = 2.0
LONGEST_TOKEN = 200
NOTE_SECONDS = 60.0
LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
BEARER = 'Bearer realm="E3"'


@dataclass(frozen=True)
class Caller:
    """Whoever asks. `token` is None only while none is needed; somebody whom a proxy has logged in has one."""

    role: Role
    token: Token | None = None
    session: str = ""
    """The hash of the session by which the token was used, if it was."""
    address: str = field(default="", compare=False)
    """From where; behind a trusted proxy, as the proxy says."""

    @property
    def scope(self) -> str:
        """Whose wishes these are."""
        return EVERYONE if self.token is None else f"token {self.token.id}"

    @property
    def actor(self) -> str:
        """Whoever asks, in the words of the audit trail."""
        return "this machine" if self.token is None else f"{self.scope} ({self.token.name})"

    @property
    def rights(self) -> Rights:
        """Which jobs, batches and books they may change."""
        return rights_of(self.role, self.token)


class Gate:
    """Knows tokens and sessions, and how often someone has shown a wrong token."""

    def __init__(self, store: Store, *, serves_loopback: bool, ui: Ui | None = None) -> None:
        self._store = store
        self._serves_loopback = serves_loopback
        self._new_role = Role((ui or Ui()).proxy_user_role)
        self.proxies = Proxies(ui or Ui())
        self._access = Access(is_closed=True)
        self._version = -1
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._failures = Failures()
        self._noted: dict[tuple[int, str], float] = {}
        self._uses: set[tuple[int, str]] = set()
        self._noting: asyncio.Task[None] | None = None
        self.on_failure: Callable[[str], None] = lambda _: None
        """Hears the address of whoever shows a wrong token."""

    async def close(self) -> None:
        await end_tasks([self._noting] if self._noting else [])

    async def is_open(self) -> bool:
        """Whether no token is needed, and only this machine can ask."""
        return self._serves_loopback and not self.proxies.are_set and not (await self._known()).is_closed

    async def admit(self, request: Request) -> Caller:
        """The caller, or why not: 401 without a token or with a wrong one, 429 after too many wrong ones."""
        address = self.proxies.client_of(request)
        if await self.is_open():
            check_direct(request.headers)
            return Caller(Role.ADMIN, address=address)
        shown = bearer_of(request)
        if shown:
            return await self.check(shown, address)
        cookie = session_of(request)
        if shown is None and cookie:
            found = await self._logged_in(hash_of(cookie[:LONGEST_TOKEN]), address)
            if found is not None:
                return found
        user = self.proxies.user_of(request) if shown is None else None
        if user is not None:
            return await self._proxied(user, address)
        if cookie:
            raise _unknown("this session has ended", "Log in again at /login.", BEARER)
        raise _unknown(
            "this needs a token",
            "Make one with e3 token create; send it as Authorization: Bearer TOKEN, or log in at /login.",
            BEARER,
        )

    async def check(self, shown: str, host: str) -> Caller:
        """The caller who has this token."""
        token = matching(shown[:LONGEST_TOKEN], (await self._known()).tokens)
        if token is not None:  # whatever others behind the same address have shown
            _check_valid(token)
            return self._noted_use(Caller(token.role, token, address=host))
        waits = self._failures.note(host)
        if waits > 0:
            seconds = math.ceil(waits)
            raise Problem(
                429,
                f"{failures.MOST} wrong tokens came from {host} within {failures.WINDOW_SECONDS:.0f} s",
                f"Wait {seconds} s, or send a right one.",
                headers={"Retry-After": str(seconds)},
            )
        self.on_failure(host)
        raise _unknown("this token is not known here", "See e3 token ls; make another with e3 token create.")

    async def log_in(self, shown: str, request: Request) -> tuple[Caller, str]:
        """Begin a session with a token; whose it is, and what its cookie holds.

        A session that the browser had before ends.
        """
        found = await self.check(shown, self.proxies.client_of(request))
        assert found.token is not None
        check_role(found, Role.READ)
        await self._end_session(request)
        secret = mint_session()
        await self._store.run(ops.begin_session, hash_of(secret), found.token.id)
        await self._read()
        return found, secret

    async def log_out(self, request: Request) -> None:
        await self._end_session(request)
        await self._read()

    async def still_admits(self, who: Caller) -> bool:
        """Whether a caller who was admitted would be now."""
        if who.token is None:
            return await self.is_open()
        known = await self._known()
        is_valid = who.token in known.tokens and who.token.is_valid(now())
        return is_valid and (not who.session or _is_live(known.sessions.get(who.session)))

    async def _logged_in(self, session: str, address: str) -> Caller | None:
        known = await self._known()
        found = known.sessions.get(session)
        token = next((each for each in known.tokens if found is not None and each.id == found.token_id), None)
        if token is None or not token.is_valid(now()) or not _is_live(found):
            return None
        return self._noted_use(Caller(token.role, token, session, address))

    async def _proxied(self, user: str, address: str) -> Caller:
        """Somebody whom a proxy has logged in. Whoever comes for the first time gets a token that nobody can show."""
        known = (await self._known()).tokens
        token = next((each for each in known if each.hash == proxy_hash(user)), None)
        if token is None:
            token = await self._store.run(ops.enrol_user, user, self._new_role, address)
            await self._read()
        _check_valid(token)
        return self._noted_use(Caller(token.role, token, address=address))

    async def _end_session(self, request: Request) -> None:
        cookie = session_of(request)
        if cookie:
            await self._store.run(ops.end_session, hash_of(cookie[:LONGEST_TOKEN]))

    async def _known(self) -> Access:
        """Who has access. While the database cannot be read, it is as it was known last."""
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
        return self._access

    async def _read(self) -> None:
        version = self._store.version
        self._access = await self._store.run(ops.read_access)
        self._version, self._read_at = version, time.monotonic()

    def _noted_use(self, who: Caller) -> Caller:
        """The same caller. That they were here is written down beside, at most once a minute."""
        assert who.token is not None
        use, moment = (who.token.id, who.session), time.monotonic()
        if moment - self._noted.get(use, -NOTE_SECONDS) >= NOTE_SECONDS:
            if len(self._noted) >= MOST_NOTED:
                self._noted.clear()
            self._noted[use] = moment
            self._uses.add(use)
            if self._noting is None or self._noting.done():
                self._noting = asyncio.create_task(self._note_uses())
        return who

    async def _note_uses(self) -> None:
        while self._uses:
            uses, self._uses = self._uses, set()
            try:
                await self._store.run(ops.note_uses, uses)
            except StoreError as error:
                log.info("when tokens were used could not be noted: %s", error)


def now() -> str:
    """As the database writes times."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _is_live(session: LoginSession | None) -> bool:
    return session is not None and not session.has_ended(now())


def _check_valid(token: Token) -> None:
    """Whoever has the token may know why it does not work any more."""
    if token.revoked_at is not None:
        raise _unknown("this token was revoked", "Ask whoever runs E3 for another.")
    if token.has_expired(now()):
        raise _unknown("this token has expired", "Make another with e3 token create.")


def _unknown(detail: str, remedy: str, challenge: str = f'{BEARER}, error="invalid_token"') -> Problem:
    return Problem(401, detail, remedy, headers={"WWW-Authenticate": challenge})


def bearer_of(request: Request) -> str | None:
    """The token in the header; None if there is no such header."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def cookie_of(request: Request, *, is_secure: bool) -> str:
    """The name of the session's cookie: browsers keep cookies by machine, and another E3 may have another port."""
    name = f"e3_session_{(request.scope.get('server') or ('', 0))[1]}"
    return f"__Host-{name}" if is_secure else name


def session_of(request: Request) -> str:
    """What the cookie holds. Under TLS only one counts that no other site under the same domain can have set."""
    held = request.cookies.get(cookie_of(request, is_secure=True), "")
    if held or request.scope.get("scheme") == "https":
        return held
    return request.cookies.get(cookie_of(request, is_secure=False), "")


async def while_admitted(gate: Gate, who: Caller, parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """A stream that ends where its listener's token does: nothing is told to whoever would not be admitted now."""
    async with aclosing(parts):
        async for part in parts:
            if not await gate.still_admits(who):
                return
            yield part


def check_role(who: Caller, needed: Role) -> None:
    """403 unless the caller may do what needs this role."""
    if who.role.includes(needed):
        return
    if needed is Role.ADMIN:
        raise Problem(403, "this is for admins", "Use a token that was made with e3 token create --role admin.")
    may = "look, not change anything" if who.role is Role.READ else "ask for /metrics only"
    raise Problem(403, f"a token of the role {who.role} may {may}", f"Use one of the role {needed}: e3 token create.")


async def scraper(request: Request) -> Caller:
    """A dependency of routes: whoever is admitted at all."""
    context = request.app.state.context
    gate: Gate = context.gate
    found = await gate.admit(request)
    if request.method in LOOKING:  # changes were counted before their bodies were read
        context.limits.count_read(found)
    return found


async def caller(request: Request) -> Caller:
    """A dependency of routes: whoever may look; to change something, whoever may do that."""
    found = await scraper(request)
    check_role(found, Role.READ if request.method in LOOKING else Role.USER)
    return found


async def admin(request: Request) -> Caller:
    """A dependency of routes: only admins."""
    found = await scraper(request)
    check_role(found, Role.ADMIN)
    return found
