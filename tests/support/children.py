"""A pytest plugin: no process outlives the test that started it, nor the run. One that does fails the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import fork_server

MARK = "PYTEST_STARTED_BY"
"""Inherited by every process of a run, so that it is found when the run is gone."""

WATCHDOGS: list[subprocess.Popen[bytes]] = []
"""While they are here, the pipes to them stay open."""

BEFORE = pytest.StashKey[set[int]]()
LEFTOVERS = pytest.StashKey[list[str]]()
KEPT: set[int] = set()
GRACE_SECONDS = 3.0
"""A process that was killed takes a moment to go."""

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
    fork_server.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    item.stash[BEFORE] = started()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if BEFORE in item.stash:
            kill_trees(started() - item.stash[BEFORE] - KEPT)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last fixture, a process that still runs belongs to nobody. A worker of xdist tells its controller."""
    fork_server.CLIENT.stop()
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["leftovers"] = leftovers()
        return
    if not config.pluginmanager.hasplugin("dsession"):  # a controller has started nothing but workers
        config.stash[LEFTOVERS] = leftovers()
    if config.stash.get(LEFTOVERS, []) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", None) or {}
    node.config.stash.setdefault(LEFTOVERS, []).extend(told.get("leftovers", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if found := config.stash.get(LEFTOVERS, []):
        terminalreporter.section("processes that outlived their tests", red=True)
        for line in found:
            terminalreporter.write_line(line)


def leftovers() -> list[str]:
    """Every process that this one has started, directly or not, and that still runs: its command and its test."""
    mark = f"{MARK}={os.environ.get(MARK)}".encode()
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        found = [line for pid in Path("/proc").glob("[0-9]*") if (line := _described(pid, mark))]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _described(process: Path, mark: bytes) -> str | None:
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if mark not in environment or process.name == str(os.getpid()):
        return None
    test = next((each.partition(b"=")[2] for each in environment if each.startswith(b"PYTEST_CURRENT_TEST=")), b"?")
    return f"{process.name} {command[:200]}(started in {test.decode(errors='replace')})"


def die_with_this_process() -> None:
    """Kill every process that this one starts from now on when it ends, even by SIGKILL. Linux only."""
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
    """Later tests use this process too. The fixture that owns it ends it."""
    assert process is not None
    KEPT.add(process.pid)


def started() -> set[int]:
    """The processes that this one has started, those of the fork server included."""
    server = fork_server.CLIENT.pid
    return (children_of(os.getpid()) | (children_of(server) if server else set())) - {server or 0}


def children_of(pid: int) -> set[int]:
    """Asked twice for each test, of some hundred threads: so without Path."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", 0) as listed:  # noqa: PTH123
                found |= {int(word) for word in listed.read().split()}
    return found


def kill_trees(pids: set[int]) -> None:
    """Parents first, so that none of them starts another."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        kill_trees(children_of(pid))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
