"""Requests under an idempotency key: sent twice, carried out once, also when the process that began one died."""

from __future__ import annotations

from comfyui_agent.domain.idempotency import Beginning, Begun, Busy, Different, Repeated, TakenOver
from comfyui_agent.store.operation import transition
from comfyui_agent.store.port import Session

KEPT_DAYS = 7


@transition
def begin_request(
    session: Session, key: str, scope: str, digest: str, creator: str, made: str, host: str, *, is_alone: bool
) -> Beginning:
    """Note that `creator` is about to make something, or tell why it need not.

    `is_alone`: no other request of this creator is under way with the key, so one that it began before was given up.
    """
    session.run("prune_requests", days=KEPT_DAYS)
    keys = {"key": key, "scope": scope}
    if session.run("begin_request", **keys, digest=digest, creator=creator, made=made):
        return Begun()
    row = session.one("find_request", **keys, host=host)
    assert row is not None
    if row["digest"] != digest:
        return Different()
    if row["status"] is not None:
        return Repeated(row["status"], row["answer"] or "")
    if not (is_alone if row["creator"] == creator else row["is_creator_dead"]):
        return Busy()
    session.run("take_over_request", **keys, creator=creator)
    return TakenOver(row["made"])


@transition
def finish_request(session: Session, key: str, scope: str, status: int, answer: str) -> None:
    session.run("finish_request", key=key, scope=scope, status=status, answer=answer)


@transition
def drop_request(session: Session, key: str, scope: str) -> None:
    session.run("drop_request", key=key, scope=scope)
