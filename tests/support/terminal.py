"""A terminal for a command to run in: what was written to it, and what a person sees on it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
DROP_FROM_BOUNDING_SET, OVERRIDES = 24, (1, 2)


class Screen:
    """What a person sees: the few sequences that live boards use are obeyed, all others are kept as `strange`."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self.row, self.column = 0, 0
        self.has_cursor = True
        self.strange: list[str] = []

    def write(self, text: str) -> None:
        place = 0
        while place < len(text):
            if found := ESCAPE.match(text, place):
                self._obey(*found.groups())
                place = found.end()
                continue
            self._put(text[place])
            place += 1

    def _obey(self, numbers: str, letter: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        match letter:
            case "A":
                self.row = max(0, self.row - count)
            case "K":
                self.lines[self.row] = ""
            case "m":
                pass
            case "h" | "l" if numbers == "?25":
                self.has_cursor = letter == "h"
            case _:
                self.strange.append(f"ESC[{numbers}{letter}")

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self._next_row()
        elif letter < " " or letter == "\x7f" or "\x80" <= letter < "\xa0":
            self.strange.append(letter)
        else:
            if self.column >= self.columns:
                self._next_row()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1

    def _next_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append("")

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")


class Terminal:
    """A command that believes a person is watching. Use it as `with in_terminal(…) as terminal`."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int, columns: int) -> None:
        self.process = process
        self.columns = columns
        self._handle = handle
        self._written = bytearray()

    @property
    def raw(self) -> str:
        """All that was written, every sequence as it is."""
        return self._written.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """All that was ever shown, one after another, without colours and movements."""
        return ESCAPE.sub("", self.raw)

    @property
    def screen(self) -> Screen:
        """What is to be seen now."""
        screen = Screen(self.columns)
        screen.write(self.raw)
        return screen

    def wait_for(self, condition: str | Callable[[], bool], timeout: float = 60) -> None:
        """Read until a text was shown, or something is true."""
        deadline = time.monotonic() + timeout
        while not (condition in self.text if isinstance(condition, str) else condition()):
            assert time.monotonic() < deadline, f"waited {timeout} s for {condition}:\n{self.text[-3000:]}"
            assert self._read(0.05) or self.process.poll() is None, f"it ended first:\n{self.text[-3000:]}"

    def finish(self, timeout: float = 60) -> int:
        """Read until the command ends; its exit status."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"not ended after {timeout} s:\n{self.text[-3000:]}"
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def press_ctrl_c(self) -> None:
        os.write(self._handle, b"\x03")

    def _read(self, patience: float) -> bool:
        if not select.select([self._handle], [], [], patience)[0]:
            return False
        try:
            piece = os.read(self._handle, 65536)
        except OSError:  # nobody has it open any more
            return False
        self._written += piece
        return bool(piece)


@contextmanager
def in_terminal(
    *arguments: str,
    cwd: Path | None = None,
    columns: int = 100,
    rows: int = 40,
    environment: dict[str, str] | None = None,
) -> Iterator[Terminal]:
    """`e3` in a terminal of this size; it is ended with the test."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "comfyui_agent", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**known, "TERM": "xterm-256color", **(environment or {})},
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours, columns)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(60)
        os.close(ours)


def take_terminal() -> None:
    """For `preexec_fn`: make the standard input the controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def like_anyone() -> None:
    """For `preexec_fn`: let the rights of files count for root, too. Does nothing for others."""
    if os.geteuid() == 0:
        for number in OVERRIDES:
            ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, number, 0, 0, 0)
