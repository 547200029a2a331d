"""Sending signed messages to one address, and nowhere else."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from socket import AddressFamily
from typing import Any

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from standardwebhooks import Webhook as Signer
from yarl import URL

from comfyui_agent import __version__
from comfyui_agent.domain.webhooks import Answer, is_public, refusal_of

ANSWER_SECONDS = 15.0
AT_ONCE = 16


class Receiver:
    """Who a webhook tells. Connections go to public addresses, unless the host was allowed by its name.

    The name is looked up and judged for each connection, and the address that was judged is the one connected to.
    Redirects are not followed, proxies of the environment do not count, and of an answer only the status is read.
    """

    def __init__(self, url: str, opened: Mapping[str, Any]) -> None:
        """`opened`: what was sealed with it, its `secret` and the names that it may `allow`."""
        self._url = URL(url, encoded=True)
        self._signer = Signer(str(opened["secret"]))
        host = (self._url.host or "").lower()
        self._is_allowed = host in {str(each).lower() for each in opened.get("allow") or ()}
        self._refusal = "" if self._is_allowed else refusal_of(host)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, message_id: str, body: str) -> Answer:
        now = datetime.now(timezone.utc)
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(message_id, now, body),
        }
        return Answer(problem=self._refusal) if self._refusal else await self.post(body.encode(), headers)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            async with self._connections().post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return Answer(response.status)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
            return Answer(problem=_words(error))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = ThreadedResolver() if self._is_allowed else PublicResolver()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, limit=AT_ONCE),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
                headers={"Content-Type": "application/json", "User-Agent": f"E3/{__version__}"},
            )
        return self._session


class PublicResolver(ThreadedResolver):
    """Finds only public addresses."""

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        public = [each for each in found if is_public(each["host"])]
        if not public:
            raise OSError(errno.EACCES, "it has no public address: allow its host by name to send there")
        return public


def _words(error: Exception) -> str:
    """What went wrong, without the address: that may hold a password."""
    match error:
        case asyncio.TimeoutError():
            return f"no answer within {ANSWER_SECONDS:.0f} s"
        case aiohttp.ClientSSLError():
            return "its TLS certificate or protocol is not accepted"
        case aiohttp.ClientConnectorDNSError():
            return f"it cannot be reached: {error.os_error.strerror}"
        case aiohttp.ClientConnectorError():
            return f"it cannot be reached: {os.strerror(error.os_error.errno or 0)}"
        case _:
            return f"the connection failed: {type(error).__name__}"
