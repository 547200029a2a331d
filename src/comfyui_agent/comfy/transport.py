"""HTTP requests to one server, with limits, without redirects, and with our own errors."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp

from comfyui_agent.comfy import errors, shapes
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.pools import PARSING, Pool

PARSED_APART = 1024 * 1024
CHUNK = 256 * 1024
EXCERPTED = 8 * 1024
BROKEN = (errors.Unreachable, errors.ConnectionCut)
DISK_THREADS = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


class Transport:
    """A session with one server. `ask_again` repeats a request after a lost connection, `ask` never does."""

    def __init__(self, address: ServerAddress, limits: Limits) -> None:
        self.address = address
        self.limits = limits
        self._open: set[aiohttp.ClientResponse] = set()
        self._downloads = asyncio.Semaphore(max(1, min(limits.downloads_at_once, limits.connections // 2)))
        self._is_closed = False
        self.disk = Pool("e3-disk", DISK_THREADS)
        """For work on files that are downloaded."""

    @cached_property
    def session(self) -> aiohttp.ClientSession:
        return self._new_session(None)

    @cached_property
    def socket_session(self) -> aiohttp.ClientSession:
        """For the websocket, whose handshake must not follow redirects."""
        return self._new_session([_no_redirects()])

    def _new_session(self, traces: list[aiohttp.TraceConfig] | None) -> aiohttp.ClientSession:
        if self._is_closed:
            raise errors.ClientClosed(f"the client of {self.address} is closed")
        return aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=self.limits.connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"} | self.address.headers,
            timeout=aiohttp.ClientTimeout(total=self.limits.answer_seconds, sock_connect=self.limits.connect_seconds),
            trace_configs=traces,
        )

    async def close(self) -> None:
        """End all requests. Their callers get ClientClosed."""
        self._is_closed = True
        for response in list(self._open):
            response.close()
        for name in ("session", "socket_session"):
            if name in vars(self):
                await vars(self).pop(name).close()

    async def get_json(self, path: str, read: Callable[[Any], T], *, most: int) -> T:
        """GET a path and read its JSON with `read`. Raises if the answer is not 200 or not understood."""
        answer = await self.ask_again("GET", path, most=most)
        self._expect_ok(answer, path)
        return await self.parse(answer, path, read)

    async def change(self, path: str, body: Any) -> None:
        """POST an idempotent change."""
        answer = await self.ask_again("POST", path, most=self.limits.small_answer_bytes, body=body)
        self._expect_ok(answer, path)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        most: int,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        form: Callable[[], aiohttp.FormData] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """Send a request, once. After ConnectionCut or AnswerTimeout it may have arrived. `seconds`: for uploads."""
        data = form() if form is not None else (None if body is None else json.dumps(body).encode())
        headers = {"Content-Type": "application/json"} if body is not None else None
        options: dict[str, Any] = {"params": params, "data": data, "headers": headers}
        if seconds is not None:
            options["timeout"] = aiohttp.ClientTimeout(total=seconds, sock_connect=self.limits.connect_seconds)
        async with self._request(method, path, **options) as response:
            return Answer(response.status, await self._read(response, path, most))

    async def ask_again(self, method: str, path: str, **question: Any) -> Answer:
        """Send an idempotent request, again if the connection breaks."""
        return await self.again(lambda: self.ask(method, path, **question))

    async def again(self, call: Callable[[], Awaitable[T]], on: tuple[type[errors.ServerLost], ...] = BROKEN) -> T:
        """Retry a call within the limits while it raises one of these errors."""
        for attempt in range(self.limits.retries):
            try:
                return await call()
            except on:
                await asyncio.sleep(self.limits.retry_pause_seconds * 2**attempt)
        return await call()

    @asynccontextmanager
    async def download(self, path: str, params: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open an answer to be read in chunks, with a long limit in all and a short one for each pause."""
        timeout = aiohttp.ClientTimeout(
            total=self.limits.download_seconds,
            sock_connect=self.limits.connect_seconds,
            sock_read=self.limits.silent_download_seconds,
        )
        async with self._downloads, self._request("GET", path, params=params, timeout=timeout) as response:
            yield response

    async def parse(self, answer: Answer, path: str, read: Callable[[Any], T]) -> T:
        """Parse JSON as ComfyUI writes it, `NaN` included, and read it with `read`."""
        try:
            if len(answer.body) > PARSED_APART:
                return await PARSING.run(lambda: read(json.loads(answer.body)))
            return read(json.loads(answer.body))
        except (ValueError, RecursionError):
            raise errors.ProtocolError(
                f"{self.address} answered {path} with something that is not JSON: {self.excerpt(answer)!r}"
            ) from None
        except errors.ProtocolError as error:
            raise errors.ProtocolError(f"{self.address} answered {path} as no ComfyUI does: {error.message}") from None

    def excerpt(self, answer: Answer) -> str:
        """The start of a body for messages, without our secrets."""
        return shapes.shown(self.address.without_secrets(answer.body[:EXCERPTED].decode("utf-8", "replace")))

    @asynccontextmanager
    async def _request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            url = self.address.at(path, options.pop("params", None))
            async with self.session.request(method, url, allow_redirects=False, **options) as response:
                if 300 <= response.status < 400:
                    raise errors.RedirectRefused(
                        f"{self.address} redirected {path} elsewhere: give the address that it redirects to"
                    )
                encoding = response.headers.get("Content-Encoding", "identity").lower()
                if encoding != "identity":
                    raise errors.ProtocolError(f"{self.address} answered {path} compressed, though plain was asked for")
                self._open.add(response)
                try:
                    yield response
                finally:
                    self._open.discard(response)
        except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, ValueError, RuntimeError) as error:
            if self._is_closed:
                raise errors.ClientClosed(
                    f"the client of {self.address} was closed while it asked for {path}"
                ) from None
            if isinstance(error, RuntimeError):
                raise
            raise self._translated(error, path) from None

    def _translated(self, error: Exception, path: str) -> errors.ServerLost | errors.ProtocolError:
        """Our error for one of aiohttp, whose own text may hold secrets of the address."""
        if isinstance(error, aiohttp.ClientSSLError):
            return errors.Unreachable(
                f"{self.address} does not speak https, or not with a certificate that is trusted here"
            )
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            reason = "no answer" if isinstance(error, asyncio.TimeoutError) else _os_reason(error)
            return errors.Unreachable(f"{self.address} cannot be reached ({reason}): is ComfyUI running there?")
        if isinstance(error, asyncio.TimeoutError):
            return errors.AnswerTimeout(f"{self.address} did not answer {path} in time")
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientConnectionError | ConnectionError):
            return errors.ConnectionCut(f"{self.address} broke the connection at {path}")
        return errors.ProtocolError(
            f"{self.address} answered {path} in a way that is not HTTP ({type(error).__name__})"
        )

    async def _read(self, response: aiohttp.ClientResponse, path: str, most: int) -> bytes:
        if response.method == "HEAD":
            return b""  # it declares a size, and sends nothing
        declared = response.content_length or 0
        content = bytearray()
        if declared <= most:
            async for chunk in response.content.iter_chunked(CHUNK):
                content += chunk
                if len(content) > most:
                    break
        if max(declared, len(content)) > most:
            response.close()
            raise errors.AnswerTooLarge(f"{self.address} answered {path} with more than {most:,} bytes")
        return bytes(content)

    def _expect_ok(self, answer: Answer, path: str) -> None:
        if answer.status == 200:
            return
        if answer.status in (401, 403):
            raise errors.NotComfyUI(
                f"{self.address} refused {path} ({answer.status}): it wants a login, or another origin"
            )
        if answer.status == 404:
            raise errors.NoSuchRoute(f"{self.address} has no {path} (404): is that a ComfyUI, and is the path right?")
        if answer.status in (502, 503, 504):
            raise errors.ServerLost(f"{self.address} answered {path} with {answer.status}: ComfyUI behind it is not up")
        raise errors.ProtocolError(f"{self.address} answered {path} with {answer.status}: {self.excerpt(answer)!r}")


def _os_reason(error: Exception) -> str:
    number = getattr(getattr(error, "os_error", error), "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else "the name or the way is unknown"


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuses redirects of websocket handshakes."""

    async def refuse(_session: aiohttp.ClientSession, _context: SimpleNamespace, _params: Any) -> None:
        raise aiohttp.ClientPayloadError("redirect refused")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace
