"""Where a page ended, as a text that is handed out and comes back with the next question."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

Key = int | float | str | bytes | None
"""What rows are ordered by; people write all kinds of things into a database."""

FIRST_ID, LAST_ID = -(2**63), 2**63 - 1


class BadCursor(ValueError):
    """A cursor that no page ended with, or the page of another question."""


@dataclass(frozen=True)
class CursorPlace:
    """A row in an order: what it is ordered by, then its id."""

    key: Key
    id: int


def cursor_of(order: str, place: CursorPlace) -> str:
    """A text for a place in an order."""
    key = {"b": place.key.hex()} if isinstance(place.key, bytes) else place.key
    written = json.dumps([order, key, place.id], separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return base64.urlsafe_b64encode(written).decode("ascii").rstrip("=")


def place_of(cursor: str) -> tuple[str, CursorPlace]:
    """The order and the place that a cursor stands for."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order, said, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        key = bytes.fromhex(said["b"]) if isinstance(said, dict) else said
        is_known = isinstance(order, str) and type(row_id) is int and FIRST_ID <= row_id <= LAST_ID
        if is_known and _is_key(key):
            return order, CursorPlace(key, row_id)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise BadCursor("the cursor is not one that a page ended with")


def _is_key(key: object) -> bool:
    if isinstance(key, bool):
        return False
    if isinstance(key, int):
        return FIRST_ID <= key <= LAST_ID
    if isinstance(key, str):
        key.encode("utf-8")  # a lone half of a pair is no text
    return key is None or isinstance(key, (float, str, bytes))
