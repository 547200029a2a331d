"""Reverse proxies in front of the page, and which of their headers are trusted."""

from __future__ import annotations

import ipaddress

from starlette.requests import HTTPConnection

from comfyui_agent.access.listen_address import is_loopback
from comfyui_agent.access.origins import host_of
from comfyui_agent.access.problem import Problem
from comfyui_agent.config.settings import Ui

LONGEST_USER = 100
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """Reads forwarding headers from trusted proxies only. Without any, only the connection itself counts."""

    def __init__(self, ui: Ui) -> None:
        self.are_set = bool(ui.trusted_proxies)
        self._networks = [ipaddress.ip_network(each, strict=False) for each in ui.trusted_proxies]
        self._user_header = ui.proxy_user_header
        self._hosts = {name.lower() for name in ui.proxy_hosts}

    def client_of(self, request: HTTPConnection) -> str:
        """The client's address: the last hop that is no trusted proxy."""
        address = _peer(request)
        hops = [hop.strip() for value in request.headers.getlist("x-forwarded-for") for hop in value.split(",")]
        for hop in reversed(hops):
            if not self.trusts(address) or _address(hop) is None:
                break
            address = hop
        return address

    def user_of(self, request: HTTPConnection) -> str | None:
        """The user whom a trusted proxy has logged in. The header is ignored if it comes from elsewhere."""
        if not self._user_header or not self.trusts(_peer(request)):
            return None
        values = request.headers.getlist(self._user_header)
        if not values:
            return None
        self._check_host(request)
        name = _decoded(values[0]).strip()
        if len(values) > 1 or not 0 < len(name) <= LONGEST_USER or not name.isprintable():
            raise Problem(
                403,
                f"the proxy did not send one name of 1 to {LONGEST_USER} letters in {self._user_header}",
                "Let it put its own header in the place of what the browser sent.",
            )
        return name

    def is_https(self, request: HTTPConnection) -> bool:
        """Whether the browser uses TLS, with this page or with a trusted proxy."""
        if request.scope.get("scheme") == "https":
            return True
        return self.trusts(_peer(request)) and request.headers.get("x-forwarded-proto", "").lower() == "https"

    def _check_host(self, request: HTTPConnection) -> None:
        """403 for DNS rebinding: a foreign name that leads to 127.0.0.1 lets any web page pass for a local proxy."""
        name = host_of(request.headers.get("host", ""))
        if is_loopback(_peer(request)) and not is_loopback(name) and name.lower() not in self._hosts:
            raise Problem(
                403,
                f"{name[:100]!r} is no name under which the page is reached by a proxy on this machine",
                "Add it to ui.proxy_hosts if it is.",
            )

    def trusts(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def _peer(request: HTTPConnection) -> str:
    return request.client.host if request.client else ""


def _decoded(value: str) -> str:
    """Headers are read as Latin-1, but proxies send UTF-8."""
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
