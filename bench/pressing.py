"""How fast the load test drives a server, against a bare loop: a load generator must not be what is measured."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bare import trivial
from comfyui_agent.lab.load.plan import LoadPlan
from comfyui_agent.lab.load.run import load_test
from comfyui_agent.lab.payloads import Payload
from driving import IN_FLIGHT, PAIRS, bare_run
from report import Line, at_least

TARGET = 0.95
WHY = "where generator and server share few cores, each figure that is taken takes time from the server"


class Nobody:
    """Looks at nothing."""

    def began(self, level: float, jobs: int | None) -> None: ...

    def sent(self) -> None: ...

    def ended(self, row: Any) -> None: ...

    def ended_level(self, run: Any) -> None: ...


async def pressed_run(url: str, prompts: int) -> float:
    """Prompts a second of a closed loop, every one measured in all its parts, from the first post to the last file."""
    payload = Payload.of("trivial", trivial("bench/pressed"))
    plan = LoadPlan((url,), (payload,), levels=(float(IN_FLIGHT),), jobs=prompts)
    (level,) = (await load_test(plan, Nobody())).levels
    assert all(row.is_completed and not row.cached for row in level.rows), level.rows
    assert len(level.rows) == prompts
    return prompts / level.wall_clock_sec


async def measure(name: str, url: str, prompts: int) -> list[Line]:
    ratios, bare_rates, rates = [], [], []
    for pair in range(PAIRS):
        folder = Path(tempfile.mkdtemp(prefix="e3-bench-"))
        try:
            if pair % 2:
                bare = await bare_run(url, prompts, folder)
                pressed = await pressed_run(url, prompts)
            else:
                pressed = await pressed_run(url, prompts)
                bare = await bare_run(url, prompts, folder)
        finally:
            shutil.rmtree(folder)
        ratios.append(pressed / bare)
        bare_rates.append(bare)
        rates.append(pressed)
    seen = f"{statistics.median(rates):.0f}/s of {statistics.median(bare_rates):.0f}/s"
    spread = f"pairs {min(ratios):.2f} to {max(ratios):.2f}"
    line = f"{name}: load test against bare loop, {IN_FLIGHT} at once, {seen}, {spread}"
    return [at_least(line, TARGET, statistics.median(ratios), why=WHY)]
