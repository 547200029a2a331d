"""Becomes one ComfyUI, unless its slot has one already. Run by path in a process of its own; needs nothing of E3.

`launcher.py FOLDER URL DIGEST COMMAND…`: takes `running.lock` and hands it down to ComfyUI, so that the lock is held
for exactly as long as that runs. What went wrong is written to stdout; its end without a word is success.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

STARTED = "--- started by E3 at"
LOCK_SECONDS = 1.0


def main() -> int:
    folder, url, digest, *command = sys.argv[1:]
    home, pipe = Path(folder), os.dup(1)  # the copy is closed when ComfyUI begins
    lock = os.open(home / "running.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not _take(lock):
        os.write(pipe, b"it runs already")
        return 1
    os.set_inheritable(lock, True)
    note = {"pid": os.getpid(), "started": start_of("self"), "url": url, "digest": digest}
    unnamed = home / "process.json.new"
    unnamed.write_text(json.dumps(note))
    unnamed.replace(home / "process.json")
    log = os.open(home / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, f"{STARTED} {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n".encode())
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(pipe, f"{command[0]} cannot be run: {error.strerror}".encode())
        return 1


def _take(lock: int) -> bool:
    """Whoever only looks whether the lock is held has it for a moment."""
    import fcntl  # where there is none, nothing is launched, and this module can still be imported

    until = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.01)
    return False


def start_of(pid: int | str) -> int:
    """When a process began, in ticks since the machine did; 0 if it is gone, or where the system does not tell."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state == "Z" else int(fields[18])


if __name__ == "__main__":
    sys.exit(main())
