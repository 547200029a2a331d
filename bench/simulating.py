"""How soon the simulator is up, and how many trivial prompts it serves."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from comfyui_agent.sim.process import simulator
from driving import bare_run
from report import Line, at_least, at_most
from sizes import size

STARTS = size(7, 1)
RUNS = size(5, 1)
PROMPTS = size(600, 10)


async def measure() -> list[Line]:
    starts = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            server = simulator(Path(folder)).start()
            starts.append(time.perf_counter() - began)
            server.kill()
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        server = simulator(Path(folder)).start()
        try:
            for run in range(RUNS):
                target = Path(folder) / f"run{run}"
                target.mkdir()
                rates.append(await bare_run(server.url, PROMPTS, target))
        finally:
            server.kill()
    return [
        at_most(f"simulator: start to first answer, median of {STARTS}", 1.0, statistics.median(starts), " s"),
        at_least(f"simulator: trivial prompts, bare loop, median of {RUNS} runs", 300, statistics.median(rates), "/s"),
    ]
