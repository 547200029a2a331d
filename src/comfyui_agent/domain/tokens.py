"""Tokens, login sessions, and what their holders may change. Only hashes of secrets are stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from comfyui_agent.domain.texts import TextEnum

PREFIX = "e3_"
RANDOM_BYTES = 32
IDLE_SECONDS = 12 * 3600
SESSION_SECONDS = 7 * 24 * 3600
PROXY = "proxy:"
"""The prefix of a user name stored in place of a hash. No secret has such a hash."""
UNITS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
LONGEST_LIFE = 10 * 366 * 24 * 3600


class Role(TextEnum):
    """What a caller may do. Each role includes those above it."""

    METRICS = "metrics"
    READ = "read"
    USER = "user"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True)
class Token:
    """A token as it is stored, without its secret. A user logged in by a proxy has one that no secret matches."""

    id: int
    name: str
    role: Role
    hash: str
    created_at: str
    is_shared: bool = False
    expires_at: str | None = None
    last_used_at: str | None = field(default=None, compare=False)
    revoked_at: str | None = None

    def has_expired(self, now: str) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def is_valid(self, now: str) -> bool:
        """Whether it is accepted at a time, written as in the database."""
        return self.revoked_at is None and not self.has_expired(now)


@dataclass(frozen=True)
class LoginSession:
    """A login with a token in a browser."""

    hash: str
    token_id: int
    ends_at: str

    def has_ended(self, now: str) -> bool:
        return self.ends_at <= now


def mint_session() -> str:
    """The secret of a new session."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def proxy_hash(user: str) -> str:
    """The stored hash of a user logged in by a proxy."""
    return PROXY + user


def seconds_in(text: str) -> int:
    """The seconds of `30d`, `12h`, `90m` or `2w`. ValueError for anything else."""
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip())
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not 0 < seconds <= LONGEST_LIFE:
        raise ValueError(f"{text[:40]!r} is no time from 1m to ten years: write it as 30d, 12h, 90m or 2w")
    return seconds


def mint_token() -> str:
    """The secret of a new token. Store only its hash."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def hash_of(token: str) -> str:
    """The hash of a token. Tokens have 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def matching(token: str, tokens: Iterable[Token]) -> Token | None:
    """The token with this secret, found in constant time."""
    given = hash_of(token).encode("ascii")
    found: Token | None = None
    for known in tokens:
        if hmac.compare_digest(given, known.hash.encode("utf-8", "surrogatepass")):
            found = known
    return found


@dataclass(frozen=True)
class Rights:
    """What a caller may change: everything, what one token made, or nothing."""

    everything: bool = False
    token_id: int | None = None

    def cover(self, created_by: int | None) -> bool:
        """Whether a job, batch or book may be changed. `created_by` is None for files and the command line."""
        return self.everything or (self.token_id is not None and created_by == self.token_id)


ALL = Rights(everything=True)


def rights_of(role: Role, token: Token | None) -> Rights:
    """Admins and shared tokens change everything, users what their token made."""
    if not role.includes(Role.USER):
        return Rights()
    if role is Role.ADMIN or (token is not None and token.is_shared):
        return ALL
    return Rights(token_id=token.id if token is not None else None)
