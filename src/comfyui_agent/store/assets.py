"""Assets: files that programs uploaded, known by a UUID each. Several may have the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.store.idempotency import KeyClaim, claim_key
from comfyui_agent.store.operation import Operation, listing, query, statement, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record


@dataclass(frozen=True)
class Asset:
    """What a program uploaded, or wants to have another asset of. `hash` is BLAKE3, `kept` the kept input file."""

    id: str
    hash: str
    kept: str
    bytes: int
    content_type: str
    file_path: str | None
    created_by: int | None
    created_at: str = ""
    """The database says it."""
    expires_at: str | None = None


@transition
def mint_asset(
    session: Session, new: Asset, seconds: float | None, claim: KeyClaim | None = None
) -> tuple[Asset, bool]:
    """An asset that lasts so many seconds, or for ever, and whether it is new: an identical one lasts longer instead.

    KeyUsed, and nothing is made, if its idempotency key was used before.
    """
    facts = {name: value for name, value in vars(new).items() if not name.endswith("_at")}
    same = ("hash", "kept", "content_type", "file_path", "created_by")
    known = session.one("identical_asset", **{name: facts[name] for name in same})
    made = known["id"] if known is not None else new.id
    if claim is not None:
        claim_key(session, claim, made)
    if known is not None:
        session.run("extend_asset", id=made, seconds=seconds)
    else:
        session.run("insert_asset", **facts, seconds=seconds)
    row = session.one("find_asset", id=made, owner=None)
    assert row is not None
    return record(Asset, row), known is None


@query
def find_asset(session: Session, asset_id: str, owner: int | None) -> Asset | None:
    row = session.one("find_asset", id=asset_id, owner=owner)
    return None if row is None else record(Asset, row)


assets_of_hash: Operation[[str, int | None], list[Asset]] = listing(Asset, "assets_of_hash", "hash", "owner")
assets_named: Operation[[Sequence[str], int | None], list[Asset]] = listing(Asset, "assets_named", "paths", "owner")
"""Those that were uploaded under one of these names, the newest last."""
remove_asset: Operation[[str, int | None], int] = statement("remove_asset", "id", "owner")
"""Not while an open job uses its file."""
forget_expired_assets: Operation[[], int] = statement("forget_expired_assets")
