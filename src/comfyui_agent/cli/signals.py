"""Running something until it ends or a signal asks it to: 130 after Ctrl-C, 143 after SIGTERM, as shells expect."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import typer

INTERRUPTED = 130
TERMINATED = 143
SHOW_CURSOR = b"\x1b[?25h"
THREADS_SECONDS = 0.2
"""How long threads may go on once everything else has ended: one may hang in a disk, or look up a name."""


def run_until_signal(work: Coroutine[Any, Any, int | None]) -> None:
    """Run a coroutine; on a signal cancel it, let it clean up, and leave with the signal's exit code.

    A second Ctrl-C does not wait for the cleaning up. When that is done, no thread keeps the process alive.
    """
    raise typer.Exit(asyncio.run(_run(work)))


async def _run(work: Coroutine[Any, Any, int | None]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    received: list[int] = []

    def stop(code: int) -> None:
        if received and code == INTERRUPTED:
            if sys.stdout.isatty():
                os.write(1, SHOW_CURSOR)  # a live board may have hidden it
            os._exit(INTERRUPTED)
        received.append(code)
        task.cancel()

    for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        try:
            loop.add_signal_handler(number, stop, code)
        except NotImplementedError:  # Windows: Ctrl-C arrives as KeyboardInterrupt instead
            signal.signal(number, signal.default_int_handler)
    try:
        code = await task or 0
    except asyncio.CancelledError:
        if not received:
            raise
        code = received[0]
    if received:
        leaving = threading.Timer(THREADS_SECONDS, _leave, [code])
        leaving.daemon = True
        leaving.start()
    return code


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
