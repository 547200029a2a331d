"""How many processes a card is worth: one more as long as that renders a tenth more, one less when it does not pay."""

from __future__ import annotations

from dataclasses import dataclass, field
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
FOUND = ("per_minute", "memory", "decision", "is_settled", "rates", "kept", "ceiling")
"""What another process needs to go on with a tuning."""


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
class Tuning:
    """What was measured on one card, and what follows from it."""

    card: str
    most: int
    per_minute: dict[int, float] = field(default_factory=dict)
    """Measured renders per minute by number of processes."""
    memory: dict[int, int] = field(default_factory=dict)
    """The most bytes that one process took until that was measured."""
    decision: str = MEASURING
    is_settled: bool = False
    rates: dict[int, float] = field(default_factory=dict)
    """The same in work per second, whatever the jobs were."""
    kept: int = 1
    """So many have proved worth it."""
    ceiling: int | None = None
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
        if sample.is_idle or not (before or self.rates):
            self._forget(sample)
        elif before is None or before.processes != number:
            self._begin_anew(sample)
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
        self.per_minute[number] = round(renders / seconds * 60, 1)
        self.memory[number] = sample.process_memory
        return self._judge(sample, rate)

    def _judge(self, sample: Sample, rate: float) -> Step | None:
        number, fewer = sample.processes, self.rates.get(sample.processes - 1)
        self.rates[number] = rate
        if fewer is not None and rate < fewer * (GAIN if number > self.kept else LOSS):
            return self._shrink(sample, f"{self._compared(number)}: not worth it")
        self.kept, self.is_hindered = number, False
        if (self.ceiling or self.most) <= number:
            if not self.is_settled:
                self.decision = f"{self._compared(number)}, the most there may be"
            self.is_settled = True
            return None
        reason = _hindrance(sample)
        if reason:
            self.is_hindered = True
            self.decision = f"{counted(number, 'process', 'processes')}, no more: {reason}"
            return None
        self.decision = f"{self._compared(number)}: trying {number + 1}"
        return Step.GROW

    def _compared(self, number: int) -> str:
        text = f"{self.per_minute[number]:g} a minute"
        fewer = self.rates.get(number - 1)
        text += f" ({100 * (self.rates[number] / fewer - 1):+.0f} %)" if fewer else ""
        return f"{text} with {counted(number, 'process', 'processes')}"

    def _shrink(self, sample: Sample, reason: str) -> Step:
        self.ceiling = self.kept = sample.processes - 1
        self._shrunk_at = sample.at
        self.is_settled = True
        self.decision = f"{reason}; {self.kept} it is"
        return Step.SHRINK

    def _forget(self, sample: Sample) -> None:
        self.rates.clear()
        self.per_minute.clear()
        self.memory.clear()
        self.kept, self.ceiling, self.is_settled, self.is_hindered = sample.processes, None, False, False
        self.decision = MEASURING
        self._begin_anew(sample)

    def _begin_anew(self, sample: Sample) -> None:
        self._began = None
        self._warm_at = sample.renders + WARM_RENDERS * sample.processes


def _hindrance(sample: Sample) -> str:
    """Why another process is not started now; empty if nothing is in the way."""
    wanted = sample.process_memory * MEMORY_MARGIN + SPARE_BYTES
    if sample.free_memory is not None and sample.free_memory < wanted:
        return f"{sample.free_memory / 1024**3:.1f} GB are free, and another takes {wanted / 1024**3:.1f} GB"
    more = sample.processes + 1
    if sample.waiting < WORTH_RENDERS * more or sample.waiting * sample.render_seconds / more < WORTH_SECONDS:
        return "the queue is too short for another"
    return ""
