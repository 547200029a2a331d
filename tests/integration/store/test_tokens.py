"""Tokens in the database: hashes that can be listed and revoked."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.tokens import Role, hash_of, matching, mint_token
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from support.stores import Database


async def test_a_token_is_known_until_it_is_revoked(store: Store, database: Database) -> None:
    secrets = {role: mint_token() for role in Role}
    made = [await store.create_token(f"for {role}", role, hash_of(secret)) for role, secret in secrets.items()]
    assert [(token.name, token.role) for token in made] == [("for user", Role.USER), ("for admin", Role.ADMIN)]
    assert made[0].created_at == database.clock.text()
    other = database.open()
    assert await other.tokens() == made
    assert matching(secrets[Role.ADMIN], await other.tokens()) == made[1]
    assert await other.revoke_token(made[0].id) is True
    assert await store.revoke_token(made[0].id) is False
    assert await store.tokens() == [made[1]]


async def test_the_token_itself_is_nowhere_in_the_database(store: Store, database: Database) -> None:
    secret = mint_token()
    await store.create_token("mine", Role.ADMIN, hash_of(secret))
    (row,) = database.by_hand("SELECT * FROM tokens")
    assert set(row) == {"id", "name", "role", "hash", "created_at"}
    assert not [value for value in row.values() if secret in str(value)]


async def test_an_id_is_never_given_again(store: Store) -> None:
    first = await store.create_token("a", Role.USER, hash_of("a"))
    await store.revoke_token(first.id)
    assert (await store.create_token("b", Role.USER, hash_of("b"))).id > first.id


async def test_the_same_token_cannot_be_kept_twice(store: Store) -> None:
    await store.create_token("a", Role.USER, hash_of("same"))
    with pytest.raises(StoreError):
        await store.create_token("b", Role.ADMIN, hash_of("same"))
    assert [token.name for token in await store.tokens()] == ["a"]
