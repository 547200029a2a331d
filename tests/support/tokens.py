"""Tokens and login sessions without a database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.domain.tokens import LoginSession, Role, Token, hash_of, proxy_hash
from comfyui_agent.store.tokens import Access
from support.stores import ScriptedStore

EARLIER, LATER = "2025-11-16 02:08:00.000", "2025-11-18 00:00:00.000"


@dataclass
class TokenMemory(ScriptedStore):
    """Tokens and sessions, and a version that goes up with every change."""

    known: list[Token] = field(default_factory=list)
    sessions: dict[str, LoginSession] = field(default_factory=dict)
    is_closed: bool = False
    noted: list[tuple[int, str]] = field(default_factory=list)
    version: int = 1
    reads: int = 0
    error: Exception | None = None
    delay: float = 0.0

    async def read_access(self) -> Access:
        self.reads += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        return Access(self.is_closed, tuple(self.known), dict(self.sessions))

    async def begin_session(self, hash_: str, token_id: int) -> None:
        self.sessions[hash_] = LoginSession(hash_, token_id, LATER)
        self.version += 1

    async def end_session(self, hash_: str) -> None:
        self.sessions.pop(hash_, None)
        self.version += 1

    async def enrol_user(self, user: str, role: Role, _: str) -> Token:
        return self.add("", role, name=user, hash=proxy_hash(user))

    async def note_uses(self, uses: set[tuple[int, str]]) -> None:
        if self.error is not None:
            raise self.error
        self.noted += uses

    def add(self, secret: str, role: Role, **facts: Any) -> Token:
        said = {"name": str(role), "hash": hash_of(secret), "created_at": EARLIER, **facts}
        token = Token(id=len(self.known) + 1, role=role, **said)
        self.known.append(token)
        self.is_closed = True
        self.version += 1
        return token
