"""How much memory an agent takes while very many jobs wait."""

from __future__ import annotations

import time
from pathlib import Path

from report import Line, at_most
from sizes import size
from working import Work, fresh_work

JOBS = size(100_000, 50)
WORKED_OFF = size(300, 5)
PATIENCE = 90.0


def peak_mb(pid: int) -> float:
    """The most that a process has had in memory so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def done(work: Work) -> int:
    return sum(1 for _ in (work.root / "jobs").rglob("*.png"))


def measure(name: str, url: str) -> list[Line]:
    with fresh_work() as work:
        work.submit(JOBS)
        with work.agent(url) as process:
            deadline = time.monotonic() + PATIENCE
            while done(work) < WORKED_OFF:
                assert process.poll() is None, (work.root / "agent.log").read_text()[-3000:]
                assert time.monotonic() < deadline, f"only {done(work)} done in {PATIENCE} s"
                time.sleep(0.2)
            reached = peak_mb(process.pid)
    what = f"{name}: an agent with {JOBS:,} pending jobs, peak after {WORKED_OFF} of them"
    return [at_most(what, 150, reached, " MB", why="jobs that wait are kept in memory")]
