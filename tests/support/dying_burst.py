"""A burst that is killed at one exact moment: `dying_burst.py MOMENT burst …`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from changed_agent import meet

from comfyui_agent.batches import state_file
from comfyui_agent.cli.app import main
from comfyui_agent.engine import state_mirror
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _tells_of_a_result(data: bytes) -> bool:
    return b'"completed"' in data


def in_the_middle_of_writing() -> None:
    """Half of the next file that tells of a result is on disk, under its temporary name."""
    original: Callable[..., Any] = os.fsync

    def half(handle: int) -> Any:
        with contextlib.suppress(OSError):  # folders, and files that can only be written
            if not _tells_of_a_result(os.pread(handle, 1 << 24, 0)):
                return original(handle)
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
            original(handle)
            _die()
        return original(handle)

    state_file.os.fsync = half  # type: ignore[attr-defined]


def before_writing() -> None:
    """The database knows what is about to be written about a result, and the file does not have it yet."""
    original: Callable[[Path, bytes], None] = state_mirror.write_state

    def write(path: Path, data: bytes) -> None:
        if _tells_of_a_result(data):
            _die()
        original(path, data)

    state_mirror.write_state = write


def after_writing() -> None:
    original: Callable[[Path, bytes], None] = state_mirror.write_state

    def write(path: Path, data: bytes) -> None:
        original(path, data)
        if _tells_of_a_result(data):
            _die()

    state_mirror.write_state = write


MOMENTS: dict[str, Callable[[], None]] = {
    "began": lambda: meet(signal.SIGKILL, Store, ops.begin_burst, "after"),
    "picked": lambda: meet(signal.SIGKILL, Store, ops.pick_items, "after"),
    "claimed": lambda: meet(signal.SIGKILL, Store, ops.claim_files, "after"),
    "named": lambda: meet(signal.SIGKILL, Store, ops.complete_job, "before"),
    "done": lambda: meet(signal.SIGKILL, Store, ops.complete_job, "after"),
    "noted": before_writing,
    "writing": in_the_middle_of_writing,
    "written": after_writing,
    "ending": lambda: meet(signal.SIGKILL, Store, ops.end_burst, "before"),
}

if __name__ == "__main__":
    MOMENTS[sys.argv.pop(1)]()
    main()
