"""A pytest plugin: no process that a test starts outlives that test, and none outlives the run, however either ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

MARK = "PYTEST_STARTED_BY"
"""Inherited by everything that a run starts, so that it is found when the run is gone."""

WATCHDOGS: list[subprocess.Popen[bytes]] = []
"""While they are here, the pipes to them stay open."""

BEFORE = pytest.StashKey[set[int]]()
KEPT: set[int] = set()

WATCHDOG = """
import os, signal, sys, time
sys.stdin.buffer.read()  # ends with the process that holds the other end
mark, found = sys.argv[1].encode(), True
while found:
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                is_ours = mark in environ.read().split(b"\\0")
            if is_ours and int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
                found = True
        except OSError:
            pass
    time.sleep(0.01)
"""


def pytest_configure() -> None:
    die_with_this_process()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    item.stash[BEFORE] = children_of(os.getpid())
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if BEFORE in item.stash:
            kill_trees(children_of(os.getpid()) - item.stash[BEFORE] - KEPT)


def die_with_this_process() -> None:
    """Whatever this process starts from now on is killed when it ends, even by SIGKILL. Linux only."""
    if not Path("/proc/self/environ").exists():
        return
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    os.environ[MARK] = f"{os.getpid()}-{uuid.uuid4().hex}"
    command = [sys.executable, "-S", "-E", "-c", WATCHDOG, f"{MARK}={os.environ[MARK]}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, **quiet, env=environment, start_new_session=True)
    watchdog.returncode = 0  # it outlives this process, and is never waited for
    WATCHDOGS.append(watchdog)


def keep(process: subprocess.Popen[bytes] | None) -> None:
    """Later tests use it too, though a test may have started it."""
    assert process is not None
    KEPT.add(process.pid)


def children_of(pid: int) -> set[int]:
    found = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in thread.read_text().split()}
    return found


def kill_trees(pids: set[int]) -> None:
    """Parents first, so that none of them starts another."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        kill_trees(children_of(pid))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
