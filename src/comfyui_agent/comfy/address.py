"""Addresses and names of servers. The secrets in an address are used and never shown."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
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
        url = self.url.joinpath(path.lstrip("/"), encoded=True)
        return url.with_query([*self.query, *(params or {}).items()]) if self.query or params else url

    def socket(self, client_id: str) -> URL:
        url = self.at("ws", {"clientId": client_id})
        return url.with_scheme("wss" if url.scheme == "https" else "ws")


class NoServer(Exception):
    """No server has the name, or several have it. The message lists them."""


class Unnamed(NoServer):
    """The name is empty."""


def address_of(url: str) -> str:
    """A server's address without secrets, as it is shown and recorded. ValueError if it is none."""
    return str(ServerAddress.parse(url))


def name_of(address: str) -> str:
    """An address without its scheme."""
    return address.partition("://")[2]


def find_server(name: str, known: Collection[str]) -> str:
    """The address of the one known server with this name. NoServer if there is none or several."""
    scheme, separator, rest = name.strip().lower().rpartition("://")
    bare = rest.partition("?")[0].rpartition("@")[2].rstrip("/")  # without login, token and trailing slash
    if not bare:
        raise Unnamed("give the name of a server, as e3 servers shows it")
    wanted = scheme + separator + bare
    exact = [address for address in known if wanted in (address.lower(), name_of(address).lower())]
    found = exact or [address for address in known if wanted in (address if separator else name_of(address)).lower()]
    if not found:
        raise NoServer(f"there is no server {wanted!r}: known are {', '.join(name_of(address) for address in known)}")
    if len(found) > 1:
        raise NoServer(f"{wanted!r} may be {' or '.join(found)}: give more of its name")
    return found[0]
