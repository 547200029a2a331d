"""`make bench`: every figure that the documentation gives, measured here and now.

The real ComfyUI takes part when E3_COMFYUI_URL or E3_COMFYUI_DIR is set.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

import driving
import simulating
import watching
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


def show(lines: list[Line]) -> int:
    for line in lines:
        print(line.text(), flush=True)
    return sum(not line.met for line in lines)


def main() -> int:
    missed = show(asyncio.run(simulating.measure()))
    with tempfile.TemporaryDirectory() as base:
        with running(simulator(Path(base) / "steady", "--render-seconds", "0.02")) as url:
            missed += show(asyncio.run(driving.measure("simulator at 20 ms a render", url, prompts=100)))
            missed += show(asyncio.run(watching.measure("simulator at 20 ms a render", url)))
            missed += show(asyncio.run(watching.measure_without_socket("simulator at 20 ms a render", url)))
        if REAL_URL or REAL_DIR:
            with real_server(Path(base) / "real") as url:
                missed += show(asyncio.run(driving.measure("real ComfyUI", url, prompts=600)))
                missed += show(asyncio.run(watching.measure("real ComfyUI", url)))
                missed += show(asyncio.run(watching.measure_without_socket("real ComfyUI", url)))
        else:
            print("skipped real ComfyUI: set E3_COMFYUI_URL or E3_COMFYUI_DIR")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
