"""Assets: files of programs, one row each, and keys that count once."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from comfyui_agent.domain.jobs import GATEWAY, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.assets import Asset
from comfyui_agent.store.idempotency import KeyClaim, KeyUsed
from comfyui_agent.store.posted_prompts import NewPrompt
from comfyui_agent.store.store import Store
from support.stores import Database, wish

DAY = 86_400.0
CLAIM = KeyClaim("k-1", "v2 job 1")
PROMPT = NewPrompt(None, None, False, {}, ["1"])


def new(**facts: object) -> Asset:
    asset = Asset(str(uuid.uuid4()), "b3", "sha.png", 100, "image/png", "cat.png", 1)
    return replace(asset, **facts)  # type: ignore[arg-type]


async def mint(store: Store, asset: Asset, seconds: float | None = None) -> Asset:
    return (await store.run(ops.mint_asset, asset, seconds))[0]


async def test_an_asset_is_seen_by_its_owner_and_by_who_may_see_all(store: Store) -> None:
    made = await mint(store, new())
    for owner, seen in ((1, made), (None, made), (2, None)):
        assert await store.run(ops.find_asset, made.id, owner) == seen
        assert await store.run(ops.assets_of_hash, "b3", owner) == ([seen] if seen else [])
        assert await store.run(ops.assets_named, ["cat.png", "dog.png"], owner) == ([seen] if seen else [])
    assert await store.run(ops.remove_asset, made.id, 2) == 0
    assert await store.run(ops.remove_asset, made.id, 1) == 1


async def test_an_identical_asset_is_the_same_and_lasts_longer(store: Store, database: Database) -> None:
    first = await mint(store, new(), DAY)
    shorter, is_new = await store.run(ops.mint_asset, new(), 60.0)
    assert (shorter, is_new) == (first, False)
    longer = await mint(store, new(), 2 * DAY)
    assert (longer.id, longer.expires_at) > (first.id, first.expires_at)
    assert (await mint(store, new())).expires_at is None
    assert (await mint(store, new(), DAY)).expires_at is None, "for ever stays for ever"
    others = [new(file_path="dog.png"), new(created_by=2), new(created_by=None), new(hash="b4")]
    assert all([(await store.run(ops.mint_asset, other, None))[1] for other in others])


async def test_its_file_is_kept_until_it_expires(store: Store, database: Database) -> None:
    made = await mint(store, new(), DAY)
    assert await store.run(ops.kept_pictures) == {"sha.png"}
    database.clock.advance(DAY + 1)
    assert await store.run(ops.kept_pictures) == frozenset()
    assert await store.run(ops.find_asset, made.id, 1) is None
    assert (await mint(store, new())).id != made.id
    assert await store.run(ops.forget_expired_assets) == 1


async def test_what_an_open_job_of_its_owner_uses_stays(store: Store) -> None:
    made, other = await mint(store, new()), await mint(store, new(created_by=2))
    job = wish("p", source=GATEWAY, template=Template.of({}), pictures={"1.image": "sha.png"}, created_by=1)
    posted = await store.run(ops.post_prompt, job, PROMPT)
    assert posted is not None
    assert await store.run(ops.remove_asset, made.id, 1) == 0
    assert await store.run(ops.remove_asset, other.id, 2) == 1
    await store.run(ops.cancel_jobs, [posted[0]])
    assert await store.run(ops.remove_asset, made.id, 1) == 1


async def test_a_key_counts_once_a_day_for_what_was_made_with_it(store: Store, database: Database) -> None:
    def job(name: str) -> object:
        return wish(name, source=GATEWAY, template=Template.of({}))

    assert await store.run(ops.post_prompt, job("first"), PROMPT, None, CLAIM) is not None
    with pytest.raises(KeyUsed) as used:
        await store.run(ops.post_prompt, job("second"), PROMPT, None, CLAIM)
    assert used.value.made == "first"
    assert [each.config_name for each in await store.run(ops.list_jobs)] == ["first"]
    assert await store.run(ops.mint_asset, new(), None, replace(CLAIM, scope="v2 asset 1"))
    assert await store.run(ops.release_key, CLAIM.key, CLAIM.scope) == 1
    assert await store.run(ops.post_prompt, job("second"), PROMPT, None, CLAIM) is not None
    assert await store.run(ops.made_under_key, CLAIM.key, CLAIM.scope) == ["second"]
    database.clock.advance(DAY + 1)
    assert await store.run(ops.made_under_key, CLAIM.key, CLAIM.scope) == []
    assert await store.run(ops.post_prompt, job("third"), PROMPT, None, CLAIM) is not None
