"""What each server can run, and what it gets next: nodes, models and memory, and the models that it has loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

from comfyui_agent.clock import Clock
from comfyui_agent.domain.needs import ANYTHING, Needs, Timing, load_times, missing_everywhere
from comfyui_agent.domain.routing import Decline, Head, Routed, choose, stay_for
from comfyui_agent.fleet.server import FleetServer, Health
from comfyui_agent.store.leases import Queue

LOADS_SAVED = 2
"""Loading must save so many loads: this one, and one to undo it."""
MOST_COUNTED = 1000
Count = Callable[[str, int], int]
"""How many jobs wait with certain needs, counted up to a number."""


class RoutedFleet(Protocol):
    @property
    def servers(self) -> Mapping[str, FleetServer]: ...


class Routing:
    """Knows the needs of waiting jobs and what servers have. What it does not know yet is in `unknown`."""

    def __init__(self, fleet: RoutedFleet, clock: Clock, stay_seconds: float, failover_seconds: float) -> None:
        self._fleet = fleet
        self._clock = clock
        self._stay_seconds = stay_seconds
        self._failover_seconds = failover_seconds
        self._known: dict[str, Needs] = {}
        self._lacks: dict[tuple[str, str], tuple[tuple[int, int | None, int | None], tuple[str, ...]]] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self._load_seconds: dict[tuple[str, str], float] = {}
        self.unknown: set[str] = set()
        """Keys of needs that have to be looked up."""
        self.unknowable = {ANYTHING}
        """Keys of needs that nobody can know: any server may have them."""
        self.unread: set[Any] = set()
        """Priorities that have jobs whose needs nobody has read yet."""
        self.unlearned: dict[str, set[str]] = {}
        """Node classes that have to be asked for, by server."""

    def know(self, found: Iterable[Needs]) -> None:
        self._known |= {each.key: each for each in found}

    def find(self, key: str | None) -> Needs | None:
        return self._known.get(key) if key else None

    def know_timings(self, timings: Sequence[Timing]) -> None:
        """Take measured seconds over."""
        self._seconds |= {(each.needs, each.server): each.seconds for each in timings if each.seconds is not None}
        self._load_seconds = load_times(timings)

    def stay_seconds(self, server: FleetServer, model_set: str | None) -> float:
        return stay_for(self._stay_seconds, self._load_seconds.get((model_set or "", server.name)))

    def fits(self, server: FleetServer, key: str) -> bool | None:
        """Whether a server may have jobs with these needs. None as long as that is not known.

        What every server lacks is given to any: what it says about the prompt is the truth.
        """
        if key in self.unknowable:
            return True
        known = self._known.get(key)
        if known is None:
            self.unknown.add(key)
            return None
        lacks = self.lacks(server, known)
        if lacks is None:
            wanted = self.unlearned.setdefault(server.name, set())
            wanted.update(name for name in known.classes if not server.client.definitions.knows(name))
            return None
        others = (each for each in self._configured() if each is not server)
        return not lacks or not any(self._may_have(each, known) for each in others)

    def lacks(self, server: FleetServer, needs: Needs) -> tuple[str, ...] | None:
        """What a server lacks for a job, in words. None if the server was not asked yet."""
        definitions = server.client.definitions
        if self._clock.now() < server.unreadable_until:
            return ()
        if not all(definitions.knows(name) for name in needs.classes):
            return None
        state = definitions.version, server.capacity, needs.memory_over
        cached = self._lacks.get((server.name, needs.key))
        if cached is None or cached[0] != state:
            offered = {name: facts.choices for name in needs.classes if (facts := definitions.facts(name))}
            cached = self._lacks[server.name, needs.key] = state, needs.lacks(offered, server.capacity)
        return cached[1]

    def where_it_was_looked_for(self, key: str | None) -> str:
        """What all servers lack for a job, and where that was looked for. Empty if one has it, or nobody knows."""
        known = self.find(key)
        if known is None:
            return ""
        return missing_everywhere({each.name: self.lacks(each, known) or () for each in self._configured()})

    def is_worth_loading(
        self, server: FleetServer, heads: Sequence[Head], busy: Sequence[str], count: Count
    ) -> bool | None:
        """Whether loading a model set here, too, saves the time of two loads. None if nothing was measured yet.

        `heads` are those of the set, `busy` the other servers that work on it.
        """
        load = _near(self._load_seconds, heads[0].model_set, server.name)
        seconds = _near(self._seconds, heads[0].needs, server.name)
        if load is None or not seconds:
            return None
        waiting = sum(count(head.needs, MOST_COUNTED) for head in heads)
        paces = [1 / pace for name in busy if (pace := _near(self._seconds, heads[0].needs, name))]
        if not paces:
            return waiting * seconds > LOADS_SAVED * load
        alone, together = sum(paces), sum(paces) + 1 / seconds
        return waiting / alone - (load + max(0.0, waiting - alone * load) / together) > LOADS_SAVED * load

    def bigger_servers(self, needs: Needs) -> list[FleetServer]:
        """Servers that have all that is needed, and more memory than was too little."""
        return [each for each in self.employed() if self._may_have(each, needs) and not needs.exceeds(each.capacity)]

    def _configured(self) -> list[FleetServer]:
        """All servers but those that are gone for good. What is paused may be resumed: jobs wait for it."""
        return [each for each in self._fleet.servers.values() if not each.is_retired]

    def employed(self) -> list[FleetServer]:
        return [each for each in self._fleet.servers.values() if each.is_employed]

    def _may_have(self, server: FleetServer, needs: Needs) -> bool:
        """Whether a job may wait for this server. One that has been away for long is not waited for."""
        if server.health is Health.UNKNOWN:
            return True
        if server.seconds_down() > self._failover_seconds:
            return False
        lacks = self.lacks(server, needs)
        return server.answers if lacks is None else not lacks


@dataclass(frozen=True)
class ServerRoute:
    """Chooses what one server is given next. `is_part`: nobody reads the needs of rows that were made by hand."""

    routing: Routing
    server: FleetServer
    is_part: bool = False

    def choose(self, priority: Any, waiting: Sequence[Head], loaded: str | None, queue: Queue) -> Routed:
        heads, is_unknown = [], False
        for head in waiting:
            fits: bool | None = True
            if head.needs:
                fits = self.routing.fits(self.server, head.needs)
            elif not self.is_part:
                self.routing.unread.add(priority)
                fits = None
            if fits:
                known = self.routing.find(head.needs)
                heads.append(replace(head, model_set=known.model_set if known else head.needs))
            is_unknown = is_unknown or fits is None
        if not heads and is_unknown:
            return Decline(None)
        elsewhere = cache(queue.sets_elsewhere)

        def is_worth_loading(head: Head) -> bool | None:
            same_set = [each for each in heads if each.model_set == head.model_set]
            others = [server for server, model_set in elsewhere().items() if model_set == head.model_set]
            return self.routing.is_worth_loading(self.server, same_set, others, partial(queue.count, priority))

        stay_seconds = self.routing.stay_seconds(self.server, loaded)
        return choose(heads, loaded, stay_seconds, lambda: elsewhere().values(), is_worth_loading)


def _near(measured: Mapping[tuple[str, str], float], key: str, server: str) -> float | None:
    """What was measured at a server, or else the mean of the others."""
    if (key, server) in measured:
        return measured[key, server]
    others = [seconds for (what, _), seconds in measured.items() if what == key]
    return sum(others) / len(others) if others else None
