"""What the routes share while the page is served."""

from __future__ import annotations

from collections import Counter
from functools import partial

from comfyui_agent.access.gate import Caller, Gate
from comfyui_agent.access.limits import OpenJobQuota, RequestLimits, TimeShare, Turns, actor_for
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.engine.live_runs import want_previews
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.forecasts import Forecasts
from comfyui_agent.usecases.prompts import Prompts
from comfyui_agent.usecases.whereabouts import Whereabouts, find_whereabouts
from comfyui_agent.web.cell_facts import CellFacts
from comfyui_agent.web.event_feed import EventFeed
from comfyui_agent.web.fleet_view import FleetView
from comfyui_agent.web.live_pages import LivePages
from comfyui_agent.web.metrics import Metrics
from comfyui_agent.web.model_previews import ModelPreviews
from comfyui_agent.web.outputs import Outputs
from comfyui_agent.web.submissions import Submissions
from comfyui_agent.web.sweep_planning import Planning

LIST_SHARE = 4
LONGEST_ID = 19


class Context:
    """One object of each kind, made when the page starts."""

    def __init__(self, store: Store, workspace: Workspace, lock: AgentLock, *, serves_loopback: bool) -> None:
        ui = workspace.settings.ui
        self.store = store
        self.workspace = workspace
        self.lock = lock
        self.gate = Gate(store, ui, serves_loopback=serves_loopback)
        self.fleet = FleetView(store, workspace)
        self.forecasts = Forecasts(store, workspace)
        self.outputs = Outputs(workspace)
        self.model_previews = ModelPreviews(partial(server_urls, workspace), self.outputs.thumbnails)
        self.prompts = Prompts(store)
        self.cells = CellFacts(self.prompts, self.outputs)
        self.metrics = Metrics(store, self.fleet)
        self.event_feed = EventFeed(store, self.metrics.counters.count, partial(want_previews, workspace.locks))
        self.submissions = Submissions(store, workspace)
        self.live_pages = LivePages(store, self.fleet)
        self.limits = RequestLimits(ui)
        self.quota = OpenJobQuota(store, ui.open_jobs_per_user)
        self.planning = Planning()
        self.long_lists = TimeShare(LIST_SHARE)
        self.exports = Turns(at_once=1)
        self.under_way: Counter[tuple[str, str]] = Counter()
        """How many requests with an Idempotency-Key are being answered, by key and scope."""

    def actor(self, caller: Caller) -> Actor:
        return actor_for(caller, self.workspace.settings, self.quota)

    async def job_named(self, name: str) -> Job | None:
        """A job by its id, else by its name. Digits are an id first: the page links to ids."""
        found = None
        if name.isascii() and name.isdigit() and len(name) < LONGEST_ID:
            found = await self.store.run(ops.find_job_by_id, JobId(int(name)))
        return found or await self.store.run(ops.find_job_by_name, name)

    async def whereabouts(self, job: Job) -> Whereabouts:
        return await find_whereabouts(self.store, self.submissions.intake, job, self.fleet.reports)
