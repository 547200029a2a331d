"""What Prometheus is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from comfyui_agent import __version__
from comfyui_agent.comfy.answers import Device, SystemStats
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.server_states import ServerState
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.store.overview import Gauges
from comfyui_agent.store.records import Counts, Window
from comfyui_agent.web import metrics as module
from comfyui_agent.web.metrics import Metrics
from support.stores import ScriptedStore

GIGABYTE = 1024**3
FIRST, SECOND = "http://gpu1:8188", "http://gpu2:8188"


def figures(counts: Counts | None = None, age: float = 0.0, newest: int = 0, **batches: int) -> Gauges:
    return Gauges(counts or Counts(), age, batches, newest)


@dataclass
class Memory(ScriptedStore):
    """A store that says what it is told to say; `silence` keeps it from answering."""

    figures: Gauges = field(default_factory=figures)
    error: Exception | None = None
    silence: asyncio.Event | None = None

    async def read_gauges(self) -> Gauges:
        if self.silence is not None:
            await self.silence.wait()
        if self.error is not None:
            raise self.error
        return self.figures


@dataclass
class Fleet:
    """Servers as they are told to be; `silence` keeps them from answering."""

    servers: list[ServerReport] = field(default_factory=list)
    living: int = 1
    silence: asyncio.Event | None = None
    error: Exception | None = None

    async def reports(self) -> list[ServerReport]:
        if self.silence is not None:
            await self.silence.wait()
        if self.error is not None:
            raise self.error
        return self.servers

    async def processes(self) -> dict[str, Any]:
        return {}

    async def agents(self) -> int:
        return self.living


def server(
    url: str, *, free: int = GIGABYTE, running: int = 0, waiting: int = 0, state: ServerState | None = None
) -> ServerReport:
    device = Device("a card", "cuda", 2 * free, free)
    stats = SystemStats("0.7.0", "3.12", "2.8", "posix", 0, 0, (device,))
    return ServerReport(url.partition("://")[2], url, stats, running, waiting, out_of_work=state)


def gone(url: str) -> ServerReport:
    return ServerReport(url.partition("://")[2], url, error="it does not answer")


def done(workflow: str | None, where: str | None, seconds: Any = 1.0, number: int = 0) -> Event:
    return Event(EventName.JOB_DONE, id=number, job_id=1, workflow_id=workflow, server=where, duration_sec=seconds)


class Read:
    """An exposition, parsed as Prometheus would."""

    def __init__(self, text: bytes) -> None:
        self.text = text.decode()
        self.families = {family.name: family for family in text_string_to_metric_families(self.text)}
        listed = [
            (sample.name, frozenset(sample.labels.items()), sample.value)
            for family in self.families.values()
            for sample in family.samples
        ]
        self.samples = {(name, labels): value for name, labels, value in listed}
        assert len(self.samples) == len(listed), "a series is there twice"

    def of(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def values(self, name: str, label: str) -> set[str]:
        return {dict(labels)[label] for found, labels in self.samples if found == name}

    def total(self, name: str) -> float:
        return sum(value for (found, _), value in self.samples.items() if found == name)


async def scrape(metrics: Metrics) -> Read:
    return Read(await metrics.exposition())


@contextmanager
def quick(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def test_the_gauges_are_what_the_store_says_at_the_moment_of_the_scrape() -> None:
    memory = Memory(figures(Counts(5, 2, 1_000_000, 3), 12.5, active=2, collecting=1))
    metrics = Metrics(memory, Fleet(living=2))
    read = await scrape(metrics)
    states = {state: read.of("e3_jobs", state=state) for state in ("pending", "processing", "done", "failed")}
    assert states == {"pending": 5, "processing": 2, "done": 1_000_000, "failed": 3}
    statuses = {status: read.of("e3_batches", status=status) for status in ("pending", "active", "collecting")}
    assert statuses == {"pending": 0, "active": 2, "collecting": 1}
    assert read.of("e3_queue_age_seconds") == 12.5
    assert (read.of("e3_agents"), read.of("e3_database_up")) == (2, 1)
    assert read.of("e3_build_info", version=__version__) == 1
    memory.figures = figures(Counts(pending=4))
    assert (await scrape(metrics)).of("e3_jobs", state="pending") == 4


async def test_every_end_is_counted_once_by_its_outcome() -> None:
    metrics = Metrics(Memory(), Fleet())
    for name in [EventName.JOB_DONE] * 3 + [EventName.JOB_FAILED] * 2 + [EventName.JOB_CANCELLED]:
        metrics.counters.count(Event(name, failure_class="oom" if name is EventName.JOB_FAILED else None))
    for name in (EventName.BOOK_PAGE_FAILED, EventName.BOOK_PAGE_RETRY):
        metrics.counters.count(Event(name, failure_class="oom"))
    read = await scrape(metrics)
    ended = [read.of("e3_jobs_ended_total", outcome=outcome) for outcome in ("done", "failed", "cancelled")]
    assert ended == [3, 2, 1]
    assert read.total("e3_failures_total") == 2
    assert read.total("e3_retries_total") == 0


async def test_failures_and_retries_are_told_apart_by_class() -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(Event(EventName.JOB_FAILED, failure_class="oom"))
    metrics.counters.count(Event(EventName.JOB_RETRY, failure_class="timeout"))
    metrics.counters.count(Event(EventName.JOB_RETRY, failure_class="written by hand"))
    metrics.counters.count(Event(EventName.JOB_FAILED))
    read = await scrape(metrics)
    assert read.of("e3_failures_total", **{"class": "oom"}) == 1
    assert read.of("e3_failures_total", **{"class": "timeout"}) == 0
    assert read.of("e3_failures_total", **{"class": "other"}) == 1
    assert read.of("e3_retries_total", **{"class": "timeout"}) == 1
    assert read.of("e3_retries_total", **{"class": "other"}) == 1


async def test_what_can_be_foreseen_begins_at_nothing_so_that_the_first_one_is_an_increase() -> None:
    read = await scrape(Metrics(Memory(), Fleet()))
    classes = {str(kind) for kind in FailureClass} - {"cancelled"}
    assert read.values("e3_failures_total", "class") == read.values("e3_retries_total", "class") == classes
    alerts = {str(name).partition(".")[2] for name in EventName if str(name).startswith("alert.")}
    assert read.values("e3_alerts_total", "alert") == alerts
    assert read.values("e3_jobs_ended_total", "outcome") == {"done", "failed", "cancelled"}
    assert read.total("e3_alerts_total") == read.total("e3_failures_total") == 0


async def test_alerts_are_counted_by_kind() -> None:
    metrics = Metrics(Memory(), Fleet())
    for name in (EventName.ALERT_POISON, EventName.ALERT_DISK, EventName.ALERT_DISK, "alert.of_tomorrow"):
        metrics.counters.count(Event(name))
    read = await scrape(metrics)
    assert [read.of("e3_alerts_total", alert=kind) for kind in ("poison", "disk", "other", "grid")] == [1, 2, 1, 0]


async def test_durations_are_told_apart_by_workflow_and_server() -> None:
    metrics = Metrics(Memory(), Fleet())
    for workflow, where, seconds in [("portrait", FIRST, 44.9), ("portrait", FIRST, 45.1), ("film", SECOND, 4000.0)]:
        metrics.counters.count(done(workflow, where, seconds))
    read = await scrape(metrics)
    slow = {"workflow": "portrait", "server": FIRST}
    assert read.of("e3_job_duration_seconds_bucket", le="45.0", **slow) == 1
    assert read.of("e3_job_duration_seconds_bucket", le="60.0", **slow) == 2
    assert read.of("e3_job_duration_seconds_sum", **slow) == pytest.approx(90.0)
    film = {"workflow": "film", "server": SECOND}
    assert read.of("e3_job_duration_seconds_bucket", le="3600.0", **film) == 0
    assert read.of("e3_job_duration_seconds_count", **film) == 1
    edges = sorted(float(edge) for edge in read.values("e3_job_duration_seconds_bucket", "le"))
    assert (edges[0], edges[-2], edges[-1]) == (0.1, 3600, float("inf"))


async def test_waiting_is_told_apart_by_workflow() -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(Event(EventName.JOB_STARTED, workflow_id="portrait", server=FIRST, wait_sec=20.0))
    read = await scrape(metrics)
    assert read.of("e3_job_wait_seconds_bucket", workflow="portrait", le="15.0") == 0
    assert read.of("e3_job_wait_seconds_bucket", workflow="portrait", le="45.0") == 1
    assert read.of("e3_job_wait_seconds_count", workflow="portrait") == 1


@pytest.mark.parametrize("seconds", [None, float("nan"), float("inf"), "soon"])
async def test_a_time_that_is_none_is_not_measured_and_the_end_still_counts(seconds: Any) -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(done("portrait", FIRST, seconds))
    metrics.counters.count(Event(EventName.JOB_STARTED, workflow_id="portrait", wait_sec=seconds))
    read = await scrape(metrics)
    assert read.total("e3_job_duration_seconds_count") == read.total("e3_job_wait_seconds_count") == 0
    assert read.of("e3_jobs_ended_total", outcome="done") == 1


async def test_a_clock_that_stepped_back_does_not_make_a_sum_smaller() -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(done("portrait", FIRST, -5.0))
    read = await scrape(metrics)
    assert read.of("e3_job_duration_seconds_sum", workflow="portrait", server=FIRST) == 0
    assert read.of("e3_job_duration_seconds_count", workflow="portrait", server=FIRST) == 1


async def test_labels_stay_few_however_many_workflows_and_servers_there_are() -> None:
    metrics = Metrics(Memory(), Fleet())
    for number in range(300):
        metrics.counters.count(done(f"workflow {number}", f"http://gpu{number}:8188"))
        metrics.counters.count(Event(EventName.JOB_STARTED, workflow_id=f"workflow {number}", wait_sec=1.0))
    read = await scrape(metrics)
    waiting = read.values("e3_job_wait_seconds_count", "workflow")
    assert len(waiting) == 101
    assert {"workflow 0", "workflow 99", "other"} <= waiting
    assert read.of("e3_job_wait_seconds_count", workflow="other") == 200
    assert len([name for name, _ in read.samples if name == "e3_job_duration_seconds_count"]) <= 101
    assert read.of("e3_job_duration_seconds_count", workflow="other", server="other") == 200
    assert read.total("e3_job_duration_seconds_count") == 300


async def test_what_has_no_name_is_other() -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(done(None, None))
    assert (await scrape(metrics)).of("e3_job_duration_seconds_count", workflow="other", server="other") == 1


@pytest.mark.parametrize("name", ['with "quotes"', "C:\\new", "two\nlines", "Pferd 🐎", "a}b{c=,d"])
async def test_a_label_says_what_the_workflow_is_called(name: str) -> None:
    metrics = Metrics(Memory(), Fleet())
    metrics.counters.count(done(name, FIRST))
    assert (await scrape(metrics)).values("e3_job_duration_seconds_count", "workflow") == {name}


async def test_a_label_is_never_unwritable_or_endless() -> None:
    metrics = Metrics(Memory(), Fleet())
    for name in ("half \ud800", "bell \a", "x" * 10_000):
        metrics.counters.count(done(name, FIRST))
    found = (await scrape(metrics)).values("e3_job_duration_seconds_count", "workflow")
    assert {"half \\xd800", "bell \\x07"} < found
    assert max(len(name) for name in found) == 120


async def test_a_server_has_one_state_and_says_0_for_the_others() -> None:
    fleet = Fleet([server(FIRST), gone(SECOND), server("http://gpu3:8188", state=ServerState.DRAINING)])
    read = await scrape(Metrics(Memory(), fleet))
    states = ("up", "down", "paused", "draining", "drained")
    assert [read.of("e3_server_state", server=FIRST, state=state) for state in states] == [1, 0, 0, 0, 0]
    assert [read.of("e3_server_state", server=SECOND, state=state) for state in states] == [0, 1, 0, 0, 0]
    assert [read.of("e3_server_state", server="http://gpu3:8188", state=state) for state in states] == [0, 0, 0, 1, 0]


async def test_a_server_tells_its_queue_and_its_free_memory_while_it_answers() -> None:
    fleet = Fleet([server(FIRST, free=7 * GIGABYTE, running=1, waiting=4), gone(SECOND)])
    read = await scrape(Metrics(Memory(), fleet))
    assert [read.of("e3_server_queue", server=FIRST, kind=kind) for kind in ("running", "waiting")] == [1, 4]
    assert read.of("e3_server_memory_free_bytes", server=FIRST) == 7 * GIGABYTE
    assert read.values("e3_server_queue", "server") == read.values("e3_server_memory_free_bytes", "server") == {FIRST}


async def test_a_server_that_is_no_longer_there_leaves_nothing_behind() -> None:
    fleet = Fleet([server(FIRST), server(SECOND)])
    metrics = Metrics(Memory(), fleet)
    await scrape(metrics)
    fleet.servers = [server(FIRST)]
    assert (await scrape(metrics)).values("e3_server_state", "server") == {FIRST}


async def test_servers_beyond_the_limit_are_summed_up() -> None:
    many = [server(f"http://gpu{number}:8188", free=GIGABYTE, waiting=2) for number in range(230)]
    read = await scrape(Metrics(Memory(), Fleet(many)))
    assert len(read.values("e3_server_state", "server")) == 201
    assert read.of("e3_server_state", server="other", state="up") == 30
    assert read.of("e3_server_queue", server="other", kind="waiting") == 60
    assert read.of("e3_server_memory_free_bytes", server="other") == 30 * GIGABYTE


async def test_while_a_server_hangs_the_last_reports_stand_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    fleet = Fleet([server(FIRST)])
    metrics = Metrics(Memory(figures(Counts(pending=1))), fleet)
    await scrape(metrics)
    fleet.silence = asyncio.Event()
    with quick(1.0):
        read = await scrape(metrics)
    assert read.of("e3_server_state", server=FIRST, state="up") == 1
    assert read.of("e3_jobs", state="pending") == 1
    monkeypatch.setattr(module, "BELIEVED_SECONDS", 0.0)
    assert (await scrape(metrics)).values("e3_server_state", "server") == set()
    monkeypatch.undo()
    fleet.servers = [gone(FIRST)]
    fleet.silence.set()
    assert (await scrape(metrics)).of("e3_server_state", server=FIRST, state="down") == 1


async def test_hanging_servers_are_asked_once_not_at_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    fleet = Fleet(silence=asyncio.Event())
    asked = 0
    answer = fleet.reports

    async def reports() -> list[ServerReport]:
        nonlocal asked
        asked += 1
        return await answer()

    monkeypatch.setattr(fleet, "reports", reports)
    metrics = Metrics(Memory(), fleet)
    for _ in range(4):
        await scrape(metrics)
    assert asked == 1


@pytest.mark.parametrize("error", [DatabaseAway("no room"), ValueError("whatever a server sends")])
async def test_servers_that_cannot_be_looked_at_are_left_out_and_the_log_says_why(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    read = await scrape(Metrics(Memory(figures(Counts(done=7))), Fleet(error=error)))
    assert read.of("e3_jobs", state="done") == 7
    assert str(error) in caplog.text
    assert "never retrieved" not in caplog.text


async def test_without_a_database_the_rest_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(error=DatabaseAway("the disk is gone"))
    metrics = Metrics(memory, Fleet([server(FIRST)]))
    metrics.counters.count(done("portrait", FIRST))
    read = await scrape(metrics)
    assert read.of("e3_database_up") == 0
    assert read.values("e3_jobs", "state") == set()
    assert read.of("e3_jobs_ended_total", outcome="done") == 1
    assert read.of("e3_server_state", server=FIRST, state="up") == 1
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    memory.error, memory.silence = None, asyncio.Event()
    with quick(1.0):
        assert (await scrape(metrics)).of("e3_database_up") == 0
    memory.silence.set()
    assert (await scrape(metrics)).of("e3_database_up") == 1


async def test_how_far_the_counters_are_behind_is_reported() -> None:
    memory = Memory(figures(newest=100))
    metrics = Metrics(memory, Fleet())
    assert (await scrape(metrics)).of("e3_events_behind") == 0, "what was before this process is not waited for"
    memory.figures = figures(newest=107)
    assert (await scrape(metrics)).of("e3_events_behind") == 7
    metrics.counters.count(done("portrait", FIRST, number=105))
    assert (await scrape(metrics)).of("e3_events_behind") == 2
    memory.figures = figures(newest=3)
    assert (await scrape(metrics)).of("e3_events_behind") == 0, "another database, or an older copy of it"


async def test_the_text_is_the_classic_one() -> None:
    metrics = Metrics(Memory(), Fleet([server(FIRST)]))
    metrics.counters.count(done("portrait", FIRST))
    read = await scrape(metrics)
    assert module.CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert "_created" not in read.text
    assert "# EOF" not in read.text
    assert all(family.documentation and name.startswith("e3_") for name, family in read.families.items())


async def test_two_processes_count_apart() -> None:
    first, second = Metrics(Memory(), Fleet()), Metrics(Memory(), Fleet())
    first.counters.count(done("portrait", FIRST))
    assert (await scrape(second)).of("e3_jobs_ended_total", outcome="done") == 0


async def test_with_a_real_database_it_tells_the_story_of_a_job(tmp_path: Path) -> None:
    store = open_store(tmp_path / "jobs.db")
    try:
        metrics = Metrics(store, Fleet())
        jobs = [NewJob(name, "T2I", "portrait") for name in ("one.yaml", "two.yaml")]
        await store.run(ops.submit_jobs, jobs)
        assert (await scrape(metrics)).of("e3_jobs", state="pending") == 2
        [leased] = await store.run(ops.lease_jobs, "agent", Window(FIRST, 1), [mint_prompt_id()], 30.0)
        await store.run(ops.complete_job, leased.lease, ["one.png"], 3.0)
        for event in await store.run(ops.events_after, 0):
            metrics.counters.count(event)
        read = await scrape(metrics)
    finally:
        await store.close()
    assert [read.of("e3_jobs", state=state) for state in ("pending", "processing", "done")] == [1, 0, 1]
    assert 0 < (read.of("e3_queue_age_seconds") or 0) < 60
    assert read.of("e3_job_duration_seconds_sum", workflow="portrait", server=FIRST) == 3.0
    assert read.of("e3_job_wait_seconds_count", workflow="portrait") == 1
    assert read.of("e3_events_behind") == 0
