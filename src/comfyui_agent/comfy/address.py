"""The address of a server. Its secrets are used and never shown."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from yarl import URL

SHORTEST_SECRET = 4


@dataclass(frozen=True)
class ServerAddress:
    """A base URL, split into a printable part and secrets."""

    url: URL
    authorization: str = field(default="", repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Read `http://host:8188`, with an optional path, `user:password@` or `?token=…` for a proxy."""
        try:
            url = URL(text.strip())
            is_usable = url.scheme in ("http", "https") and url.host and url.port is not None and not url.fragment
        except ValueError:
            is_usable = False
        if not is_usable:
            raise ValueError("a server's address must look like http://127.0.0.1:8188")
        login = f"{url.user or ''}:{url.password or ''}".encode()
        authorization = f"Basic {base64.b64encode(login).decode()}" if len(login) > 1 else ""
        query = tuple(url.query.items())
        bare = url.with_user(None).with_query(None)
        return cls(bare.with_path(bare.path.rstrip("/") + "/"), authorization, query)

    def __str__(self) -> str:
        return str(self.url).rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": self.authorization} if self.authorization else {}

    def without_secrets(self, text: str) -> str:
        """A text from outside, such as an error page, with our secrets replaced."""
        encoded = self.authorization.removeprefix("Basic ")
        login = base64.b64decode(encoded).decode().split(":", 1)
        secrets = {encoded, login[-1], *(value for _, value in self.query if len(value) >= SHORTEST_SECRET)} - {""}
        for secret in sorted(secrets | {quote(secret, safe="") for secret in secrets}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text

    def at(self, path: str, params: Mapping[str, str] | None = None) -> URL:
        """The URL of a percent-encoded route, below the base path and with the base query."""
        return self.url.joinpath(path.lstrip("/"), encoded=True).with_query([*self.query, *(params or {}).items()])

    def socket(self, client_id: str) -> URL:
        url = self.at("ws", {"clientId": client_id})
        return url.with_scheme("wss" if url.scheme == "https" else "ws")
