"""Wishes under a key: asked for twice, made once, also when whoever was at it died."""

from __future__ import annotations

from collections.abc import Callable

from comfyui_agent.domain.idempotency import Beginning, Begun, Busy, Different, Repeated, TakenOver
from comfyui_agent.store.operation import transition
from comfyui_agent.store.port import Session

KEPT_DAYS = 7


@transition
def begin_request(
    session: Session, key: str, scope: str, digest: str, creator: str, made: str, is_dead: Callable[[str], bool]
) -> Beginning:
    """Note that this process is about to make something, or say why it need not."""
    session.run("prune_wishes", days=KEPT_DAYS)
    keys = {"key": key, "scope": scope}
    if session.run("begin_wish", **keys, digest=digest, creator=creator, made=made):
        return Begun()
    row = session.one("wish", **keys)
    assert row is not None
    if row["digest"] != digest:
        return Different()
    if row["status"] is not None:
        return Repeated(row["status"], row["answer"] or "")
    if not is_dead(row["creator"]):
        return Busy()
    session.run("take_wish_over", **keys, creator=creator)
    return TakenOver(row["made"])


@transition
def finish_request(session: Session, key: str, scope: str, status: int, answer: str) -> None:
    session.run("finish_wish", key=key, scope=scope, status=status, answer=answer)


@transition
def drop_request(session: Session, key: str, scope: str) -> None:
    session.run("drop_wish", key=key, scope=scope)
