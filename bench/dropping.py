"""Job files: how many a second are taken in, how soon one is a prompt at a server, how quick the queue is listed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bare import trivial
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.records import Counts
from pausing import entries_of
from report import Line, at_least, at_most, p95
from sizes import size

FILES = size(10_000, 20)
LISTED = size(1_000, 5)
LISTINGS = size(7, 1)
DROPPED = size(60, 2)
PAUSE = 0.25
ROUNDS = size(3, 1)
PATIENCE = 120.0


class Dropping:
    """A workspace as `e3 init` makes it, with a process that watches it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for _ in start_workspace(root):
            pass
        (root / "workflows" / "trivial.json").write_text(json.dumps(trivial("picture")))
        self._chance = random.Random()

    @property
    def folder(self) -> Path:
        return self.root / "jobs" / "processing" / "image"

    def write(self, folder: Path, name: str) -> None:
        colour = self._chance.randrange(0x1000000)
        text = f"job_type: T2I\nworkflow_id: trivial\npriority: 20\ninputs:\n  color: {colour}\n"
        text += f'outputs:\n  file_path: "jobs/finished/image/{name}.png"\nmetadata:\n  creator: "bench"\n'
        (folder / f"{name}.yaml").write_text(text)

    @contextmanager
    def process(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "comfyui_agent", *words, "-C", str(self.root)]
        with (self.root / "process.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    async def until(self, count: int, process: subprocess.Popen[bytes], seen: list[tuple[int, float]]) -> None:
        """Wait for so many rows; how many there were, and the memory of the process in MB, are noted meanwhile."""
        store = open_store(self.root / "database" / "comfyui_agent.db")
        deadline = time.monotonic() + PATIENCE
        try:
            while (have := _all(await store.run(ops.count_jobs))) < count:
                assert time.monotonic() < deadline, f"{have} of {count} after {PATIENCE} s"
                seen.append((have, _resident_mb(process.pid)))
                await asyncio.sleep(0.02)
            seen.append((have, _resident_mb(process.pid)))
        finally:
            await store.close()

    def jobs(self) -> list[Job]:
        async def run() -> list[Job]:
            store = open_store(self.root / "database" / "comfyui_agent.db")
            try:
                return await store.run(ops.list_jobs, limit=1_000_000)
            finally:
                await store.close()

        return asyncio.run(run())


def _all(counts: Counts) -> int:
    return counts.pending + counts.processing + counts.done + counts.failed


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


@contextmanager
def fresh() -> Iterator[Dropping]:
    folder = tempfile.mkdtemp(prefix="e3-bench-")
    try:
        yield Dropping(Path(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_in() -> tuple[float, float]:
    """Files a second, from the moment in which they appear, and the MB gained from the first thousand to the last."""
    with fresh() as place:
        aside = place.root / "aside"
        aside.mkdir()
        with place.process("monitor") as process:
            place.write(place.folder, "first")
            seen: list[tuple[int, float]] = []
            asyncio.run(place.until(1, process, seen))
            for number in range(FILES):
                place.write(aside, f"job_{number:05}")
            seen.clear()
            aside.rename(place.folder / "night")
            began = time.monotonic()
            asyncio.run(place.until(FILES + 1, process, seen))
            seconds = time.monotonic() - began
        early = next(memory for count, memory in seen if count >= FILES // 10)
        return FILES / seconds, seen[-1][1] - early


def measure_bulk() -> list[Line]:
    found = [_take_in() for _ in range(ROUNDS)]
    rate = statistics.median(rate for rate, _ in found)
    grown = max(memory for _, memory in found)
    what = f"{FILES:,} job files that appear at once, taken in, median of {ROUNDS}"
    return [
        at_least(what, 2_000, rate, "/s", why="other processes take the cores that reading them needs"),
        at_most(f"memory gained from file {FILES // 10:,} to {FILES:,}", 30, grown, " MB"),
    ]


def measure_listing() -> list[Line]:
    with fresh() as place:
        for number in range(LISTED):
            place.write(place.folder, f"job_{number:05}")
        with place.process("monitor", "--until-idle") as process:
            assert process.wait(PATIENCE) == 0
        command = [sys.executable, "-m", "comfyui_agent", "queue", "ls", "--limit", str(LISTED), "-C", str(place.root)]
        found = []
        for _ in range(LISTINGS):
            began = time.monotonic()
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(time.monotonic() - began)
            assert answer.stdout.count("○ Pending") == LISTED
    what = f"e3 queue ls with {LISTED:,} jobs, median of {len(found)}"
    return [at_most(what, 0.5, statistics.median(found), " s", why="starting Python takes most of it")]


def measure_latency(name: str, url: str) -> list[Line]:
    """From a file that is written in place to its prompt at the server, one file after another."""
    written: dict[str, float] = {}
    with fresh() as place, place.process("run", "--server", url) as process:
        place.write(place.folder, "first")
        asyncio.run(place.until(1, process, []))
        for number in range(DROPPED):
            place.write(place.folder, f"job_{number:03}")
            written[f"job_{number:03}.yaml"] = time.time()
            time.sleep(PAUSE)
        deadline = time.monotonic() + PATIENCE
        while sum(job.status.value == "done" for job in place.jobs()) <= DROPPED:
            assert time.monotonic() < deadline, (place.root / "process.log").read_text()[-3000:]
            time.sleep(0.2)
        jobs = {job.config_name: job for job in place.jobs()}
        entries = asyncio.run(entries_of(url, [str(jobs[file].prompt_id) for file in written]))
    found = [
        entry["prompt"][3]["create_time"] / 1000 - moment
        for entry, moment in zip(entries, written.values(), strict=True)
    ]
    what = f"{name}: file written to prompt at the server, p95 of {DROPPED}, median {statistics.median(found):.2f} s"
    return [at_most(what, 1.0, p95(found), " s")]
