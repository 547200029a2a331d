"""Tokens: who may look and submit, and who may steer. Only their hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

PREFIX = "e3_"
RANDOM_BYTES = 32


class Role(str, Enum):
    """What a caller may do. An admin may do all that a user may."""

    USER = "user"
    ADMIN = "admin"

    def __str__(self) -> str:
        return self.value

    def includes(self, other: Role) -> bool:
        """Whether whoever has this role may do what needs the other."""
        return self is Role.ADMIN or other is Role.USER


@dataclass(frozen=True)
class Token:
    """A token as it is kept. What it was minted from cannot be read back."""

    id: int
    name: str
    role: Role
    hash: str
    created_at: str


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
