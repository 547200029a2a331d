"""Tokens in the database: hashes that can be listed and revoked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comfyui_agent.domain.tokens import IDLE_SECONDS, SESSION_SECONDS, Role, hash_of, matching, mint_token
from comfyui_agent.store import operations as ops
from comfyui_agent.store import tokens
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from support.stores import Database


async def test_a_token_is_known_until_it_is_revoked(store: Store, database: Database) -> None:
    secrets = {role: mint_token() for role in Role}
    made = [await store.run(ops.create_token, f"for {role}", role, hash_of(secret)) for role, secret in secrets.items()]
    assert [(token.name, token.role) for token in made] == [(f"for {role}", role) for role in Role]
    assert made[0].created_at == database.clock.text()
    other = database.open()
    assert await other.run(ops.list_tokens) == made
    assert matching(secrets[Role.ADMIN], await other.run(ops.list_tokens)) == made[-1]
    assert await other.run(ops.revoke_token, made[0].id) is True
    assert await store.run(ops.revoke_token, made[0].id) is False
    revoked = replace(made[0], revoked_at=database.clock.text())
    assert await store.run(ops.list_tokens) == [revoked, *made[1:]], "its name stays known"


async def test_the_token_itself_is_nowhere_in_the_database(store: Store, database: Database) -> None:
    secret = mint_token()
    await store.run(ops.create_token, "mine", Role.ADMIN, hash_of(secret))
    (row,) = database.by_hand("SELECT * FROM tokens")
    times = {"created_at", "expires_at", "last_used_at", "revoked_at"}
    assert set(row) == {"id", "name", "role", "hash", "is_shared"} | times
    assert not [value for value in row.values() if secret in str(value)]


async def test_an_id_is_never_given_again(store: Store) -> None:
    first = await store.run(ops.create_token, "a", Role.USER, hash_of("a"))
    await store.run(ops.revoke_token, first.id)
    assert (await store.run(ops.create_token, "b", Role.USER, hash_of("b"))).id > first.id


async def test_the_same_token_cannot_be_kept_twice(store: Store) -> None:
    await store.run(ops.create_token, "a", Role.USER, hash_of("same"))
    with pytest.raises(StoreError):
        await store.run(ops.create_token, "b", Role.ADMIN, hash_of("same"))
    assert [token.name for token in await store.run(ops.list_tokens)] == ["a"]


async def test_a_token_may_be_shared_and_expire(store: Store, database: Database) -> None:
    began = database.clock.text()
    made = await store.run(ops.create_token, "a", Role.USER, hash_of("a"), is_shared=True, seconds=3600)
    database.clock.advance(3600)
    assert (made.is_shared, made.expires_at) == (True, database.clock.text())
    assert made.is_valid(began)
    assert not made.is_valid(database.clock.text())


async def test_access_is_closed_from_the_first_token_until_it_is_opened(store: Store) -> None:
    assert not (await store.run(ops.read_access)).is_closed
    first = await store.run(ops.create_token, "a", Role.USER, hash_of("a"))
    await store.run(ops.begin_session, "s", first.id)
    assert await store.run(ops.open_access, revoke=False) == [first]
    assert (await store.run(ops.read_access)).is_closed, "tokens are not revoked unasked"
    assert await store.run(ops.open_access, revoke=True) == [first]
    access = await store.run(ops.read_access)
    assert (access.is_closed, access.sessions) == (False, {})
    assert access.tokens[0].revoked_at is not None
    second = await store.run(ops.create_token, "b", Role.USER, hash_of("b"))
    await store.run(ops.revoke_token, second.id)
    assert (await store.run(ops.read_access)).is_closed, "the last token opens nothing"
    assert await store.run(ops.open_access, revoke=False) == []
    assert not (await store.run(ops.read_access)).is_closed


async def test_a_session_ends_when_it_is_idle_when_it_is_old_and_with_its_token(
    store: Store, database: Database
) -> None:
    assert (IDLE_SECONDS, SESSION_SECONDS) == (12 * 3600, 7 * 24 * 3600), "as docs/security.md says"
    token, other = [await store.run(ops.create_token, name, Role.USER, hash_of(name)) for name in "ab"]
    await store.run(ops.begin_session, "idle", token.id)
    await store.run(ops.begin_session, "used", token.id)
    await store.run(ops.begin_session, "other", other.id)
    for _ in range(SESSION_SECONDS // IDLE_SECONDS * 2 - 1):
        database.clock.advance(IDLE_SECONDS / 2)
        await store.run(ops.note_uses, {(token.id, "used"), (other.id, "other")})
        live = (await store.run(ops.read_access)).sessions
        assert not live["used"].has_ended(database.clock.text())
    assert set(live) == {"used", "other"}, "what has ended is forgotten"
    await store.run(ops.revoke_token, other.id)
    assert set((await store.run(ops.read_access)).sessions) == {"used"}
    database.clock.advance(IDLE_SECONDS / 2)
    assert (await store.run(ops.read_access)).sessions["used"].has_ended(database.clock.text()), (
        "after seven days, used or not"
    )
    await store.run(ops.begin_session, "new", token.id)
    await store.run(ops.end_session, "new")
    database.clock.advance(1)
    await store.run(ops.note_uses, [(token.id, "")])
    assert (await store.run(ops.read_access)).sessions == {}


async def test_a_use_is_written_at_most_once_a_minute(store: Store, database: Database) -> None:
    token = await store.run(ops.create_token, "a", Role.USER, hash_of("a"))
    await store.run(ops.begin_session, "s", token.id)
    database.clock.advance(100)
    first = database.clock.text()
    for _ in range(6):
        await store.run(ops.note_uses, [(token.id, "s")])
        database.clock.advance(10)
    rows = database.by_hand("SELECT last_used_at, used_at FROM tokens, sessions")
    assert rows == [{"last_used_at": first, "used_at": first}]


async def test_one_token_has_only_so_many_sessions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_SESSIONS", 3)
    token, other = [await store.run(ops.create_token, name, Role.USER, hash_of(name)) for name in "ab"]
    await store.run(ops.begin_session, "other", other.id)
    for number in range(10):
        await store.run(ops.begin_session, str(number), token.id)
    kept = (await store.run(ops.read_access)).sessions
    assert len(kept) == 4
    assert "other" in kept


async def test_somebody_behind_a_proxy_is_enrolled_once_and_can_be_changed(store: Store) -> None:
    anna = await store.run(ops.enrol_user, "anna", Role.USER, "10.0.0.7")
    assert (await store.run(ops.read_access)).is_closed
    assert await store.run(ops.enrol_user, "anna", Role.ADMIN) == anna, "the role of somebody who is known stays"
    await store.run(ops.revoke_token, anna.id)
    assert (await store.run(ops.enrol_user, "anna", Role.USER)).revoked_at is not None
    [row] = await store.run(ops.audit_trail)
    assert (row.name, row.actor, row.address) == ("audit.token.create", "token 1 (anna)", "10.0.0.7")
    assert row.message == "1 (anna, user), whom a proxy logged in"
    changed = await store.run(ops.create_token, "anna", Role.ADMIN, anna.hash)
    assert (changed.id, changed.role, changed.revoked_at) == (anna.id, Role.ADMIN, None)


async def test_tokens_that_ended_long_ago_are_listed_and_not_held_in_mind(store: Store, database: Database) -> None:
    revoked = await store.run(ops.create_token, "revoked", Role.USER, hash_of("a"))
    expired = await store.run(ops.create_token, "expired", Role.USER, hash_of("b"), seconds=60)
    valid = await store.run(ops.create_token, "valid", Role.USER, hash_of("c"))
    anna = await store.run(ops.enrol_user, "anna", Role.USER)
    for token in (revoked, anna):
        await store.run(ops.revoke_token, token.id)
    ids = [token.id for token in (revoked, expired, valid, anna)]
    assert [token.id for token in (await store.run(ops.read_access)).tokens] == ids
    database.clock.advance(31 * 24 * 3600)
    assert [token.id for token in (await store.run(ops.read_access)).tokens] == [valid.id, anna.id], (
        "anna stays shut out"
    )
    assert [token.id for token in await store.run(ops.list_tokens)] == ids
