"""The editor: one ComfyUI that gets what is no prompt, result or fact of the fleet.

That is ComfyUI's page, settings, workflows that people save, routes of custom nodes. Paths, bodies and answers are
passed on as they come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from urllib.parse import unquote, urlencode

from aiohttp import ClientError, ClientResponse, ClientTimeout, hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from comfyui_agent.comfy.address import NoServer, ServerAddress, find_server
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.wire.application import MAX_UPLOAD_BYTES

log = logging.getLogger(__name__)

LIMITS = Limits(connections=64)
TIMEOUT = ClientTimeout(total=None, sock_connect=5.0, sock_read=300.0)
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection"),
    }
)
NOT_FOR_THE_EDITOR = frozenset({"host", "origin", "referer", "authorization", "cookie", "expect"})
"""A ComfyUI refuses an Origin that is not its Host. A Referer may have a token in its path."""
OWN_COOKIES = ("e3_session_", "__Host-e3_session_")
ADDED_BY_THE_CLIENT = ("Accept", "Content-Type", "User-Agent")
TOO_LARGE = f"E3: this is more than {MAX_UPLOAD_BYTES // 1024**2} MB, the most that ComfyUI takes."
LOST = (ClientError, asyncio.TimeoutError, OSError)


def find_editor(named: str | None, urls: Iterable[str]) -> ServerAddress:
    """The server of this name, an address outside of the fleet, or else the first server. NoServer if there is none."""
    known = {str(address): address for address in map(ServerAddress.parse, urls)}
    if named is None:
        if not known:
            raise NoServer("there is no ComfyUI server yet")
        return next(iter(known.values()))
    if "://" in named:
        address = ServerAddress.parse(named)
        return known.get(str(address), address)
    return known[find_server(named, known)]


class Editor:
    """Passes requests on to the editor, which `find` names at each request: it may be one that E3 launches."""

    def __init__(self, find: Callable[[], ServerAddress]) -> None:
        self._find = find
        self._transports: dict[ServerAddress, Transport] = {}

    @property
    def routes(self) -> list[web.RouteDef]:
        """Everything that no other route has taken."""
        return [web.route("*", "/{path:.*}", self.pass_on)]

    def transport(self) -> Transport:
        """The way to the editor. NoServer if there is none."""
        address = self._find()
        if address not in self._transports:
            self._transports[address] = Transport(address, LIMITS)
        return self._transports[address]

    async def close(self) -> None:
        await asyncio.gather(*(transport.close() for transport in self._transports.values()))

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Ask the editor the same, and answer as it does."""
        prefix, path = _split(request)
        if any(part in (".", "..") for part in unquote(path.partition("?")[0]).split("/")):
            return web.Response(status=403)  # as ComfyUI says it
        if (request.content_length or 0) > MAX_UPLOAD_BYTES:
            return web.Response(status=413, text=TOO_LARGE)
        body = _Body(request)
        try:
            transport = self.transport()
            response = await transport.session.request(
                request.method,
                _target(transport.address, path),
                headers=_sent_headers(request),
                data=body.parts() if request.can_read_body else None,
                allow_redirects=False,
                skip_auto_headers=ADDED_BY_THE_CLIENT,
                timeout=TIMEOUT,
            )
        except NoServer as error:
            return web.Response(status=502, text=f"E3: {error}, so there is no editor. See gateway.editor.")
        except LOST as error:
            if body.is_too_large:
                return web.Response(status=413, text=TOO_LARGE)
            log.info("the editor does not answer %s: %s", request.method, type(error).__name__)
            words = (
                f"E3: the editor at {transport.address} does not answer: is ComfyUI running there? See gateway.editor."
            )
            return web.Response(status=502, text=words)
        async with response:
            return await _answer(request, response, str(transport.address), prefix)


class _Body:
    """The body of a request, passed on in parts and not beyond what ComfyUI takes."""

    def __init__(self, request: web.Request) -> None:
        self._content = request.content
        self.is_too_large = False

    async def parts(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._content.iter_any():
            size += len(part)
            if size > MAX_UPLOAD_BYTES:
                self.is_too_large = True
                raise ValueError(TOO_LARGE)
            yield part


def _split(request: web.Request) -> tuple[str, str]:
    """What the gateway has put in front of a path, and the path with its query, both as they came."""
    path = request.rel_url.raw_path_qs
    if "token" not in request.match_info:
        return "", path
    _, first, token, rest = path.split("/", 3)
    return f"/{first}/{token}", f"/{rest}"


def _target(address: ServerAddress, path: str) -> URL:
    """The same path at the editor, byte for byte."""
    query = f"{'&' if '?' in path else '?'}{urlencode(address.query)}" if address.query else ""
    return URL(f"{address}{path}{query}", encoded=True)


def _sent_headers(request: web.Request) -> CIMultiDict[str]:
    """The headers for the editor: without ours, and without what would tell it where the request came from."""
    headers = _end_to_end(request.headers, NOT_FOR_THE_EDITOR)
    cookies = [each.strip() for line in request.headers.getall(hdrs.COOKIE, ()) for each in line.split(";")]
    foreign = "; ".join(each for each in cookies if each and not each.startswith(OWN_COOKIES))
    if foreign:
        headers[hdrs.COOKIE] = foreign
    return headers


def _end_to_end(headers: CIMultiDictProxy[str], besides: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """The headers that are not about one connection alone."""
    named = {name.strip().lower() for line in headers.getall(hdrs.CONNECTION, ()) for name in line.split(",")}
    dropped = HOP_BY_HOP | besides | named
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


async def _answer(request: web.Request, response: ClientResponse, base: str, prefix: str) -> web.StreamResponse:
    """Pass an answer on as it comes. If it breaks off, so does ours."""
    headers = _end_to_end(response.headers)
    place = headers.get(hdrs.LOCATION, "").removeprefix(base)
    if place.startswith("/") and not place.startswith("//"):
        headers[hdrs.LOCATION] = f"{prefix}{place}"
    answer = web.StreamResponse(status=response.status, reason=response.reason, headers=headers)
    try:
        await answer.prepare(request)
        async for part in response.content.iter_any():
            await answer.write(part)
        await answer.write_eof()
    except LOST:
        if request.transport is not None:
            request.transport.abort()
    return answer
