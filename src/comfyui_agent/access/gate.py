"""Authentication by tokens, login sessions and trusted proxies. Without tokens, everyone on this machine is admin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone

from starlette.requests import HTTPConnection

from comfyui_agent.access.limits import WrongTokens
from comfyui_agent.access.origins import check_direct
from comfyui_agent.access.problem import Problem
from comfyui_agent.access.proxies import Proxies
from comfyui_agent.comfy.tasks import BackgroundTasks, end_tasks
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.tokens import (
    LoginSession,
    Rights,
    Role,
    Token,
    hash_of,
    matching,
    mint_session,
    proxy_hash,
    rights_of,
)
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.store.tokens import Access

log = logging.getLogger(__name__)

MOST_NOTED = 10_000
EVERYONE = "everyone"
"""The scope of all callers while there are no tokens."""
FRESH_SECONDS = 0.2
PATIENCE = 2.0
LONGEST_TOKEN = 200
NOTE_SECONDS = 60.0
READING = frozenset({"GET", "HEAD", "OPTIONS"})
BEARER = 'Bearer realm="E3"'


@dataclass(frozen=True)
class Caller:
    """Who sent a request. `token` is None only while no token is needed."""

    role: Role
    token: Token | None = None
    session: str = ""
    """The hash of the login session, if the request came with one."""
    address: str = field(default="", compare=False)
    """The client's address; behind a trusted proxy, the one that the proxy forwards."""

    @property
    def token_id(self) -> int | None:
        return None if self.token is None else self.token.id

    @property
    def scope(self) -> str:
        """The key under which requests of this caller are counted and remembered."""
        return EVERYONE if self.token is None else f"token {self.token_id}"

    @property
    def actor(self) -> str:
        """The caller's name in the audit trail."""
        return "this machine" if self.token is None else f"{self.scope} ({self.token.name})"

    @property
    def rights(self) -> Rights:
        """Which jobs, batches and books the caller may change."""
        return rights_of(self.role, self.token)


class Gate:
    """Finds out who sends a request, by tokens and sessions, and counts wrong tokens."""

    def __init__(self, store: Store, ui: Ui, *, serves_loopback: bool) -> None:
        self._store = store
        self._serves_loopback = serves_loopback
        self._new_role = Role(ui.proxy_user_role)
        self.proxies = Proxies(ui)
        self._access = Access(is_closed=True)
        self._version = -1
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.wrong_tokens = WrongTokens(store)
        self._noted: dict[tuple[int, str], float] = {}
        self._background = BackgroundTasks("noting when a token was used")

    @asynccontextmanager
    async def auditing(self) -> AsyncIterator[None]:
        """Write wrong tokens to the audit trail meanwhile, and end what the gate still does."""
        writing = asyncio.create_task(self.wrong_tokens.keep_auditing())
        try:
            yield
        finally:
            await end_tasks([writing])
            await self.close()
            await self.wrong_tokens.audit()

    async def close(self) -> None:
        await self._background.stop()

    async def is_open(self) -> bool:
        """Whether no token is needed, because only this machine can connect."""
        return self._serves_loopback and not self.proxies.are_set and not (await self._known()).is_closed

    async def admit(self, request: HTTPConnection) -> Caller:
        """Return the caller. Problem 401 without a valid token or session, 429 after too many wrong tokens."""
        address = self.proxies.client_of(request)
        if await self.is_open():
            check_direct(request.headers)
            return Caller(Role.ADMIN, address=address)
        secret = bearer_of(request)
        if secret:
            return await self.check(secret, address)
        cookie = session_of(request)
        if secret is None and cookie:
            caller = await self._of_session(hash_of(cookie[:LONGEST_TOKEN]), address)
            if caller is not None:
                return caller
        user = self.proxies.user_of(request) if secret is None else None
        if user is not None:
            return await self._of_proxy(user, address)
        if cookie:
            raise _unauthorized("this session has ended", "Log in again at /login.", BEARER)
        raise _unauthorized(
            "this needs a token",
            "Make one with e3 token create; send it as Authorization: Bearer TOKEN, or log in at /login.",
            BEARER,
        )

    async def check(self, secret: str, address: str) -> Caller:
        token = matching(secret[:LONGEST_TOKEN], (await self._known()).tokens)
        if token is not None:  # even if others behind the same address have sent wrong ones
            _check_valid(token)
            return self._noted_use(Caller(token.role, token, address=address))
        self.wrong_tokens.count(address)
        raise _unauthorized("this token is not known here", "See e3 token ls; make another with e3 token create.")

    async def log_in(self, secret: str, request: HTTPConnection) -> tuple[Caller, str]:
        """Begin a session with a token, and end the browser's previous one. Returns the caller and the cookie value."""
        caller = await self.check(secret, self.proxies.client_of(request))
        assert caller.token is not None
        check_role(caller, Role.READ)
        await self.log_out(request)
        cookie = mint_session()
        await self._store.run(ops.begin_session, hash_of(cookie), caller.token.id)
        await self._read()
        return caller, cookie

    async def log_out(self, request: HTTPConnection) -> None:
        """End the browser's session, if it has one."""
        cookie = session_of(request)
        if cookie:
            await self._store.run(ops.end_session, hash_of(cookie[:LONGEST_TOKEN]))
        await self._read()

    async def still_admits(self, caller: Caller) -> bool:
        """Whether a caller who was admitted earlier would be admitted now."""
        if caller.token is None:
            return await self.is_open()
        known = await self._known()
        is_valid = caller.token in known.tokens and caller.token.is_valid(now())
        return is_valid and (not caller.session or _is_live(known.sessions.get(caller.session)))

    async def _of_session(self, session_hash: str, address: str) -> Caller | None:
        known = await self._known()
        session = known.sessions.get(session_hash)
        token = next((each for each in known.tokens if session is not None and each.id == session.token_id), None)
        if token is None or not token.is_valid(now()) or not _is_live(session):
            return None
        return self._noted_use(Caller(token.role, token, session_hash, address))

    async def _of_proxy(self, user: str, address: str) -> Caller:
        """Return a user of a trusted proxy. The first time, a token without a secret is made for them."""
        known = (await self._known()).tokens
        token = next((each for each in known if each.hash == proxy_hash(user)), None)
        if token is None:
            token = await self._store.run(ops.enrol_user, user, self._new_role, address)
            await self._read()
        _check_valid(token)
        return self._noted_use(Caller(token.role, token, address=address))

    async def _known(self) -> Access:
        """Return the current tokens and sessions; while the database cannot be read, the last known ones."""
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

    def _noted_use(self, caller: Caller) -> Caller:
        """Record in the background, at most once a minute, that a token was used. Returns the caller."""
        assert caller.token is not None
        use, moment = (caller.token.id, caller.session), time.monotonic()
        if moment - self._noted.get(use, -NOTE_SECONDS) >= NOTE_SECONDS:
            if len(self._noted) >= MOST_NOTED:
                self._noted.clear()
            self._noted[use] = moment
            self._background.start(self._note(use))
        return caller

    async def _note(self, use: tuple[int, str]) -> None:
        try:
            await self._store.run(ops.note_uses, {use})
        except StoreError as error:
            log.info("when tokens were used could not be noted: %s", error)


def now() -> str:
    """The time as the database writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _is_live(session: LoginSession | None) -> bool:
    return session is not None and not session.has_ended(now())


def _check_valid(token: Token) -> None:
    """401 for a token that has ended. Its holder may know why."""
    if token.revoked_at is not None:
        raise _unauthorized("this token was revoked", "Ask whoever runs E3 for another.")
    if token.has_expired(now()):
        raise _unauthorized("this token has expired", "Make another with e3 token create.")


def _unauthorized(detail: str, remedy: str, challenge: str = f'{BEARER}, error="invalid_token"') -> Problem:
    return Problem(401, detail, remedy, headers={"WWW-Authenticate": challenge})


def bearer_of(request: HTTPConnection) -> str | None:
    """The token in the Authorization header. None if there is no such header."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def cookie_of(request: HTTPConnection, *, is_secure: bool) -> str:
    """The name of the session cookie. It has the port, because browsers share cookies between ports of a host."""
    name = f"e3_session_{(request.scope.get('server') or ('', 0))[1]}"
    return f"__Host-{name}" if is_secure else name


def session_of(request: HTTPConnection) -> str:
    """The value of the session cookie. Under TLS only the `__Host-` one counts, which sibling domains cannot set."""
    value = request.cookies.get(cookie_of(request, is_secure=True), "")
    if value or request.scope.get("scheme") == "https":
        return value
    return request.cookies.get(cookie_of(request, is_secure=False), "")


async def while_admitted(gate: Gate, caller: Caller, parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Pass a stream on until its caller's token or session ends."""
    async with aclosing(parts):
        async for part in parts:
            if not await gate.still_admits(caller):
                return
            yield part


def check_role(caller: Caller, needed: Role) -> None:
    """403 unless the caller's role includes the needed one."""
    if caller.role.includes(needed):
        return
    if needed is Role.ADMIN:
        raise Problem(403, "this is for admins", "Use a token that was made with e3 token create --role admin.")
    may = "look, not change anything" if caller.role is Role.READ else "ask for /metrics only"
    remedy = f"Use one of the role {needed}: e3 token create."
    raise Problem(403, f"a token of the role {caller.role} may {may}", remedy)
