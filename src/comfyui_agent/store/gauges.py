"""A few figures for metrics. None of them counts over all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from comfyui_agent.store.event_log import newest_event
from comfyui_agent.store.job_queries import count_jobs
from comfyui_agent.store.operation import query
from comfyui_agent.store.overview import PRIORITIES_LOOKED_AT
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Counts


@dataclass(frozen=True)
class Gauges:
    """Figures of one moment."""

    counts: Counts
    queue_age_seconds: float
    """The longest wait of a job that may run, 0 if there is none."""
    unfinished_batches: Mapping[str, int]
    """How many there are, by status."""
    newest_event: int


@query
def read_gauges(session: Session) -> Gauges:
    waiting = session.one("longest_waiting", most=PRIORITIES_LOOKED_AT)
    seconds = waiting["seconds"] if waiting is not None else None
    return Gauges(
        counts=count_jobs(session),
        queue_age_seconds=max(0.0, seconds or 0.0),
        unfinished_batches={row["status"]: row["batches"] for row in session.rows("unfinished_by_status")},
        newest_event=newest_event(session),
    )
