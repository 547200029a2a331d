"""When waiting jobs will be done: the queue is played through by the rule of routing, with measured seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from comfyui_agent.domain.needs import Timing
from comfyui_agent.domain.routing import Decline, Head, ServerSet, choose, stay_for

GROWTH = 200
"""Jobs are played one by one at first, later as many at a time as this part of those before them."""


@dataclass(frozen=True)
class Work:
    """What decides how long a job takes."""

    needs: str
    workflow: str
    pixels: int
    model_set: str


@dataclass(frozen=True)
class Waiting(Work):
    """Jobs of one priority with the same needs. Their ids are taken to be spread evenly."""

    priority: int
    jobs: int
    first: int
    last: int
    is_asked: bool = True
    after: float | None = None
    """Seconds until they may run. None if they may run now."""


@dataclass(frozen=True)
class Running(Work):
    """A prompt at a server. `elapsed`: seconds since the server could begin with it."""

    server: str
    is_load: bool
    elapsed: float
    is_asked: bool = True


@dataclass(frozen=True)
class WorkingServer:
    """A server at work: the models that it has loaded, its last job, and the oldest one that was overtaken there."""

    model_set: str | None = None
    last_job: int | None = None
    last_priority: int | None = None
    overtaken_job: int | None = None

    def can_run(self, group: _Group) -> bool:
        """It cannot if it was given a later job and overtook none of this age: then they were not for it."""
        is_passed = self.last_priority == group.priority and (self.last_job or 0) > group.oldest
        return not is_passed or (self.overtaken_job is not None and self.overtaken_job <= group.oldest)


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
    return _Schedule(backlog, stay_seconds).play(backlog.running)


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
    same_shape = (work.workflow, work.pixels, server)
    return (work.needs, server), same_shape, work.needs, ("workflow", work.workflow), ("models", work.model_set), "all"


def _load_likeness(model_set: str | None, server: str) -> tuple[Hashable, ...]:
    return ("load", model_set, server), ("load", model_set), "all loads"


class _Group:
    """Waiting jobs of one priority and model set."""

    def __init__(self, parts: Sequence[Waiting]) -> None:
        self.parts, self.model_set, self.is_asked = parts, parts[0].model_set, parts[0].is_asked
        self.priority, self.first = parts[0].priority, min(each.first for each in parts)
        self.jobs = self.left = sum(each.jobs for each in parts)
        self.oldest = min((each.first for each in parts if each.after is None), default=math.inf)
        self._range = max(each.last for each in parts) - self.first

    def head(self) -> Head:
        """The next job."""
        return Head(self.first + self._range * (self.jobs - self.left) // self.jobs, "", self.model_set)


class _Schedule:
    """Gives each server that becomes free its next jobs, until all that is asked for has ended."""

    def __init__(self, backlog: Backlog, stay_seconds: float) -> None:
        self._servers, self._stay_seconds, self._speeds = backlog.servers, stay_seconds, Speeds(backlog.timings)
        parts: dict[Hashable, list[Waiting]] = defaultdict(list)
        last = max((each.last for each in backlog.waiting if each.is_asked), default=0)
        for each in backlog.waiting:
            parts[each.priority, each.model_set, each.is_asked, each.first > last].append(each)
        self._groups = [_Group(each) for each in parts.values()]
        self._sets = {name: server.model_set for name, server in backlog.servers.items()}
        self._free_at: dict[str, float] = defaultdict(float)
        self._overtaken: dict[str, tuple[int, float]] = {}
        self._seconds: dict[Hashable, float] = {}

    def play(self, running: Sequence[Running]) -> float | None:
        asked_parts = [each for group in self._groups for each in group.parts if each.is_asked]
        played, end = 0, max((each.after or 0.0 for each in asked_parts), default=0.0)
        for run in running:
            load = self._speeds.load(run.model_set, run.server) if run.is_load else 0.0
            self._free_at[run.server] += max(0.0, self._speeds.render(run, run.server) + load - run.elapsed)
            end = max(end, self._free_at[run.server]) if run.is_asked else end
        self._free_at = {name: self._free_at[name] for name in self._servers}
        asked = sum(each.jobs for each in asked_parts)
        while asked and self._free_at:
            server = min(self._free_at, key=self._free_at.__getitem__)
            group = self._choose(server)
            if group is None:
                del self._free_at[server]
                continue
            jobs = min(group.left, 1 + played // GROWTH)
            group.left -= jobs
            played += jobs
            self._work(group, server, jobs)
            if group.is_asked:
                asked -= jobs
                end = max(end, self._free_at[server])
        return None if asked else end or None

    def _work(self, group: _Group, server: str, jobs: int) -> None:
        if (group, server) not in self._seconds:
            total = sum(each.jobs * self._speeds.render(each, server) for each in group.parts)
            self._seconds[group, server] = total / group.jobs
        self._free_at[server] += jobs * self._seconds[group, server]
        if group.model_set != self._sets[server]:
            self._free_at[server] += self._speeds.load(group.model_set, server)
            self._sets[server] = group.model_set

    def _choose(self, server: str) -> _Group | None:
        """What a server goes on with. None if it can run nothing more."""
        loaded, now = self._sets[server], self._free_at[server]
        able = [group for group in self._groups if group.left and self._servers[server].can_run(group)]
        first = min((group.priority for group in able), default=0)
        heads = {group.head(): group for group in able if group.priority == first}
        job, since = self._overtaken.get(server, (None, now))
        stay = stay_for(self._stay_seconds, self._speeds.load(loaded, server))
        busy = {found for each, found in self._sets.items() if found and self._free_at.get(each, now) > now}
        choice = choose(list(heads), ServerSet(loaded), stay, lambda: busy)
        if choice is None or isinstance(choice, Decline):
            return None
        if choice.oldest not in (None, job):
            self._overtaken[server] = choice.oldest, now
        chosen = min((head for head in heads if head.model_set == choice.model_set), key=lambda head: head.job_id)
        return heads[chosen]
