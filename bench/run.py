"""`make bench`: every figure that the documentation gives, measured here and now.

`bench/run.py NAME...` measures only what is named, `--quick` in the smallest size: it shows that the measurements run,
and its figures mean nothing. The real ComfyUI takes part when E3_COMFYUI_URL or E3_COMFYUI_DIR is set.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]
if "--quick" in sys.argv:
    os.environ["BENCH_QUICK"] = "1"

import attacking
import batching
import browsing
import bulking
import driving
import dropping
import filling
import finishing
import forecasting
import holding
import looking
import pausing
import pg_filling
import pg_fleet
import pg_looking
import pg_queueing
import pg_waking
import pressing
import queueing
import relaying
import routing
import simulating
import spending
import watching
import working
from report import Line
from sizes import QUICK, size
from support.children import die_with_this_process
from support.servers import REAL_DIR, REAL_URL, ServerProcess, real_comfyui, simulator

Bench = Callable[[], list[Line]]
BenchOfServer = Callable[[str, str], list[Line]]

ALONE: dict[str, Bench] = {
    "queueing": queueing.measure,
    "filling": filling.measure,
    "bulking": lambda: asyncio.run(bulking.measure()),
    "routing": routing.measure,
    "forecasting": forecasting.measure,
    "simulating": lambda: asyncio.run(simulating.measure()),
    "dropping": lambda: dropping.measure_bulk() + dropping.measure_listing(),
    "looking": looking.measure,
    "browsing": browsing.measure,
    "attacking": attacking.measure,
    "batching": lambda: batching.measure_queueing() + batching.measure_grid(),
    "spending-fleet": spending.measure_fleet,
    "relaying-crowd": relaying.measure_sockets,
    "pg_queueing": pg_queueing.measure,
    "pg_filling": pg_filling.measure,
    "pg_waking": pg_waking.measure,
    "pg_looking": pg_looking.measure,
    "pg_fleet": pg_fleet.measure,
}
STEADY: dict[str, BenchOfServer] = {
    "driving": lambda name, url: asyncio.run(driving.measure(name, url, size(100, 8))),
    "watching": lambda name, url: asyncio.run(watching.measure(name, url)),
    "watching-deaf": lambda name, url: asyncio.run(watching.measure_without_socket(name, url)),
    "pressing": lambda name, url: asyncio.run(pressing.measure(name, url, size(100, 8))),
    "working": lambda name, url: working.measure(name, url, size(100, 5)),
    "finishing": lambda name, url: finishing.measure_p95(name, url, size(300, 5)),
    "holding": holding.measure,
    "relaying": relaying.measure,
    "dropping-latency": dropping.measure_latency,
}
SLOW: dict[str, BenchOfServer] = {"pausing": pausing.measure}
REAL: dict[str, BenchOfServer] = {
    "driving": lambda name, url: asyncio.run(driving.measure(name, url, size(600, 8))),
    "watching": STEADY["watching"],
    "watching-deaf": STEADY["watching-deaf"],
    "working": lambda name, url: working.measure(name, url, size(300, 5)),
    "finishing": lambda name, url: finishing.measure_median(name, url, size(300, 5)),
    "dropping-latency": STEADY["dropping-latency"],
    "spending": spending.measure,
    "relaying": relaying.measure,
}
NAMES = list(dict.fromkeys([*ALONE, *STEADY, *SLOW, *REAL]))


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


def show(bench: str, measure: Bench) -> int:
    """Print what a measurement found; how many goals it missed."""
    began = time.monotonic()
    lines = measure()
    for line in lines:
        print(line.text(), flush=True)
    print(f"        {bench}: {time.monotonic() - began:.1f} s", flush=True)
    return sum(not line.met for line in lines)


def show_at(name: str, url: str, benches: dict[str, BenchOfServer], wanted: list[str]) -> int:
    return sum(
        show(f"{bench} at {name}", lambda measure=measure: measure(name, url))
        for bench, measure in benches.items()
        if bench in wanted
    )


def run_all(wanted: list[str]) -> int:
    missed = sum(show(bench, measure) for bench, measure in ALONE.items() if bench in wanted)
    with tempfile.TemporaryDirectory() as base:
        if STEADY.keys() & set(wanted):
            with running(simulator(Path(base) / "steady", "--render-seconds", "0.02")) as url:
                missed += show_at("simulator at 20 ms a render", url, STEADY, wanted)
        if SLOW.keys() & set(wanted):
            seconds = size(1.0, 0.1)
            with running(simulator(Path(base) / "slow", "--render-seconds", str(seconds))) as url:
                missed += show_at(f"simulator at {seconds:g} s a render", url, SLOW, wanted)
        if not (REAL_URL or REAL_DIR):
            print("skipped real ComfyUI: set E3_COMFYUI_URL or E3_COMFYUI_DIR")
        elif REAL.keys() & set(wanted):
            with real_server(Path(base) / "real") as url:
                missed += show_at("real ComfyUI", url, REAL, wanted)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="in the smallest size")
    wanted = parser.parse_args().names or NAMES
    if unknown := set(wanted) - set(NAMES):
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    die_with_this_process()
    print(f"before: {machine()}")
    missed = run_all(wanted)
    print(f"after: {machine()}, {missed} missed")
    return 1 if missed and not QUICK else 0


if __name__ == "__main__":
    sys.exit(main())
