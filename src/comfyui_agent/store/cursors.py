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
    written = json.dumps([order, _written(place.key), place.id], separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(written.encode("ascii")).decode("ascii").rstrip("=")


def place_of(cursor: str) -> tuple[str, CursorPlace]:
    """The order and the place that a cursor stands for. BadCursor if it stands for none."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order, written, row_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        key = _read(written)
        is_known = isinstance(order, str) and type(row_id) is int and FIRST_ID <= row_id <= LAST_ID
        if is_known and _is_key(key):
            return order, CursorPlace(key, row_id)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise BadCursor("the cursor is not one that a page ended with")


def _written(key: Key) -> Any:
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    return {"time": time_text(key)} if isinstance(key, datetime) else key


def _read(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    if "time" in written:
        return datetime.fromisoformat(written["time"]).replace(tzinfo=timezone.utc)
    return bytes.fromhex(written["bytes"])


def _is_key(key: object) -> bool:
    if isinstance(key, bool):
        return False
    if isinstance(key, int):
        return FIRST_ID <= key <= LAST_ID
    if isinstance(key, str):
        key.encode("utf-8")  # half of a surrogate pair is no text
    return key is None or isinstance(key, (float, str, bytes, datetime))
