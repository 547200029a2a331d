"""Metrics for Prometheus: counters of events since the process began, and gauges read at each scrape."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from comfyui_agent import __version__
from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import printable, whole
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.overview import Gauges
from comfyui_agent.store.store import Store
from comfyui_agent.web.fleet_view import FleetView

log = logging.getLogger(__name__)

Values: TypeAlias = Mapping[tuple[str, ...], float]
"""The values of a gauge by its labels."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE = 1.0
BELIEVED_SECONDS = 30.0
"""How long the last reports of servers are used while new ones do not come."""
OTHER = "other"
MOST_WORKFLOWS = 100
MOST_SERVERS = 200
MOST_PAIRS = 100
"""Pairs of workflow and server. Each is a histogram, with a line per bucket at every scrape."""
LONGEST_LABEL = 120

DURATIONS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 300, 600, 1800, 3600)
WAITS = (0.1, 1, 5, 15, 45, 60, 120, 300, 900, 1800, 3600, 4 * 3600, 12 * 3600)
OUTCOMES = {EventName.JOB_DONE: "done", EventName.JOB_FAILED: "failed", EventName.JOB_CANCELLED: "cancelled"}
CLASSES = tuple(kind.value for kind in FailureClass if kind is not FailureClass.CANCELLED)
ROUTING = (
    ("e3_model_loads", "How often a server was given jobs of other models than before", "loads"),
    ("e3_routing_stays", "How often a server went on with its models while an older job waited", "stays"),
    ("e3_overtakes", "Jobs that a server was given ahead of an older one", "overtakes"),
)
ALERT = "alert."
ALERTS = tuple(name.value.removeprefix(ALERT) for name in EventName if name.value.startswith(ALERT))
SERVER_STATES = ("up", "down", "stuck", *(state.value for state in ServerState))
UNFINISHED = tuple(status.value for status in BatchStatus if not status.has_ended)

