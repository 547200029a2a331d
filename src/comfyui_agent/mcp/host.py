"""What the tools stand on, and who asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from comfyui_agent.access.gate import Caller
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.forecasts import Forecasts
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.sweeps import Planner


class Results(Protocol):
    """Files of results on this machine. OSError or ValueError if one cannot be had, or is not served."""

    def path_of(self, job: Job, number: int) -> Path: ...

    def grid(self, recorded: str) -> Path: ...


@dataclass(frozen=True)
class Host:
    """What all callers of a server share."""

    store: Store
    workspace: Workspace
    intake: Intake
    forecasts: Forecasts
    reports: Callable[[], Awaitable[Sequence[ServerReport]]]
    results: Results
    begin: Callable[[Coroutine[Any, Any, Any]], None]
    """Begins something that nobody waits for."""
    waiting: Counter[str] = field(default_factory=Counter)
    """How many wait for something to end, by caller."""


@dataclass(frozen=True)
class Client:
    """Who asks, what they may do, and how they reach files."""

    caller: Caller
    actor: Actor
    planner: Planner
    url: str = ""
    """The address of the page. Empty: they are on this machine and open files by their paths."""
    count_change: Callable[[], None] = lambda: None
    """Counts a change; Problem 429 if there were too many."""

    def address(self, host: Host, job: Job, number: int) -> str:
        """Where a result is, in full size."""
        if not self.url:
            return host.workspace.results.address(job.outputs[number - 1])
        take = f"?take={job.take}" if job.take is not None else ""
        return f"{self.url}/api/v1/jobs/{job.id}/results/{number}{take}"

    def grid_address(self, host: Host, batch_id: str, recorded: str) -> str:
        return f"{self.url}/api/v1/batches/{batch_id}/grid" if self.url else host.workspace.results.address(recorded)
