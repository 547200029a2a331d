"""When waiting jobs will be done: servers work off jobs of equal needs one after the other, by measured seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.domain.routing import stay_for

Kind = tuple[int, str, bool]
LEAST_JOBS = 1e-6


@dataclass(frozen=True)
class Work:
    """Jobs of one kind, and the seconds that one takes at a server that can run them; no server: none can.

    Jobs that run count half. Nobody asks when later ones are done, but they may overtake the others.
    """

    priority: int
    needs: str
    model_set: str
    is_later: bool
    jobs: float
    server: str
    loaded: str | None
    seconds: float
    load_seconds: float

    @property
    def kind(self) -> Kind:
        return self.priority, self.needs, self.is_later


class Schedule:
    """Gives each server the jobs that it has models for, else those of which there is most for each server."""

    def __init__(self, work: Sequence[Work], stay_seconds: float) -> None:
        self._work, self._stay_seconds = work, stay_seconds
        self._left = {each.kind: each.jobs for each in work}
        self._loaded = {each.server: each.loaded for each in work if each.server}
        self._loading: dict[str, float] = {}

    def seconds(self) -> float | None:
        """Until all that is asked for is done. None if nothing is asked for, or no server can do it."""
        passed, taken = 0.0, dict[str, Work]()
        while any(not is_later for _, _, is_later in self._left):
            taken = {server: work for server, work in taken.items() if work.kind in self._left}
            for server in [each for each in self._loaded if each not in taken]:
                able = [each for each in self._work if each.server == server and each.kind in self._left]
                if able:
                    taken[server] = self._take(able)
            rates: dict[Kind, float] = defaultdict(float)
            for server in taken.keys() - self._loading.keys():
                rates[taken[server].kind] += 1 / taken[server].seconds
            steps = [self._left[kind] / rate for kind, rate in rates.items()] + list(self._loading.values())
            if not steps:
                return None
            step = min(steps)
            passed += step
            self._loading = {server: load - step for server, load in self._loading.items() if load > step}
            for kind, rate in rates.items():
                self._left[kind] -= step * rate
                if self._left[kind] < LEAST_JOBS:
                    del self._left[kind]
        return passed or None

    def _take(self, able: Sequence[Work]) -> Work:
        """What a server does next, after it has loaded the models."""
        work = min(able, key=self._rank)
        if work.is_later:
            most = stay_for(self._stay_seconds, work.load_seconds) / work.seconds
            self._left[work.kind] = min(self._left[work.kind], most)
        if work.model_set != self._loaded[work.server]:
            self._loaded[work.server], self._loading[work.server] = work.model_set, work.load_seconds
        return work

    def _rank(self, work: Work) -> tuple[int, bool, bool, float]:
        servers = 1 + list(self._loaded.values()).count(work.model_set)
        is_load = work.model_set != self._loaded[work.server]
        return work.priority, is_load, work.is_later, -self._left[work.kind] * work.seconds / servers
