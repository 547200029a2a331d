"""Cursors: what a page ended with comes back as it was, and anything else is refused in words."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.store.job_orders import FIRST_ID, LAST_ID, BadCursor, CursorPlace, Key, cursor_of, place_of

IDS = st.integers(FIRST_ID, LAST_ID)
TIMES = st.datetimes(timezones=st.just(timezone.utc)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
KEYS = st.one_of(st.none(), IDS, st.floats(allow_nan=False), st.text(), st.binary(), TIMES)


def written(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


@given(st.text(st.characters(codec="utf-8")), KEYS, IDS)
def test_whatever_rows_are_ordered_by_comes_back_as_it_was(order: str, key: Key, row_id: int) -> None:
    cursor = cursor_of(order, CursorPlace(key, row_id))
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
    found, place = place_of(cursor)
    assert (found, place) == (order, CursorPlace(key, row_id))
    assert type(place.key) is type(key)


def test_a_document_that_no_page_ended_with_is_refused() -> None:
    documents = [
        None,
        7,
        "done",
        [],
        {},
        ["done", 1],
        ["done", 1, 2, 3],
        [1, 1, 1],
        ["done"],
        [None],
        [[]],
        ["done", 1, "2"],
        ["done", 1, 2.0],
        ["done", 1, True],
        ["done", True, 1],
        ["done", 1, None],
        ["done", 1, LAST_ID + 1],
        ["done", FIRST_ID - 1, 1],
        ["done", [], 1],
        ["done", {}, 1],
        ["done", {"b": "00"}, 1],
        ["done", {"bytes": "xyz"}, 1],
        ["done", {"bytes": 7}, 1],
        ["done", {"time": "yesterday"}, 1],
        ["done", {"time": 7}, 1],
        ["done", "\ud800", 1],
        {"0": "done", "1": 1, "2": 1},
    ]
    for document in documents:
        with pytest.raises(BadCursor) as caught:
            pytest.fail(f"{document!r} is {place_of(written(document))}")
        assert "the cursor is not one that a page ended with" in str(caught.value), document


@given(st.one_of(st.text(), st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode())))
def test_any_text_is_a_place_or_refused_in_words(cursor: str) -> None:
    try:
        _, place = place_of(cursor)
    except BadCursor:
        return
    assert FIRST_ID <= place.id <= LAST_ID


def test_a_deep_document_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(BadCursor):
        place_of(deep)


def test_no_number_is_no_trouble() -> None:
    order, place = place_of(base64.urlsafe_b64encode(b'["done",NaN,1]').decode())
    assert order == "done"
    assert isinstance(place.key, float)
    assert math.isnan(place.key)