# Without a `_created` line for every series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Names:
    """Label values, limited in number and length. Values beyond the limit become `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, name: str | None) -> str:
        if not name:
            return OTHER
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = whole(printable(str(name)), LONGEST_LABEL)
        return self._known[name]


class EventCounters:
    """Counts events. Every foreseeable series starts at 0, so that its first event is an increase."""

    def __init__(self, registry: CollectorRegistry, servers: Names) -> None:
        self._servers = servers
        self._workflows = Names(MOST_WORKFLOWS)
        self._pairs: set[tuple[str, str]] = set()
        self.last_id: int | None = None

        def counter(name: str, help_text: str, label: str, values: Iterable[str]) -> Counter:
            made = Counter(name, help_text, [label], registry=registry)
            for value in values:
                made.labels(value)
            return made

        self._ended = counter("e3_jobs_ended", "Jobs that ended, by outcome", "outcome", OUTCOMES.values())
        self._failures = counter("e3_failures", "Jobs that failed, by class", "class", CLASSES)
        self._retries = counter("e3_retries", "Runs that failed and are repeated, by class", "class", CLASSES)
        self._alerts = counter("e3_alerts", "Alerts for a person to see", "alert", ALERTS)
        self._restarts = counter("e3_server_restarts", "Restarts of supervised ComfyUI processes", "server", ())
        lasts, labels = "Seconds of execution of jobs that are done", ["workflow", "server"]
        self._durations = Histogram("e3_job_duration_seconds", lasts, labels, buckets=DURATIONS, registry=registry)
        waits = "Seconds from the submission of a job to each of its starts"
        self._waits = Histogram("e3_job_wait_seconds", waits, ["workflow"], buckets=WAITS, registry=registry)

    def count(self, event: Event) -> None:
        """Count an event. Call it once for every event, in order. It never raises."""
        self.last_id = event.id
        if event.name in OUTCOMES:
            self._ended.labels(OUTCOMES[EventName(event.name)]).inc()
        if event.name == EventName.JOB_DONE:
            _observe(self._durations.labels(*self._pair(event)), event.duration_sec)
        elif event.name == EventName.JOB_STARTED:
            _observe(self._waits.labels(self._workflows.of(event.workflow_id)), event.wait_sec)
        elif event.name == EventName.JOB_FAILED:
            self._failures.labels(_known(event.failure_class, CLASSES)).inc()
        elif event.name == EventName.JOB_RETRY:
            self._retries.labels(_known(event.failure_class, CLASSES)).inc()
        elif event.name == EventName.SERVER_RESTARTED:
            self._restarts.labels(self._servers.of(event.server)).inc()
        elif event.name.startswith(ALERT):
            self._alerts.labels(_known(event.name.removeprefix(ALERT), ALERTS)).inc()

    def _pair(self, event: Event) -> tuple[str, str]:
        pair = self._workflows.of(event.workflow_id), self._servers.of(event.server)
        if pair not in self._pairs and len(self._pairs) >= MOST_PAIRS:
            return OTHER, OTHER
        self._pairs.add(pair)
        return pair


class Metrics(Collector):
    """Exports counters and gauges, even while the database cannot be read or a server hangs."""

    def __init__(self, store: Store, fleet: FleetView) -> None:
        self._store = store
        self._fleet = fleet
        self._registry = CollectorRegistry()
        self._servers = Names(MOST_SERVERS)
        self.counters = EventCounters(self._registry, self._servers)
        self._gauges: list[Metric] = []
        self._registry.register(self)
        self._look: asyncio.Task[None] | None = None
        self._reports: list[ServerReport] = []
        self._looked_at = -math.inf

    def collect(self) -> Iterable[Metric]:
        """The gauges of this scrape: a server that is gone leaves no series behind."""
        return self._gauges

    async def exposition(self) -> bytes:
        """All metrics in the text format of `CONTENT_TYPE`."""
        readings, reports, agents, processes = await asyncio.gather(
            self._read_database(), self.servers(PATIENCE), self._fleet.agents(), self._fleet.processes()
        )
        cards: Tally[tuple[str, ...]] = Tally()
        for each in processes.values():
            cards[each.state.card,] += each.pid is not None
        self._gauges = [
            _gauge("e3_build_info", "The version of E3 that answers", {(__version__,): 1}, "version"),
            _gauge("e3_agents", "Agents alive that work this workspace's queue off", {(): agents}),
            _gauge("e3_database_up", "Whether the database can be read", {(): readings is not None}),
            *(() if readings is None else self._of_database(readings)),
            *self._of_servers(reports),
            _gauge("e3_server_processes", "Supervised ComfyUI processes that run, by card", cards, "card"),
        ]
        return generate_latest(self._registry)

    async def servers(self, patience: float) -> list[ServerReport]:
        """The newest reports that arrive within `patience` seconds; while a server hangs, older ones."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_at_servers())
        await asyncio.wait({self._look}, timeout=patience)
        return self._reports if time.monotonic() - self._looked_at < BELIEVED_SECONDS else []

    async def _look_at_servers(self) -> None:
        try:
            self._reports = await self._fleet.reports()
            self._looked_at = time.monotonic()
        except Exception as error:
            is_known = isinstance(error, StoreError)
            log.warning("the servers are left out of the metrics: %s", error, exc_info=not is_known)

    async def _read_database(self) -> Gauges | None:
        try:
            return await asyncio.wait_for(self._store.run(ops.read_gauges), PATIENCE)
        except (asyncio.TimeoutError, StoreError) as error:
            log.warning("the database is left out of the metrics: %s", error or f"no answer within {PATIENCE:g} s")
        return None

    def _of_database(self, readings: Gauges) -> Iterator[Metric]:
        jobs: Values = {(status.value,): getattr(readings.counts, status.value) for status in JobStatus}
        batches: Values = {(status,): readings.unfinished_batches.get(status, 0) for status in UNFINISHED}
        if self.counters.last_id is None:
            self.counters.last_id = readings.newest_event
        behind = max(0, readings.newest_event - self.counters.last_id)
        age = max(0.0, readings.queue_age_seconds)
        yield _gauge("e3_jobs", "Jobs in the database, by state", jobs, "state")
        needy = "Failed jobs that were neither cancelled nor dismissed"
        yield _gauge("e3_jobs_needing_attention", needy, {(): readings.counts.attention})
        yield _gauge("e3_queue_age_seconds", "Age of the oldest job that waits and may run", {(): age})
        yield _gauge("e3_batches", "Batches that have not ended, by status", batches, "status")
        yield _gauge("e3_events_behind", "Events that are recorded and not yet counted here", {(): behind})

        for name, about, attribute in ROUTING:
            family = CounterMetricFamily(name, about, labels=["server"])
            for server, each in readings.sets.items():
                family.add_metric([self._servers.of(server)], getattr(each, attribute))
            yield family

    def _of_servers(self, reports: Sequence[ServerReport]) -> Iterator[GaugeMetricFamily]:
        states: Tally[tuple[str, ...]] = Tally()
        queues: Tally[tuple[str, ...]] = Tally()
        memory: Tally[tuple[str, ...]] = Tally()
        for report in reports:
            server = self._servers.of(report.url)
            states.update({(server, state): int(report.state == state) for state in SERVER_STATES})
            if report.stats is not None:
                queues.update({(server, "running"): report.running or 0, (server, "waiting"): report.pending or 0})
                memory[server,] += report.stats.free_memory
        yield _gauge("e3_server_state", "1 for the state that a server is in", states, "server", "state")
        yield _gauge("e3_server_queue", "Prompts at a server, whoever sent them", queues, "server", "kind")
        yield _gauge("e3_server_memory_free_bytes", "Free memory of a server's cards", memory, "server")


def _gauge(name: str, help_text: str, values: Values, *labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for value_of_labels, value in values.items():
        family.add_metric(value_of_labels, value)
    return family


def _known(value: str | None, known: Sequence[str]) -> str:
    return value if value is not None and value in known else OTHER


def _observe(histogram: Histogram, seconds: float | None) -> None:
    """Observe a duration. A clock that stepped back makes it negative, and a row edited by hand can hold anything."""
    if isinstance(seconds, (int, float)) and math.isfinite(seconds):
        histogram.observe(max(0.0, seconds))
