"""Tokens as they are kept: names, roles and hashes."""

from __future__ import annotations

from comfyui_agent.domain.tokens import Role, Token
from comfyui_agent.store.port import Row, Session, text


def create(session: Session, name: str, role: Role, hash_: str) -> Token:
    row = session.one("create_token", name=name, role=role.value, hash=hash_)
    assert row is not None
    return _token(row)


def listed(session: Session) -> list[Token]:
    """The oldest first."""
    return [_token(row) for row in session.rows("tokens")]


def revoke(session: Session, token_id: int) -> bool:
    """Whether there was one of that id."""
    return session.run("revoke_token", id=token_id) > 0


def _token(row: Row) -> Token:
    return Token(
        id=row["id"],
        name=text(row["name"]) or "",
        role=Role(row["role"]),
        hash=text(row["hash"]) or "",
        created_at=text(row["created_at"]) or "",
    )
