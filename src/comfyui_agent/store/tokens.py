"""Tokens and login sessions: names, roles, times and hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.tokens import IDLE_SECONDS, PROXY, SESSION_SECONDS, LoginSession, Role, Token, proxy_hash
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.operation import Operation, listing, query, statement, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record, text

MOST_SESSIONS = 200
"""Of one token. The one that was used longest ago is removed."""


@dataclass(frozen=True)
class Access:
    """Everything that decides who is admitted, at one moment."""

    is_closed: bool
    """Whether a token is needed: since the first token, until access is opened again."""
    tokens: tuple[Token, ...] = ()
    """Including revoked and expired ones of the last month."""
    sessions: Mapping[str, LoginSession] = field(default_factory=dict)
    """By hash. Some may have ended."""


@transition
def create_token(
    session: Session, name: str, role: Role, hash_: str, *, is_shared: bool = False, seconds: float | None = None
) -> Token:
    """Create a token and close access. The token of a user behind a proxy is changed if it exists."""
    values = {"role": role.value, "hash": hash_, "is_shared": is_shared, "seconds": seconds}
    session.run("close_access")
    row = session.one("update_enrolled", **values) if hash_.startswith(PROXY) else None
    row = row or session.one("create_token", name=name, **values)
    assert row is not None
    return record(Token, row)


@transition
def enrol_user(session: Session, user: str, role: Role, address: str = "") -> Token:
    """The token of a user whom a proxy logged in. It is made at the first visit, which the audit trail records."""
    is_new = session.run("enrol", name=user, role=role.value, hash=proxy_hash(user)) > 0
    row = session.one("token_by_hash", hash=proxy_hash(user))
    assert row is not None
    token = record(Token, row)
    if is_new:
        session.run("close_access")
        words = f"{token.id} ({user}, {role}), whom a proxy logged in"
        made = Event(EventName.AUDIT_TOKEN_CREATE, actor=f"token {token.id} ({user})", address=address or None)
        add_event(session, made, message=words)
    return token


list_tokens: Operation[[], list[Token]] = listing(Token, "tokens")
"""Every token, oldest first, including revoked and expired ones."""


@query
def token_name(session: Session, token_id: int | None) -> str | None:
    """The name of a token. None if there is no such token."""
    return text(session.value("token_name", id=token_id))


@query
def read_access(session: Session) -> Access:
    rows = session.rows("sessions", idle=IDLE_SECONDS, longest=SESSION_SECONDS)
    known = tuple(record(Token, row) for row in session.rows("remembered_tokens"))
    is_closed = session.one("access_state") is not None
    return Access(is_closed, known, {row["hash"]: record(LoginSession, row) for row in rows})


@transition
def revoke_token(session: Session, token_id: int) -> bool:
    """Revoke a token and end its sessions. Returns whether there was one."""
    session.run("end_sessions_of", token_id=token_id)
    return session.run("revoke_token", id=token_id) > 0


@transition
def open_access(session: Session, *, revoke: bool) -> list[Token]:
    """Let everyone on this machine in, unless there are valid tokens and `revoke` is not set. Returns those tokens."""
    valid = [token for token in list_tokens(session) if token.revoked_at is None]
    if revoke or not valid:
        for query in ("revoke_tokens", "end_sessions", "open_access"):
            session.run(query)
    return valid


@transition
def begin_session(session: Session, hash_: str, token_id: int) -> None:
    session.run("create_session", hash=hash_, token_id=token_id)
    _prune(session)


end_session: Operation[[str], int] = statement("end_session", "hash")


@transition
def note_uses(session: Session, uses: Iterable[tuple[int, str]]) -> None:
    """Note the use of tokens, each with its session; an empty text is no session."""
    for token_id, hash_ in uses:
        session.run("note_token_use", id=token_id)
        if hash_:
            session.run("note_session_use", hash=hash_)
    _prune(session)


def _prune(session: Session) -> None:
    session.run("prune_sessions", idle=IDLE_SECONDS, longest=SESSION_SECONDS, most=MOST_SESSIONS)
