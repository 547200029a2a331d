"""Frames of the websocket are understood or ignored; none is an error."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.comfy.frames import LONGEST_TEXT, Event, Preview, read_binary, read_text


def with_metadata(metadata: Any, image: bytes = b"picture") -> bytes:
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    return struct.pack(">II", 4, len(text)) + text + image


def test_a_text_frame_is_an_event_about_a_prompt() -> None:
    frame = '{"type": "executing", "data": {"node": "3", "prompt_id": "abc"}}'
    assert read_text(frame) == Event("executing", "abc", {"node": "3", "prompt_id": "abc"})


def test_an_event_of_another_shape_is_about_no_prompt() -> None:
    for data in ["null", "[]", "5", '"text"', '{"prompt_id": 7}']:
        event = read_text(f'{{"type": "executed", "data": {data}}}')
        assert event is not None, data
        assert event.prompt_id == "", data


def test_nan_is_read_as_servers_write_it() -> None:
    event = read_text('{"type": "progress", "data": {"value": NaN}}')
    assert event is not None
    assert event.data["value"] != event.data["value"]


def test_text_that_is_no_event_is_ignored() -> None:
    for frame in ["", "{", "null", "[]", "5", "{}", '{"type": 5}', '{"type": null}', "[" * 100_000, "9" * 5_000]:
        assert read_text(frame) is None, frame


def test_text_beyond_the_limit_is_not_parsed() -> None:
    assert read_text('{"type": "x", "data": {"a": "' + "y" * LONGEST_TEXT + '"}}') is None


def test_an_old_preview_has_a_picture_and_a_kind() -> None:
    for number, mimetype in [(1, "image/jpeg"), (2, "image/png")]:
        assert read_binary(struct.pack(">II", 1, number) + b"picture") == Preview(b"picture", mimetype), (
            number,
            mimetype,
        )


def test_a_new_preview_tells_its_node_and_prompt() -> None:
    frame = with_metadata({"image_type": "image/png", "node_id": "3", "prompt_id": "abc", "more": 1})
    assert read_binary(frame) == Preview(b"picture", "image/png", "3", "abc")


def test_metadata_of_wrong_types_tells_nothing() -> None:
    for metadata in [{}, {"node_id": 3}, {"prompt_id": ["x"], "image_type": None}]:
        assert read_binary(with_metadata(metadata)) == Preview(b"picture", ""), metadata


def test_binary_that_is_no_preview_is_ignored() -> None:
    for frame in [
        b"",
        b"\0\0\0\1",
        b"\0\0\0\1\0\0\0",
        struct.pack(">II", 1, 9) + b"picture",
        struct.pack(">II", 3, 1) + b"1text",
        struct.pack(">II", 99, 1) + b"x",
        struct.pack(">II", 4, 2**32 - 1) + b"{}",
        struct.pack(">II", 4, 3) + b"{}",
        with_metadata(b"\xff\xfe"),
        with_metadata(b"not json"),
        with_metadata([1, 2]),
        with_metadata(b"[" * 50_000),
    ]:
        assert read_binary(frame) is None, frame


@given(st.binary())
def test_no_binary_frame_is_an_error(frame: bytes) -> None:
    read_binary(frame)
    read_binary(struct.pack(">I", 4) + frame)


@given(st.text())
def test_no_text_frame_is_an_error(frame: str) -> None:
    read_text(frame)
    read_text('{"type": "x", "data": ' + frame + "}")
