"""Proxies in front of the page: what is believed of what they say, and from whom."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from comfyui_agent.config.settings import Ui
from comfyui_agent.web.listen_address import is_loopback
from comfyui_agent.web.problems import Problem

FORWARDING = frozenset({"forwarded", "via", "x-real-ip"})
FORWARDING_PREFIX = "x-forwarded-"
LONGEST_USER = 100
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies that are trusted. With none, only what the connection itself shows is believed."""

    def __init__(self, ui: Ui) -> None:
        self._networks = [ipaddress.ip_network(each, strict=False) for each in ui.trusted_proxies]
        self._user_header = ui.proxy_user_header
        self._hosts = {name.lower() for name in ui.proxy_hosts}

    @property
    def are_set(self) -> bool:
        return bool(self._networks)

    def client_of(self, request: HTTPConnection) -> str:
        """The address that asks: the last one on the way that is no trusted proxy."""
        at = _peer(request)
        for hop in reversed(_hops(request.headers)):
            if not self.trusts(at):
                break
            if _address(hop) is None:
                break
            at = hop
        return at

    def user_of(self, request: HTTPConnection) -> str | None:
        """Who has logged in at a trusted proxy. A header that comes from elsewhere is not looked at."""
        if not self._user_header or not self.trusts(_peer(request)):
            return None
        said = request.headers.getlist(self._user_header)
        if not said:
            return None
        self._check_name(request)
        name = _decoded(said[0]).strip()
        if len(said) > 1 or not 0 < len(name) <= LONGEST_USER or not name.isprintable():
            raise Problem(
                403,
                f"the proxy did not send one name of 1 to {LONGEST_USER} letters in {self._user_header}",
                "Let it put its own header in the place of what the browser sent.",
            )
        return name

    def is_https(self, request: HTTPConnection) -> bool:
        """Whether the browser speaks TLS, to this page itself or to a trusted proxy."""
        if request.scope.get("scheme") == "https":
            return True
        return self.trusts(_peer(request)) and request.headers.get("x-forwarded-proto", "").lower() == "https"

    def _check_name(self, request: HTTPConnection) -> None:
        """A foreign name that leads to this machine would make any page in a browser here look like the proxy."""
        name = host_of(request.headers.get("host", ""))
        if is_loopback(_peer(request)) and not is_loopback(name) and name.lower() not in self._hosts:
            raise Problem(
                403,
                f"{name[:100]!r} is no name under which the page is reached by a proxy on this machine",
                "Add it to ui.proxy_hosts if it is.",
            )

    def trusts(self, text: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def check_direct(headers: Headers) -> None:
    """While no token is needed, whoever reaches the page is an admin: refuse names and requests from elsewhere."""
    name = host_of(headers.get("host", ""))
    if not is_loopback(name):
        raise Problem(
            403,
            f"this page answers at its own address only, not at {name[:100]!r}",
            "Open it at http://127.0.0.1 and its port, or make a token with e3 token create.",
        )
    found = next((key for key in headers if key in FORWARDING or key.startswith(FORWARDING_PREFIX)), "")
    if found:
        raise Problem(
            403,
            f"this request came by a proxy (it has the header {found[:60]}), and without tokens everybody behind it "
            "would be an admin",
            "Make a token with e3 token create; or, where the proxy asks people for a login, set ui.trusted_proxies "
            "and ui.proxy_user_header.",
        )


def host_of(authority: str) -> str:
    """The name in `name:port`."""
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


def _peer(request: HTTPConnection) -> str:
    return request.client.host if request.client else ""


def _hops(headers: Headers) -> list[str]:
    said: Iterable[str] = headers.getlist("x-forwarded-for")
    return [hop.strip() for each in said for hop in each.split(",")]


def _decoded(value: str) -> str:
    """A header as its sender meant it: headers are read as Latin-1, and proxies send UTF-8."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
