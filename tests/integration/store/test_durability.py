"""What was acknowledged is there, whenever the writer is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store
from support.stores import in_the_shell, lease_one, submit_one

pytestmark = pytest.mark.skipif(os.name != "posix", reason="killed with a signal")

SUBMITTER = """
import asyncio, sys
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store

path, life = sys.argv[1], sys.argv[2]

async def main():
    store = open_store(path)
    await asyncio.gather(*(submit(store, f"{life}-{caller}") for caller in range(4)))

async def submit(store, name):
    number = 0
    while True:
        wishes = [NewJob(f"{name}-{number}-{part}", "T2I", "wf", inputs={"6.text": "x" * 500}) for part in "ab"]
        ids = await store.run(ops.submit_jobs, wishes)
        print(*ids, flush=True)
        number += 1

asyncio.run(main())
"""


def acknowledged_until_killed(path: Path, life: int, dice: random.Random) -> list[int]:
    """Start a submitter, kill it at some moment, and return the ids that it had been promised."""
    command = [sys.executable, "-c", SUBMITTER, str(path), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        timer = threading.Timer(dice.uniform(0.0, 0.15), child.send_signal, [signal.SIGKILL])
        timer.start()
        lines += child.stdout.readlines()
        timer.join()
    assert child.returncode == -signal.SIGKILL
    whole = [line for line in lines if line.endswith("\n")]
    return [int(number) for line in whole for number in line.split()]


async def test_every_acknowledged_job_outlives_a_killed_writer(tmp_path: Path) -> None:
    path, dice = tmp_path / "killed.db", random.Random()
    acknowledged: list[int] = []
    for life in range(6):
        acknowledged += acknowledged_until_killed(path, life, dice)
        rows = in_the_shell(path, "SELECT id, config_name FROM jobs")
        assert set(acknowledged) <= {row["id"] for row in rows}
        assert in_the_shell(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        pairs = {row["config_name"][:-1] for row in rows}
        assert len(rows) == 2 * len(pairs), "a submission is there whole or not at all"
    assert len(acknowledged) > 50
    store = open_store(path)
    assert (await store.run(ops.count_jobs)).pending == len(rows)
    assert len({event.job_id for event in await store.run(ops.events_after, 0, 1_000_000)}) == len(rows)
    await store.close()


class WatchedDisk(apsw.VFS):
    """Knows of which files something was written that the disk has not been told to keep."""

    def __init__(self) -> None:
        self.unkept: set[str] = set()
        self.kept = 0
        super().__init__("watched-disk", "")

    def xOpen(self, name: Any, flags: list[int]) -> WatchedFile:
        return WatchedFile(self, name, flags)


class WatchedFile(apsw.VFSFile):
    def __init__(self, disk: WatchedDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.unkept.add(self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.unkept.discard(self._name)
        self._disk.kept += 1


async def test_what_was_acknowledged_has_been_written_to_the_disk_for_good(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store = Store(SqliteDriver.open(tmp_path / "watched.db", vfs="watched-disk"))
    for number in range(5):
        before = disk.kept
        await submit_one(store, str(number))
        assert (disk.unkept, disk.kept > before) == (set(), True)
        leased = await lease_one(store)
        assert disk.unkept == set()
        await store.run(ops.complete_job, leased.lease, [], None)
        assert disk.unkept == set()
    await store.close()
    disk.unregister()
