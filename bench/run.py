"""`make bench`: every figure that the documentation gives, measured here and now.

The real ComfyUI takes part when E3_COMFYUI_URL or E3_COMFYUI_DIR is set.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

import batching
import browsing
import driving
import dropping
import filling
import finishing
import holding
import looking
import pausing
import pressing
import queueing
import simulating
import watching
import working
from report import Line
from support.servers import REAL_DIR, REAL_URL, ServerProcess, real_comfyui, simulator


@contextmanager
def running(process: ServerProcess) -> Iterator[str]:
    try:
        yield process.start().url
    finally:
        process.kill()


@contextmanager
def real_server(folder: Path) -> Iterator[str]:
    if REAL_DIR:
        with running(real_comfyui(folder)) as url:
            yield url
    else:
        yield REAL_URL.rstrip("/")


def machine() -> str:
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def show(lines: list[Line]) -> int:
    for line in lines:
        print(line.text(), flush=True)
    return sum(not line.met for line in lines)


def of_a_client(name: str, url: str, prompts: int) -> int:
    missed = show(asyncio.run(driving.measure(name, url, prompts)))
    missed += show(asyncio.run(watching.measure(name, url)))
    return missed + show(asyncio.run(watching.measure_without_socket(name, url)))


def main() -> int:
    print(f"before: {machine()}")
    missed = show(queueing.measure()) + show(filling.measure()) + show(asyncio.run(simulating.measure()))
    missed += show(dropping.measure_bulk()) + show(dropping.measure_listing())
    missed += show(looking.measure()) + show(browsing.measure())
    missed += show(batching.measure_queueing()) + show(batching.measure_grid())
    with tempfile.TemporaryDirectory() as base:
        name = "simulator at 20 ms a render"
        with running(simulator(Path(base) / "steady", "--render-seconds", "0.02")) as url:
            missed += of_a_client(name, url, prompts=100)
            missed += show(asyncio.run(pressing.measure(name, url, prompts=100)))
            missed += show(working.measure(name, url, jobs=100))
            missed += show(finishing.measure_p95(name, url, jobs=300))
            missed += show(holding.measure(name, url))
            missed += show(dropping.measure_latency(name, url))
        with running(simulator(Path(base) / "slow", "--render-seconds", "1")) as url:
            missed += show(pausing.measure("simulator at 1 s a render", url))
        if REAL_URL or REAL_DIR:
            with real_server(Path(base) / "real") as url:
                missed += of_a_client("real ComfyUI", url, prompts=600)
                missed += show(working.measure("real ComfyUI", url, jobs=300))
                missed += show(finishing.measure_median("real ComfyUI", url, jobs=300))
                missed += show(dropping.measure_latency("real ComfyUI", url))
        else:
            print("skipped real ComfyUI: set E3_COMFYUI_URL or E3_COMFYUI_DIR")
    print(f"after: {machine()}, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
