"""An agent that dies or stops at one exact moment, whose clock is wrong, or that tunes in seconds.

Run as `changed_agent.py CHANGE execute …`. CHANGE is `die:MOMENT` or `stop:MOMENT`; `term:TURNS` for a SIGTERM so many
turns of the event loop before a job ends; `clock:FILE`, where FILE holds the seconds by which the clock is wrong; or
`tune` for a tuner that is quick to decide.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.cli.app import main
from comfyui_agent.engine import agent
from comfyui_agent.files.folder import Folder
from comfyui_agent.fleet.launch import tuning
from comfyui_agent.store import connect
from comfyui_agent.store import operations as ops
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store

UNIX_EPOCH_MS = 210_866_760_000_000
"""The first of January 1970 in milliseconds of the Julian day."""

QUICK_TUNING = {"MEASURED_SECONDS": 3.0, "MEASURED_RENDERS": 3, "WARM_RENDERS": 1, "WORTH_SECONDS": 0.0, "GAIN": 1.3}
"""A third process on a simulated card renders a fifth more: not worth it."""

MOMENTS = {
    "downloaded": (Store, ops.claim_files, "before"),
    "claimed": (Store, ops.claim_files, "after"),
    "one_named": (Folder, "publish", "after"),
    "named": (Store, ops.complete_job, "before"),
    "done": (Store, ops.complete_job, "after"),
}


def change(what: str) -> None:
    verb, _, argument = what.partition(":")
    if verb == "clock":
        own_clock(Path(argument))
    elif verb == "tune":
        tune_in_seconds()
    elif verb == "term":
        leave_as_a_job_ends(int(argument))
    else:
        moments = {**MOMENTS, "uploaded": (_object_files(), "publish", "after")} if argument == "uploaded" else MOMENTS
        meet(signal.SIGKILL if verb == "die" else signal.SIGSTOP, *moments[argument])


def _object_files() -> type:
    from comfyui_agent.files.objects import ObjectFiles  # for those who need the library

    return ObjectFiles


def meet(signal_number: int, owner: type, what: Any, when: str) -> None:
    """The signal arrives before or after the first call of a method, or of an operation of the store."""
    name = "run" if owner is Store else what
    original: Callable[..., Any] = getattr(owner, name)
    met: list[str] = []

    def strike() -> None:
        if not met:
            met.append(name)
            os.kill(os.getpid(), signal_number)

    async def awaited(*arguments: Any, **options: Any) -> Any:
        if owner is Store and arguments[1] is not what:
            return await original(*arguments, **options)
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


def tune_in_seconds() -> None:
    for name, value in QUICK_TUNING.items():
        setattr(tuning, name, value)
    agent.TUNING_SECONDS = 0.3


def leave_as_a_job_ends(turns: int) -> None:
    run: Callable[..., Any] = Store.run

    async def completed(*arguments: Any, **options: Any) -> Any:
        result = await run(*arguments, **options)
        if arguments[1] is not ops.complete_job:
            return result
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(turns):
            await asyncio.sleep(0)
        return result

    Store.run = completed  # type: ignore[method-assign]


class SteppingClock(apsw.VFS):
    """SQLite asks its file system layer for the time: this one answers with that of the process."""

    def __init__(self) -> None:
        super().__init__("stepping", "")

    def xCurrentTimeInt64(self) -> int:
        return round(time.time() * 1000) + UNIX_EPOCH_MS

    def xCurrentTime(self) -> float:
        return self.xCurrentTimeInt64() / 86_400_000


def own_clock(offset: Path) -> None:
    """The clock of this process is wrong by what a file says. So is that of its database, if that is a file."""
    real_time, open_elsewhere = time.time, connect.open_store
    time.time = lambda: real_time() + float(offset.read_text())  # type: ignore[assignment]
    clock = SteppingClock()

    def open_store(place: str | Path, *, is_patient: bool = False, **options: Any) -> Store:
        if connect.is_postgres(place):
            return open_elsewhere(place, is_patient=is_patient, **options)
        return Store(SqliteDriver.open(Path(place), vfs="stepping", **options))

    connect.open_store = open_store
    KEPT.append(clock)


KEPT: list[apsw.VFS] = []

if __name__ == "__main__":
    change(sys.argv.pop(1))
    main()
