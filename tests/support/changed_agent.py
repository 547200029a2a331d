"""An agent that dies or stops at one exact moment, or whose database has a clock of its own.

Run as `changed_agent.py CHANGE execute …`. CHANGE is `die:MOMENT` or `stop:MOMENT`; `term:TURNS` for a SIGTERM so many
turns of the event loop before a job ends; or `clock:FILE`, where FILE holds the seconds by which the clock is wrong.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.cli.app import main
from comfyui_agent.comfy.downloads import StagedFile
from comfyui_agent.store import connect
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import Operation
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store

UNIX_EPOCH_MS = 210_866_760_000_000
"""The first of January 1970 in milliseconds of the Julian day."""

OPERATIONS = {
    "downloaded": (ops.claim_files, "before"),
    "claimed": (ops.claim_files, "after"),
    "named": (ops.complete_job, "before"),
    "done": (ops.complete_job, "after"),
}


def change(what: str) -> None:
    verb, _, argument = what.partition(":")
    if verb == "clock":
        own_clock(Path(argument))
        return
    if verb == "term":
        leave_as_a_job_ends(int(argument))
        return
    signal_number = signal.SIGKILL if verb == "die" else signal.SIGSTOP
    if argument == "one_named":
        meet_call(signal_number, StagedFile, "publish")
    else:
        meet_operation(signal_number, *OPERATIONS[argument])


def once(signal_number: int) -> Callable[[], None]:
    """Sends this process the signal when it is called first, and never again."""
    sent: list[int] = []

    def strike() -> None:
        if not sent:
            sent.append(signal_number)
            os.kill(os.getpid(), signal_number)

    return strike


def meet_operation(signal_number: int, operation: Operation[..., Any], when: str) -> None:
    """The signal arrives before or after the store runs this operation for the first time."""
    strike = once(signal_number)

    async def struck(really: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if when == "before":
            strike()
        result = await really(*arguments, **options)
        strike()
        return result

    replace_operation(operation, struck)


def replace_operation(operation: Operation[..., Any], instead: Callable[..., Any]) -> None:
    """Every store answers an operation with `instead(really, *args)`, where `really` runs the operation."""
    run: Callable[..., Any] = Store.run

    async def replaced(store: Store, asked: Operation[..., Any], *arguments: Any, **options: Any) -> Any:
        if asked is operation:
            return await instead(partial(run, store, asked), *arguments, **options)
        return await run(store, asked, *arguments, **options)

    Store.run = replaced  # type: ignore[method-assign, assignment]


def meet_call(signal_number: int, owner: type, name: str, when: str = "after") -> None:
    """The signal arrives before or after the first call of a method."""
    original: Callable[..., Any] = getattr(owner, name)
    strike = once(signal_number)

    async def awaited(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            strike()
        result = await original(*arguments, **options)
        strike()
        return result

    def called(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        strike()
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(original) else called)


def leave_as_a_job_ends(turns: int) -> None:
    """A SIGTERM so many turns of the event loop before a job has ended."""

    async def completed(really: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = await really(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(turns):
            await asyncio.sleep(0)
        return result

    replace_operation(ops.complete_job, completed)


class SteppingClock(apsw.VFS):
    """SQLite asks its file system layer for the time: this one adds what a file says."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        super().__init__("stepping", "")

    def xCurrentTimeInt64(self) -> int:
        return round((time.time() + float(self._offset.read_text())) * 1000) + UNIX_EPOCH_MS

    def xCurrentTime(self) -> float:
        return self.xCurrentTimeInt64() / 86_400_000


def own_clock(offset: Path) -> None:
    clock = SteppingClock(offset)

    def open_store(place: str | Path, **options: Any) -> Store:
        return Store(SqliteDriver.open(Path(place), vfs="stepping", **options))

    connect.open_store = open_store
    KEPT.append(clock)


KEPT: list[apsw.VFS] = []

if __name__ == "__main__":
    change(sys.argv.pop(1))
    main()
