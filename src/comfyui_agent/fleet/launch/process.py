"""The process of a slot: started, seen, signalled; its log kept within bounds. Call it from a thread."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from comfyui_agent.domain.texts import printable, whole
from comfyui_agent.fleet.launch import launcher
from comfyui_agent.fleet.launch.plan import HOST, Slot
from comfyui_agent.fleet.launch.state import SlotFolder
from comfyui_agent.store.agent_lock import is_free

MARK = "COMFYUI_SLOT_OF_E3"
"""Inherited by whatever a process starts, so that nothing of it is left behind."""
OURS_ALONE = ("E3_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables that are not handed down: settings may hold secrets, and ComfyUI has a Python of its own."""
PYTHONS = ("venv/bin/python", ".venv/bin/python")
TAIL_BYTES = 64 * 1024
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONGEST_WORDS = 300

_children: dict[int, subprocess.Popen[bytes]] = {}
"""What this program started, by process number: it has to collect their exit codes."""


class CannotStart(Exception):
    """Says what is wrong, and with which setting."""


def start(slot: Slot, folder: SlotFolder, root: Path) -> None:
    """Start the process of a slot, unless one runs there. CannotStart if there is nothing to start, or no room."""
    if sys.platform == "win32":
        raise CannotStart("comfyui.launch needs Linux or macOS: start ComfyUI yourself, and name it in comfyui.servers")
    directory, command, added, digest = _command(slot, folder, root)
    folder.prepare()
    kill(folder)
    _check_port(slot)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS_ALONE)}
    # Cards are numbered as the driver numbers them, not by their speed.
    environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **added, MARK: str(folder.path)}
    try:
        child = subprocess.Popen(  # noqa: S603 - what the settings name
            [sys.executable, "-I", launcher.__file__, str(folder.path), slot.url, digest, *command],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotStart(f"no process can be started: {error.strerror}") from None
    _children[child.pid] = child
    assert child.stdout is not None
    with child.stdout as pipe:
        problem = pipe.read(LONGEST_WORDS).decode("utf-8", "replace")
    if problem:
        raise CannotStart(problem)


def _command(slot: Slot, folder: SlotFolder, root: Path) -> tuple[Path, list[str], dict[str, str], str]:
    """The folder of a slot's ComfyUI, its command line, its variables, and a digest of these."""
    if slot.launch is None:
        raise CannotStart("comfyui.launch does not name it any more")
    directory = (root / Path(slot.launch.directory).expanduser()).absolute()
    if not (directory / "main.py").is_file():
        raise CannotStart(f"there is no main.py in {directory}: write ComfyUI's folder as {slot.key}.directory")
    named = slot.launch.python
    pythons = [root / Path(named).expanduser()] if named else [directory / each for each in PYTHONS]
    python = next((each for each in pythons if os.access(each, os.X_OK) and each.is_file()), None)
    if python is None:
        missing = f"there is no Python at {pythons[0]}" if named else f"{directory} has no Python of its own in venv"
        raise CannotStart(f"{missing}: write the one that runs ComfyUI as {slot.key}.python")
    # A link of a venv must not be followed.
    command, environment = slot.command(str(python.absolute()), directory, folder.path), slot.launch.environment
    digest = hashlib.sha256(repr((command, sorted(environment.items()))).encode()).hexdigest()[:16]
    return directory, command, environment, digest


def _check_port(slot: Slot) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, slot.port))
        except OSError:
            message = f"port {slot.port} is taken by another program: end that, or write another {slot.key}.port_from"
            raise CannotStart(message) from None


def is_running(folder: SlotFolder) -> bool:
    """Whether the process of a slot lives: it holds its lock, and its number is not somebody else's."""
    for child in list(_children.values()):
        child.poll()
    return not is_free(folder.path / "running.lock") and _leader(folder) > 0


def is_outdated(slot: Slot, folder: SlotFolder, root: Path) -> bool:
    """Whether the process of a slot runs with other settings than it would be started with now."""
    try:
        *_, digest = _command(slot, folder, root)
    except CannotStart:
        return False
    return is_running(folder) and folder.note().get("digest") != digest


def _leader(folder: SlotFolder) -> int:
    """The number of the process, if it is still that process; else 0. Without /proc, its lock alone says so."""
    pid = folder.pid
    return pid if launcher.start_of(pid) == folder.note().get("started") else 0


def terminate(folder: SlotFolder, how: signal.Signals = signal.SIGTERM) -> None:
    """Ask the process and its children to end."""
    if pid := _leader(folder):
        with contextlib.suppress(OSError):
            os.killpg(pid, how)


def kill(folder: SlotFolder) -> None:
    """End the process and all that it started, at once."""
    terminate(folder, signal.SIGKILL)
    for each in relatives(folder):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)


def relatives(folder: SlotFolder) -> Iterator[int]:
    """Processes that carry the mark of a slot, in whatever group they are."""
    mark = f"{MARK}={folder.path}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                yield int(entry.name)


def plain(data: bytes) -> str:
    """What a process wrote, without its colours."""
    return COLOUR.sub("", data.decode("utf-8", "replace"))


def log_tail(folder: SlotFolder, most: int = TAIL_BYTES) -> str:
    """The end of the log, of the last start alone."""
    try:
        with (folder.path / "log.txt").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            text = plain(file.read(most))
    except OSError:
        return ""
    return text.rpartition(launcher.STARTED)[2]


def last_words(folder: SlotFolder) -> str:
    """The signal that ended a process of ours, else the last line that it wrote."""
    child = _children.get(folder.pid)
    if child and (child.returncode or 0) < 0:
        return f"signal {-child.returncode}"
    lines = [line.strip() for line in log_tail(folder, 4096).splitlines()[1:]]
    return whole(printable(next(filter(None, reversed(lines)), "")), LONGEST_WORDS)


def rotate_log(folder: SlotFolder, most: int) -> None:
    """Put a log that is too long away, the end of it at least. The process goes on writing to the same file."""
    path = folder.path / "log.txt"
    with contextlib.suppress(OSError), path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= most:
            return
        older = path.with_name("log.1.txt")
        with contextlib.suppress(FileNotFoundError):
            older.replace(path.with_name("log.2.txt"))
        file.seek(size - most)
        older.write_bytes(file.read(most))
        file.truncate(0)
