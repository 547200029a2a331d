"""Requests under an idempotency key: sent twice, carried out once, also when the process that began one died."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from comfyui_agent.store.operation import Operation, column, statement, transition
from comfyui_agent.store.port import Session

KEPT_DAYS = 7


@dataclass(frozen=True)
class KeyClaim:
    """A key that counts once: whoever sends it again is refused."""

    key: str
    scope: str


class KeyUsed(Exception):
    """The key was used before, for what is named."""

    def __init__(self, made: str) -> None:
        super().__init__(f"the key was used for {made}")
        self.made = made


@dataclass(frozen=True)
class Begun:
    """The key is new. Carry the request out, then finish or drop it."""


@dataclass(frozen=True)
class Repeated:
    """The request was carried out before. This was the answer."""

    status: int
    answer: str


@dataclass(frozen=True)
class Busy:
    """A live process is carrying it out."""


@dataclass(frozen=True)
class Different:
    """The key was used for another request."""


@dataclass(frozen=True)
class TakenOver:
    """The process that carried it out died. The caller goes on; `made` may exist already."""

    made: str


Beginning: TypeAlias = Begun | Repeated | Busy | Different | TakenOver


@transition
def begin_request(
    session: Session, key: str, scope: str, digest: str, creator: str, made: str, host: str, *, is_alone: bool
) -> Beginning:
    """Note that `creator` is about to make something, or why it need not. `is_alone`: an earlier try was given up."""
    session.run("prune_requests", days=KEPT_DAYS)
    keys = {"key": key, "scope": scope}
    row = None
    while row is None:  # another process may drop it at this moment
        if session.run("begin_request", **keys, digest=digest, creator=creator, made=made):
            return Begun()
        row = session.one("find_request", **keys, host=host)
    if row["digest"] != digest:
        return Different()
    if row["status"] is not None:
        return Repeated(row["status"], row["answer"] or "")
    if not (is_alone if row["creator"] == creator else row["is_creator_dead"]):
        return Busy()
    session.run("take_over_request", **keys, creator=creator)
    return TakenOver(row["made"])


finish_request: Operation[[str, str, int, str], int] = statement("finish_request", "key", "scope", "status", "answer")
drop_request: Operation[[str, str], int] = statement("drop_request", "key", "scope")


def claim_key(session: Session, claim: KeyClaim, made: str) -> None:
    """Use up a key in the transaction that makes something, for a day. KeyUsed if it was used before."""
    if not session.run("claim_key", **vars(claim), made=made):
        raise KeyUsed(session.value("made_under_key", **vars(claim)) or "")


made_under_key: Operation[[str, str], list[str]] = column(list, "made_under_key", "key", "scope")
"""What was made under a key that counts once: one name, or none."""
release_key: Operation[[str, str], int] = statement("release_key", "key", "scope")
"""What was made is not there any more, so the key may be used again."""
