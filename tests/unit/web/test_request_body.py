"""Reading the body of a request: its size, its speed, and that it is JSON."""

from __future__ import annotations

import asyncio

import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from comfyui_agent.access.problem import Problem
from comfyui_agent.web import request_body
from comfyui_agent.web.guard import LARGEST_BODY, SMALL_BODY
from comfyui_agent.web.request_body import (
    MOST_CONTAINERS,
    MOST_DEPTH,
    MOST_KEYS,
    MOST_VALUES,
    RequestBody,
    check_json,
)

JSON = Headers({"content-type": "application/json"})
MANY_KEYS = ",".join(f'"{number}":1' for number in range(MOST_KEYS)).encode()


async def test_a_body_of_which_too_much_is_announced_is_not_read() -> None:
    async def never() -> Message:
        raise AssertionError("it was read")

    with pytest.raises(Problem) as refused:
        await RequestBody(Headers({"content-length": "11"}), never).read(10)
    assert refused.value.status == 413


async def test_a_body_that_ends_early_is_refused() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(Problem, match="ended early"):
        await RequestBody(Headers({}), gone).read(10)


async def test_a_body_that_does_not_come_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.01)
    with pytest.raises(Problem) as refused:
        await RequestBody(Headers({}), never).read(10)
    assert (refused.value.status, refused.value.headers) == (408, {"Connection": "close"})


@pytest.mark.parametrize("first", [b"", b"x" * SMALL_BODY])
@pytest.mark.parametrize("every", [0.005, 60.0])
async def test_a_large_body_has_to_keep_coming(first: bytes, every: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places for large bodies are few: neither silence nor a byte now and then keeps one."""
    monkeypatch.setattr(request_body, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(request_body, "LEAST_RATE", 10 * SMALL_BODY)
    parts = [first]

    async def slowly() -> Message:
        if not parts:
            await asyncio.sleep(every)
        return {"type": "http.request", "body": parts.pop() if parts else b"x", "more_body": True}

    coming = RequestBody(Headers({"content-length": str(LARGEST_BODY)}), slowly)
    with pytest.raises(Problem, match="not sent in time"):
        await asyncio.wait_for(coming.read(LARGEST_BODY, keeps_coming=True), 5)


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'"x"', b"1", b"1e308", b'{"a": {"b": [1, 2.5, "\xc3\xa9"]}}'])
def test_json_is_taken(body: bytes) -> None:
    check_json(JSON, body)
    check_json(Headers({"content-type": "Application/JSON ; charset=utf-8"}), body)


def test_a_request_without_a_body_needs_no_kind() -> None:
    check_json(Headers({}), b"")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-1e999]", "no JSON"),
        (rb'"\ud800"', "half characters"),
        (rb'{"\ud800": 1}', "half characters"),
        (b'"\xff"', "no JSON"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1), "nested"),
        (b"[" * 10_000 + b"]" * 10_000, "nested"),
        (b"9" * 5000, "no JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_the_reason(body: bytes, words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        check_json(JSON, body)
    assert refused.value.status == 400
    assert len(refused.value.detail) < 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"pages":[' + b"1," * 1_900_000 + b"1]}", "1,900,002 values, and 250,000 is the most"),
        (b"[" + b"1," * MOST_VALUES + b"1]", "250,001 values"),
        (b"[" + b"{}," * 1_300_000 + b"{}]", "1,300,002 lists and objects, and 20,000 is the most"),
        (rb'["\\\"[","\\"' + b",[]" * MOST_CONTAINERS + b"]", "20,001 lists and objects"),
        (b"{" + MANY_KEYS + b',"a":1}', "1,001 keys in one object, and 1,000 is the most"),
        (b'[{"a":{' + MANY_KEYS + b',"a":1}}]', "1,001 keys"),
    ],
)
def test_more_than_can_be_read_at_once_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(Problem, match=words) as refused:
        check_json(JSON, body)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * (MOST_VALUES - 1) + b"1]",
        b"[" + b"{}," * (MOST_CONTAINERS - 2) + b"{}]",
        b"{" + MANY_KEYS + b"}",
        rb'["\\\"' + b"{,[" * MOST_VALUES + rb'\\"]',
    ],
)
def test_what_is_just_so_much_is_taken_and_texts_are_not_looked_into(body: bytes) -> None:
    check_json(JSON, body)


def test_json_may_be_nested_just_so_deep() -> None:
    check_json(JSON, b"[" * MOST_DEPTH + b"]" * MOST_DEPTH)


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/json-patch+json", "json", ""])
def test_another_kind_of_body_is_refused(kind: str) -> None:
    with pytest.raises(Problem) as refused:
        check_json(Headers({"content-type": kind}), b"{}")
    assert refused.value.status == 415
