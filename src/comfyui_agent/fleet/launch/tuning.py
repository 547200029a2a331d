"""How many processes a card is worth: one more as long as that renders a tenth more, one less when it does not pay."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from comfyui_agent.domain.texts import counted

GAIN = 1.10
"""So much more must one process more render."""
LOSS = 0.90
MEASURED_SECONDS = 20.0
MEASURED_RENDERS = 10
WARM_RENDERS = 2
"""By each process, before it counts."""
WORTH_SECONDS = 60.0
WORTH_RENDERS = 8
"""By each process: so much work must wait before another one is started."""
SPARE_BYTES = 2 * 1024**3
MEMORY_MARGIN = 1.2
MEASURING = "measuring"


class Step(Enum):
    GROW = auto()
    SHRINK = auto()


@dataclass(frozen=True)
class Sample:
    """A card at one moment. `renders` and `work` count up; `work` are renders weighted by what they take alone."""

    at: float
    processes: int
    is_busy: bool
    """Whether every process is up and has something to render."""
    renders: int
    work: float
    waiting: int
    """Jobs in the queue."""
    render_seconds: float
    free_memory: int | None = None
    process_memory: int = 0
    """The most that one process took."""
    oom_failures: int = 0
    failure: str = ""
    """Why a process that is wanted was given up; empty if none was."""
    is_idle: bool = False
    """Whether there is nothing to do. What comes next may be other work, and is measured anew."""


@dataclass
class Findings:
    """What was found about a card: all that another process needs to go on from there."""

    decision: str
    is_settled: bool = False
    kept: int = 1
    """So many processes have proved worth it."""
    ceiling: int | None = None
    per_minute: dict[int, float] = field(default_factory=dict)
    """Measured renders per minute by number of processes."""
    rates: dict[int, float] = field(default_factory=dict)
    """The same in work per second, whatever the jobs were."""
    memory: dict[int, int] = field(default_factory=dict)
    """The most bytes that one process took until that was measured."""
    processes: int = 0
    """So many there are, for those who look from other processes."""
    reference: dict[str, float] = field(default_factory=dict)
    """The same for all cards: seconds of a render when it was first seen, by its needs."""


@dataclass
class Tuning:
    """What was found about one card, and what follows from it."""

    card: str
    most: int
    found: Findings = field(default_factory=lambda: Findings(MEASURING))
    is_hindered: bool = False
    """Whether another process would be tried, if there were memory or work for it."""
    _began: Sample | None = None
    _shrunk_at: float = -MEASURED_SECONDS
    _warm_at: int = 0
    _last: Sample | None = None

    def see(self, sample: Sample) -> Step | None:
        """Take a look into account. Returns what to do now, if anything; `decision` says why."""
        before, self._last = self._last, sample
        number = sample.processes
        is_new = sample.is_idle or not (before or self.found.rates)
        if is_new:
            self.found, self.is_hindered = Findings(MEASURING, kept=number), False
        if is_new or before is None or before.processes != number:
            self._began, self._warm_at = None, sample.renders + WARM_RENDERS * number
        if number > 1 and sample.failure:
            return self._shrink(sample, f"a process of {number} was given up: {sample.failure}")
        is_short = before is not None and sample.oom_failures > before.oom_failures
        # What is left of the larger number may still fail, and does not blame the smaller one.
        if number > 1 and is_short and sample.at - self._shrunk_at >= MEASURED_SECONDS:
            return self._shrink(sample, f"jobs ran out of memory with {number} processes")
        if not sample.is_busy or sample.renders < self._warm_at:
            self._began = None
            return None
        if self._began is None:
            self._began = sample
            return None
        seconds, renders = sample.at - self._began.at, sample.renders - self._began.renders
        if seconds < MEASURED_SECONDS or renders < MEASURED_RENDERS * number:
            return None
        rate = (sample.work - self._began.work) / seconds
        self._began = sample
        self.found.per_minute[number] = round(renders / seconds * 60, 1)
        self.found.memory[number] = sample.process_memory
        return self._judge(sample, rate)

    def _judge(self, sample: Sample, rate: float) -> Step | None:
        found, number = self.found, sample.processes
        fewer = found.rates.get(number - 1)
        found.rates[number] = rate
        gain = f" ({100 * (rate / fewer - 1):+.0f} %)" if fewer else ""
        compared = f"{found.per_minute[number]:g} a minute{gain} with {counted(number, 'process', 'processes')}"
        if fewer is not None and rate < fewer * (GAIN if number > found.kept else LOSS):
            return self._shrink(sample, f"{compared}: not worth it")
        found.kept, self.is_hindered = number, False
        if (found.ceiling or self.most) <= number:
            if not found.is_settled:
                found.decision = f"{compared}, the most there may be"
            found.is_settled = True
            return None
        if reason := _hindrance(sample):
            self.is_hindered = True
            found.decision = f"{counted(number, 'process', 'processes')}, no more: {reason}"
            return None
        found.decision = f"{compared}: trying {number + 1}"
        return Step.GROW

    def _shrink(self, sample: Sample, reason: str) -> Step:
        fewer = sample.processes - 1
        self._shrunk_at = sample.at
        self.found = replace(
            self.found, ceiling=fewer, kept=fewer, is_settled=True, decision=f"{reason}; {fewer} it is"
        )
        return Step.SHRINK


def _hindrance(sample: Sample) -> str:
    """Why another process is not started now; empty if nothing is in the way."""
    wanted = sample.process_memory * MEMORY_MARGIN + SPARE_BYTES
    if sample.free_memory is not None and sample.free_memory < wanted:
        return f"{sample.free_memory / 1024**3:.1f} GB are free, and another takes {wanted / 1024**3:.1f} GB"
    more = sample.processes + 1
    if sample.waiting < WORTH_RENDERS * more or sample.waiting * sample.render_seconds / more < WORTH_SECONDS:
        return "the queue is too short for another"
    return ""
