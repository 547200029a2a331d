"""When waiting jobs will be done: the queue is played through by the rule of routing, with measured seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from comfyui_agent.domain.needs import Timing
from comfyui_agent.domain.routing import Choice, Head, ServerSet, choose, stay_for

GROWTH = 400
"""Jobs are played one by one at first, later as many at a time as this part of those before them."""


@dataclass(frozen=True)
class Work:
    """What decides how long a job takes."""

    needs: str
    workflow: str
    model_set: str


@dataclass(frozen=True)
class Waiting(Work):
    """Jobs of one priority with the same needs. Their ids are taken to be spread evenly."""

    priority: int
    jobs: int
    first: int
    last: int
    is_asked: bool = True
    after: float = 0.0
    """Seconds of a backoff that are left."""


@dataclass(frozen=True)
class Running(Work):
    """A prompt at a server. `elapsed`: seconds since the server could begin with it."""

    server: str
    is_load: bool
    elapsed: float
    is_asked: bool = True


@dataclass(frozen=True)
class WorkingServer:
    """A server at work: the model set it has loaded, the last job it was given, and the oldest one that overtook."""

    model_set: str | None = None
    last_job: int | None = None
    last_priority: int | None = None
    overtaken_job: int | None = None

    def can_run(self, group: Waiting) -> bool:
        """It cannot if it was given a later job and overtook none of this age: then they were not for it."""
        is_passed = self.last_priority == group.priority and (self.last_job or 0) > group.first
        return not is_passed or (self.overtaken_job is not None and self.overtaken_job <= group.first)


@dataclass(frozen=True)
class Backlog:
    """What is left to do. `is_asked` marks the jobs whose end is looked for; the others come in between."""

    waiting: Sequence[Waiting]
    running: Sequence[Running]
    servers: Mapping[str, WorkingServer]
    timings: Sequence[Timing]


def seconds_left(backlog: Backlog, stay_seconds: float) -> float | None:
    """Seconds until all that is asked for is done. None if nothing was measured, nothing is left or no server can."""
    if all(each.seconds is None for each in backlog.timings):
        return None
    return _Schedule(backlog, stay_seconds).play()


class Speeds:
    """Mean seconds of renders and loads. What was not measured is taken from what is most like it."""

    def __init__(self, timings: Sequence[Timing]) -> None:
        self._sums: dict[Hashable, tuple[int, float]] = {}
        for each in timings:
            if each.seconds is not None:
                self._add(_likeness(each, each.server), each.runs, each.seconds)
        for each in timings:
            if each.cold_seconds is not None:
                load = max(0.0, each.cold_seconds - self.render(each, each.server))
                self._add(_load_likeness(each.model_set, each.server), each.loads, load)

    def render(self, work: Work | Timing, server: str) -> float:
        """Seconds of a job whose models are loaded."""
        return self._nearest(_likeness(work, server))

    def load(self, model_set: str | None, server: str) -> float:
        return self._nearest(_load_likeness(model_set, server))

    def _add(self, likeness: Iterable[Hashable], count: int, seconds: float) -> None:
        for like in likeness:
            before, total = self._sums.get(like, (0, 0.0))
            self._sums[like] = before + count, total + count * seconds

    def _nearest(self, likeness: Iterable[Hashable]) -> float:
        count, total = next((self._sums[like] for like in likeness if like in self._sums), (1, 0.0))
        return total / count


def _likeness(work: Work | Timing, server: str) -> tuple[Hashable, ...]:
    """What seconds are looked up by, the nearest first."""
    return (work.needs, server), work.needs, ("workflow", work.workflow), ("models", work.model_set), "all"


def _load_likeness(model_set: str | None, server: str) -> tuple[Hashable, ...]:
    return ("load", model_set, server), ("load", model_set), "all loads"


class _Schedule:
    """Gives each server that becomes free its next jobs, until all that is asked for has ended."""

    def __init__(self, backlog: Backlog, stay_seconds: float) -> None:
        self._backlog, self._stay_seconds, self._speeds = backlog, stay_seconds, Speeds(backlog.timings)
        self._left = [each.jobs for each in backlog.waiting]
        self._sets = {name: server.model_set for name, server in backlog.servers.items()}
        self._free_at: dict[str, float] = defaultdict(float)
        self._overtaken: dict[str, tuple[int, float]] = {}

    def play(self) -> float | None:
        end, played = 0.0, 0
        for run in self._backlog.running:
            ended = self._work(run, run.server, 1, is_load=run.is_load, elapsed=run.elapsed)
            end = max(end, ended) if run.is_asked else end
        self._free_at = {server: self._free_at[server] for server in self._sets}
        asked = sum(each.jobs for each in self._backlog.waiting if each.is_asked)
        while asked and self._free_at:
            server = min(self._free_at, key=self._free_at.__getitem__)
            index = self._choose(server)
            if index is None:
                del self._free_at[server]
                continue
            each, jobs = self._backlog.waiting[index], min(self._left[index], 1 + played // GROWTH)
            self._left[index] -= jobs
            played += jobs
            ended = self._work(each, server, jobs, is_load=each.model_set != self._sets[server])
            self._sets[server] = each.model_set
            if each.is_asked:
                asked -= jobs
                end = max(end, ended, each.after + self._speeds.render(each, server))
        return None if asked else end or None

    def _work(self, work: Work, server: str, jobs: int, *, is_load: bool, elapsed: float = 0.0) -> float:
        """Let a server work. Returns when it is free again."""
        load = self._speeds.load(work.model_set, server) if is_load else 0.0
        self._free_at[server] += max(0.0, jobs * self._speeds.render(work, server) + load - elapsed)
        return self._free_at[server]

    def _choose(self, server: str) -> int | None:
        """The group that a server goes on with. None if it can run no more of them."""
        waiting, loaded, now = self._backlog.waiting, self._sets[server], self._free_at[server]
        left = [index for index, jobs in enumerate(self._left) if jobs]
        able = [index for index in left if self._backlog.servers[server].can_run(waiting[index])]
        first = min((waiting[index].priority for index in able), default=0)
        heads = [self._head(index) for index in able if waiting[index].priority == first]
        job, since = self._overtaken.get(server, (None, now))
        stay = stay_for(self._stay_seconds, self._speeds.load(loaded, server))
        busy = {found for each, found in self._sets.items() if found and self._free_at.get(each, now) > now}
        choice = choose(heads, ServerSet(loaded, job, now - since), stay, lambda: busy)
        if choice is None:
            return None
        assert isinstance(choice, Choice)  # every load is taken to be worth it
        if choice.oldest not in (None, job):
            self._overtaken[server] = choice.oldest, now
        return int(choice.needs)

    def _head(self, index: int) -> Head:
        """The next job of a group, with the number of the group in place of its needs."""
        each, left = self._backlog.waiting[index], self._left[index]
        return Head(each.first + (each.last - each.first) * (each.jobs - left) // each.jobs, str(index), each.model_set)
