"""The address where page or gateway listen. This module is light, so that a taken port is reported at once."""

from __future__ import annotations

import errno
import ipaddress
import socket as sockets
import ssl
from dataclasses import dataclass

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

LOOPBACK_NAMES = frozenset({"localhost", "localhost.", "ip6-localhost"})
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names to be shown
BACKLOG = 512
MOST_UNSENT = 128 * 1024
"""The most bytes that the system buffers for a client that does not read."""


class NotServed(Exception):
    """Nothing can be served there. The message says why and what to do."""


class PortTaken(NotServed):
    """Something else listens there."""


class NotAllowed(NotServed):
    """It would not be safe: others could reach it without tokens, or its certificate cannot be used."""


@dataclass(frozen=True)
class Listening:
    """A listening socket. Clients that connect before the server runs wait."""

    host: str
    socket: sockets.socket
    tls: ssl.SSLContext | None = None

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    @property
    def url(self) -> str:
        host = ANY.get(self.host, self.host)
        scheme = "https" if self.tls else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def close(self) -> None:
        self.socket.close()


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be reached from this machine."""
    name = host.lower().strip("[]")
    if name in LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def tls_of(workspace: Workspace) -> ssl.SSLContext | None:
    """The TLS context of `ui.tls_cert` and `ui.tls_key`, if they are set. NotAllowed if they cannot be used."""
    ui = workspace.settings.ui
    if not ui.tls_cert and not ui.tls_key:
        return None
    for key, value in (("ui.tls_cert", ui.tls_cert), ("ui.tls_key", ui.tls_key)):
        if not value:
            raise NotAllowed(f"{key} is not set: a certificate needs its key, set both or neither")
        try:
            (workspace.root / value).read_bytes()
        except (OSError, ValueError) as error:
            raise NotAllowed(f"{key}: {value} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(workspace.root / ui.tls_cert, workspace.root / ui.tls_key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise NotAllowed(
            f"ui.tls_cert {ui.tls_cert} and ui.tls_key {ui.tls_key} do not work together ({why}): both are PEM files, "
            "the key is that of the certificate and has no password"
        ) from None
    return context


async def listen(
    store: Store, host: str, port: int, tls: ssl.SSLContext | None = None, *, section: str = "ui"
) -> Listening:
    """Listen at the address of a section of the settings; port 0 takes a free one. Raises NotServed."""
    if not is_loopback(host) and all(token.revoked_at for token in await store.run(ops.list_tokens)):
        raise NotAllowed(
            f"{section}.host {host} can be reached from other machines, and there are no tokens: make one with e3 "
            f"token create --role admin, or leave {section}.host at 127.0.0.1"
        )
    try:
        family, kind, protocol, _, address = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)[0]
        made = sockets.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise NotServed(f"{section}.host {host} is no address of this machine: {error}") from None
    try:
        made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        if hasattr(sockets, "TCP_NOTSENT_LOWAT"):
            made.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, MOST_UNSENT)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"port {port} of {host} is taken: set {section}.port to another") from None
        raise NotServed(f"nothing can be served at {host}:{port}: {error.strerror}") from None
    return Listening(host, made, tls)
