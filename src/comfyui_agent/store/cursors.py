"""Cursors: the place where a page ended, as a text that comes back with the next request."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from comfyui_agent.store.rows import time_text

Key = int | float | str | bytes | datetime | None
"""What rows are ordered by. People write values of other types into a database, too."""

KEYS = (int, float, str, bytes, datetime, type(None))
FIRST_ID, LAST_ID = -(2**63), 2**63 - 1


class BadCursor(ValueError):
    """No page ended with this cursor, or the page belongs to another request."""


@dataclass(frozen=True)
class CursorPlace:
    """A row in an order: its value in the column that the order goes by, and its id."""

    key: Key
    id: int


def cursor_of(order: str, place: CursorPlace) -> str:
    """The cursor of a place in an order."""
    key: Any = place.key
    if isinstance(key, bytes):
        key = {"bytes": key.hex()}
    elif isinstance(key, datetime):
        key = {"time": time_text(key)}
    written = json.dumps([order, key, place.id], separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(written.encode("ascii")).decode("ascii").rstrip("=")


def place_of(cursor: str) -> tuple[str, CursorPlace]:
    """The order and the place that a cursor stands for. BadCursor if it stands for none."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order, key, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if isinstance(key, dict) and "time" in key:
            key = datetime.fromisoformat(key["time"]).replace(tzinfo=timezone.utc)
        elif isinstance(key, dict):
            key = bytes.fromhex(key["bytes"])
        elif isinstance(key, str):
            key.encode("utf-8")  # half of a surrogate pair is no text
        is_key = type(key) in KEYS and (type(key) is not int or FIRST_ID <= key <= LAST_ID)
        if is_key and isinstance(order, str) and type(row_id) is int and FIRST_ID <= row_id <= LAST_ID:
            return order, CursorPlace(key, row_id)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise BadCursor("the cursor is not one that a page ended with")
