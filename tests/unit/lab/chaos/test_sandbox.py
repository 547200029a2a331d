"""What the one who watches sees: moments in order, whatever they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.chaos.plan import ChaosPlan
from comfyui_agent.lab.chaos.sandbox import Sandbox
from comfyui_agent.lab.payloads import Payload
from comfyui_agent.lab.reports.chaos import PageCounts
from comfyui_agent.lab.reports.fields import as_moment
from support.stores import ScriptedStore


def job(number: int, **facts: Any) -> Job:
    blank: dict[str, Any] = {field.name: None for field in dataclasses.fields(Job)}
    return Job(**{**blank, "id": JobId(number), "status": JobStatus.DONE, "run_count": 1, **facts})


class Remembered(ScriptedStore):
    """A store that holds these jobs and events."""

    def __init__(self, jobs: list[Job], events: list[Event]) -> None:
        self._jobs, self._events = jobs, events

    async def list_jobs(self, **_: Any) -> list[Job]:
        return self._jobs

    async def events_after(self, event_id: int) -> list[Event]:
        return [event for event in self._events if event.id > event_id][:2]


def sandbox_of(jobs: list[Job], events: list[Event]) -> Sandbox:
    server, proxy = SimpleNamespace(url="http://127.0.0.1:8188"), SimpleNamespace(port=9)
    plan = ChaosPlan(Payload.of("page", {}))
    store = Remembered(jobs, events)
    return Sandbox(plan, Path(), *cast("tuple[Any, Any, Any]", (server, proxy, store)))


def event(number: int, name: EventName, second: str, job_id: int | None = None) -> Event:
    return Event(name, timestamp=f"2026-11-15 12:00:{second}", id=number, job_id=job_id)


async def test_pages_are_reported_in_the_order_in_which_they_were_done() -> None:
    events = [event(1, EventName.JOB_DONE, "02.000", 7), event(2, EventName.JOB_DONE, "01.500", 3)]
    finished = await sandbox_of([job(3), job(5), job(7)], events).finished()
    assert [found.id for _, found in finished] == [3, 7]


async def test_two_pages_may_be_done_in_the_same_millisecond() -> None:
    events = [event(1, EventName.JOB_DONE, "02.000", 3), event(2, EventName.JOB_DONE, "02.000", 5)]
    finished = await sandbox_of([job(3), job(5)], events).finished()
    assert [found.id for _, found in finished] == [3, 5]


async def test_the_first_event_after_a_moment_is_found_beyond_the_first_page_of_events() -> None:
    events = [event(number, EventName.JOB_STARTED, f"0{number}.000") for number in range(1, 6)]
    events += [event(6, EventName.ALERT_SERVER, "06.000"), event(7, EventName.ALERT_SERVER, "07.000")]
    sandbox = sandbox_of([], events)
    after = as_moment("2026-11-15 12:00:06.500")
    assert after is not None
    assert await sandbox.first(0.0, EventName.ALERT_SERVER) == as_moment("2026-11-15 12:00:06.000")
    assert await sandbox.first(after, EventName.ALERT_SERVER) == as_moment("2026-11-15 12:00:07.000")
    assert await sandbox.first(after, EventName.JOB_FAILED) is None


async def test_pages_are_counted_by_how_they_ended() -> None:
    states = [JobStatus.DONE, JobStatus.DONE, JobStatus.FAILED, JobStatus.PENDING]
    jobs = [job(number, status=status) for number, status in enumerate(states)]
    assert await sandbox_of(jobs, []).counts() == PageCounts(total=4, done=2, failed=1)
