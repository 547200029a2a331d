"""Two machines on one network, made of namespaces of the kernel: their links are cut and mended. Linux and root only.

A namespace lives as long as a process in it or a handle to it: nothing is left when a run is killed. All addresses are
those of a network of its own, which nothing outside can reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KINDS = ("net", "uts")
NEW_NETWORK, NEW_NAME = 0x40000000, 0x04000000
ADDRESS = "198.18.77.{}"
DATABASE, OBJECTS = ADDRESS.format(1), ADDRESS.format(2)
NOBODY = "02:00:00:00:00:01"
"""A hardware address that nobody has: what is sent there is lost, and nobody says so."""


class Namespace:
    """A network and a host name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        before = own_namespaces()
        try:
            _call("unshare", NEW_NETWORK | NEW_NAME)
            socket.sethostname(name)
            self._handles = own_namespaces()
        finally:
            enter(before)
            _close(before)
        self.ip("link set lo up")

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._handles[0]}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread starts meanwhile, threads, processes and connections, is in here."""
        before = own_namespaces()
        enter(self._handles)
        try:
            yield
        finally:
            enter(before)
            _close(before)

    def ip(self, words: str) -> None:
        with self.entered():
            subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True, timeout=20)

    def close(self) -> None:
        _close(self._handles)


class Host(Namespace):
    """A machine with one link."""

    def __init__(self, name: str, number: int, switch: Namespace) -> None:
        super().__init__(name)
        self.address = ADDRESS.format(number)
        self._switch, self._port = switch, f"port-{name}"[:15]
        switch.ip(f"link add {self._port} type veth peer name eth0 netns {self.path}")
        switch.ip(f"link set {self._port} master bridge up")
        self.ip(f"address add {self.address}/24 dev eth0")
        self.ip("link set eth0 up")

    def cut(self, address: str = "") -> None:
        """Cut the link, or only what this host sends to an address. Connections notice nothing but silence."""
        if address:
            self.ip(f"neighbour replace {address} lladdr {NOBODY} dev eth0 nud permanent")
        else:
            self._switch.ip(f"link set {self._port} down")

    def mend(self, address: str = "") -> None:
        if address:
            self.ip(f"neighbour delete {address} dev eth0")
        else:
            self._switch.ip(f"link set {self._port} up")


class Network(Namespace):
    """A switch with hosts. The database and the object store have addresses of their own at the switch itself."""

    def __init__(self, *names: str) -> None:
        super().__init__("switch")
        self.ip("link add bridge type bridge")
        self.ip("link set bridge up")
        for address in (DATABASE, OBJECTS):
            self.ip(f"address add {address}/24 dev bridge")
        self.hosts = [Host(name, 11 + number, self) for number, name in enumerate(names)]

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        super().close()


def own_namespaces() -> list[int]:
    """Handles to those of this thread."""
    return [os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY) for kind in KINDS]


def enter(handles: list[int]) -> None:
    """Put this thread into namespaces, if it is not in them already."""
    for kind, handle in zip(KINDS, handles, strict=True):
        if os.fstat(handle).st_ino != Path(f"/proc/thread-self/ns/{kind}").stat().st_ino:
            _call("setns", handle, 0)


def _call(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _close(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


def _obstacle() -> str:
    """Why there can be no hosts here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts are namespaces, which take Linux and root"
    if shutil.which("ip") is None:
        return "hosts are namespaces, which take iproute2"
    try:
        Namespace("trial").close()
    except OSError as error:
        return f"namespaces cannot be made here: {error}"
    return ""


@pytest.fixture
def network() -> Iterator[Network]:
    """Two hosts. The test itself is at the switch: it reaches everything that is not cut."""
    if obstacle := _obstacle():
        assert not os.environ.get("CI"), obstacle
        pytest.skip(obstacle)
    made = Network("one", "two")
    try:
        with made.entered():
            yield made
    finally:
        made.close()
