"""Tokens and login sessions: who may look, submit and steer. Only hashes of their secrets are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

PREFIX = "e3_"
RANDOM_BYTES = 32
IDLE_SECONDS = 12 * 3600
SESSION_SECONDS = 7 * 24 * 3600
PROXY = "proxy:"
"""Stands in front of a name in the place of a hash. No secret has such a hash."""
UNITS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
LONGEST_LIFE = 10 * 366 * 24 * 3600


class Role(str, Enum):
    """What a caller may do. Each may do what those above it in this list may."""

    METRICS = "metrics"
    READ = "read"
    USER = "user"
    ADMIN = "admin"

    def __str__(self) -> str:
        return self.value

    def includes(self, other: Role) -> bool:
        """Whether whoever has this role may do what needs the other."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True)
class Token:
    """A token as it is kept. The secret cannot be read back from it.

    Somebody whom a proxy has logged in has one, too: nothing matches its hash.
    """

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
        """Whether it admits anybody at this time, written as the database writes times."""
        return self.revoked_at is None and not self.has_expired(now)


@dataclass(frozen=True)
class LoginSession:
    """Someone who logged in with a token in a browser."""

    hash: str
    token_id: int
    ends_at: str

    def has_ended(self, now: str) -> bool:
        return self.ends_at <= now


def mint_session() -> str:
    """What the cookie of a new session holds."""
    return secrets.token_urlsafe(RANDOM_BYTES)


def proxy_hash(user: str) -> str:
    """What stands in the place of a hash for somebody whom a proxy has logged in."""
    return PROXY + user


def seconds_in(text: str) -> int:
    """The seconds in `30d`, `12h`, `90m` or `2w`; ValueError for anything else."""
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip())
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not 0 < seconds <= LONGEST_LIFE:
        raise ValueError(f"{text[:40]!r} is no time from 1m to ten years: write it as 30d, 12h, 90m or 2w")
    return seconds


def mint_token() -> str:
    """A new secret. Show it once, keep its hash."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def hash_of(token: str) -> str:
    """What is kept of a token. It has 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def matching(token: str, tokens: Iterable[Token]) -> Token | None:
    """The token that this text is. It takes as long whichever it is, and if it is none."""
    given = hash_of(token).encode("ascii")
    found: Token | None = None
    for known in tokens:
        if hmac.compare_digest(given, known.hash.encode("utf-8", "surrogatepass")):
            found = known
    return found
