"""Finding a server by its address, its name, or a part of its name."""

from __future__ import annotations

from collections.abc import Collection

from comfyui_agent.comfy.address import ServerAddress


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
