"""Reading the body of a request within limits of size and time, and checking that it is JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from comfyui_agent.access.problem import Problem, ended_early
from comfyui_agent.domain.texts import is_whole, reject_constant

BODY_SECONDS = 30.0
SILENT_SECONDS = 5.0
LEAST_RATE = 10 * 1024
"""Bytes per second of a large body, after SILENT_SECONDS."""
MOST_VALUES = 250_000
MOST_CONTAINERS = 20_000
"""Lists and objects. Parsing this many takes the event loop about 50 ms."""
MOST_KEYS = 1_000
MOST_DEPTH = 60
LINGER_SECONDS = 1.0


class RequestBody:
    """Receives the messages of a request. A body that was read is handed out again with `replay`."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        length = headers.get("content-length", "")
        self._announced = int(length) if length.isdigit() else 0
        self._receive = receive
        self._parts: list[bytes] = []
        self._size = 0
        self._is_complete = False
        self._replayed: bytes | None = None

    async def __call__(self) -> Message:
        if self._replayed is not None:
            body, self._replayed = self._replayed, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await self._receive()
        self._is_complete = message["type"] != "http.request" or not message.get("more_body")
        return message

    def replay(self, body: bytes) -> None:
        """Hand out this body next."""
        self._replayed = body

    async def drain(self) -> None:
        """Discard the rest of the body for a moment: a client that is cut off while it sends misses the answer."""

        async def discard() -> None:
            while not self._is_complete:
                await self()

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(discard(), LINGER_SECONDS)

    async def read(self, largest: int, *, keeps_coming: bool = False) -> bytes:
        """Return the whole body. Problem 413 if it is larger, 408 if it takes too long."""
        if not await self.fits(largest, keeps_coming=keeps_coming):
            most = f"{largest // 1024**2} MB" if largest >= 1024**2 else f"{largest // 1024} KB"
            close = {"Connection": "close"}
            raise Problem(413, f"the request has more than {most}", "Send less at once.", headers=close)
        body, self._parts = b"".join(self._parts), []  # a large body is not held twice
        return body

    async def fits(self, largest: int, *, keeps_coming: bool = False) -> bool:
        """Read until the body is complete or exceeds `largest`, and say whether it fits.

        With `keeps_coming` a body that pauses or trickles times out early.
        """
        began, before = time.monotonic(), self._size
        while not self._is_complete and max(self._announced, self._size) <= largest:
            passed = time.monotonic() - began
            left = BODY_SECONDS - passed
            if keeps_coming:
                left = min(left, SILENT_SECONDS, SILENT_SECONDS + (self._size - before) / LEAST_RATE - passed)
            await self._read_part(left)
        return self._is_complete and self._size <= largest

    async def _read_part(self, timeout: float) -> None:
        try:
            message = await asyncio.wait_for(self(), timeout)
        except asyncio.TimeoutError:
            close = {"Connection": "close"}
            raise Problem(408, "the request was not sent in time", "Send it again.", headers=close) from None
        if message["type"] == "http.disconnect":
            raise ended_early()
        self._parts.append(message.get("body", b""))
        self._size += len(self._parts[-1])


def check_json(headers: Headers, body: bytes) -> None:
    """Refuse a body that is not JSON or too complex. An empty body is fine."""
    if not body:
        return
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, f"what was sent is {media_type[:100]!r}", "Send it with Content-Type: application/json.")
    parsed_json(body)


def parsed_json(body: bytes) -> Any:
    """What a body says. Problem 400 if it is not JSON, 413 if it is too complex."""
    try:
        text = body.decode("utf-8")
        _check_count(text)
        value = json.loads(text, parse_constant=reject_constant)
        _check_shape(value)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)  # fails for numbers beyond a float
        if "\\u" in text and not is_whole(written):
            raise ValueError("it has half characters (lone surrogates)")
        return value
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, f"what was sent is no JSON: {reason[:300]}", "Send it again as JSON.") from None


def _check_count(text: str) -> None:
    """Count values before parsing, because parsing very many blocks the event loop."""
    if text.count(",") + text.count("[") + text.count("{") <= MOST_CONTAINERS:
        return
    outside_strings = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    containers = outside_strings.count("[") + outside_strings.count("{")
    if containers > MOST_CONTAINERS:
        raise _too_many(containers, "lists and objects", MOST_CONTAINERS)
    values = outside_strings.count(",") + containers
    if values > MOST_VALUES:
        raise _too_many(values, "values", MOST_VALUES)


def _check_shape(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        keys = max((len(each) for each in level if isinstance(each, dict)), default=0)
        if keys > MOST_KEYS:
            raise _too_many(keys, "keys in one object", MOST_KEYS)
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise ValueError(f"it is nested more than {MOST_DEPTH} deep")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_many(count: int, what: str, most: int) -> Problem:
    return Problem(413, f"the request has {count:,} {what}, and {most:,} is the most", "Send less at once.")
