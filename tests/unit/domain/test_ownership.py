"""Who may change what."""

from __future__ import annotations

from comfyui_agent.domain.tokens import Role, Token, rights_of

MINE, OTHERS, NOBODYS = 7, 8, None


def token(role: Role, *, is_shared: bool = False) -> Token:
    return Token(MINE, "studio", role, "hash", "2026-01-01 00:00:00.000", is_shared)


def test_admins_and_shared_tokens_change_everything_and_users_their_own() -> None:
    for role, shown, covered in [
        (Role.ADMIN, None, {MINE, OTHERS, NOBODYS}),
        (Role.ADMIN, token(Role.ADMIN), {MINE, OTHERS, NOBODYS}),
        (Role.USER, token(Role.USER), {MINE}),
        (Role.USER, token(Role.USER, is_shared=True), {MINE, OTHERS, NOBODYS}),
        (Role.USER, None, set()),
        (Role.READ, token(Role.READ), set()),
        (Role.READ, token(Role.READ, is_shared=True), set()),
        (Role.METRICS, token(Role.METRICS), set()),
    ]:
        rights = rights_of(role, shown)
        assert {owner for owner in (MINE, OTHERS, NOBODYS) if rights.cover(owner)} == covered, (role, shown, covered)
