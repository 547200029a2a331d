"""Putting an agent together: the one place where its parts meet."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from comfyui_agent.clock import SYSTEM_CLOCK, Clock
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.engine.agent import Agent, AgentParts
from comfyui_agent.engine.batch_expiry import Expiry
from comfyui_agent.engine.collector import Collector
from comfyui_agent.engine.dispatcher import Dispatcher, LeaseTerms
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.grid_builder import GridBuilder
from comfyui_agent.engine.idleness import Idleness
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.leftovers import LeftoverFiles
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.patience import PatienceLimits
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.recovery import Recovery, RecoveryScope
from comfyui_agent.engine.run import Run, RunParts
from comfyui_agent.engine.runs import Runs
from comfyui_agent.engine.sender import Sender
from comfyui_agent.engine.server_alerts import ServerAlerts
from comfyui_agent.engine.server_inputs import ServerInputs
from comfyui_agent.engine.server_states import ServerStateWatcher
from comfyui_agent.engine.settlement import Settlement
from comfyui_agent.engine.signals import Signals
from comfyui_agent.engine.stuck_servers import StuckServers
from comfyui_agent.engine.unowned_prompts import StopPatience, UnownedPrompts
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.fleet.fleet import Connect, Fleet, connect_over_http
from comfyui_agent.fleet.server import FleetServer
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store

NEVER = 10 * 365 * 24 * 3600.0


def make_agent(
    store: Store,
    workspace: Workspace,
    bus: Bus | None = None,
    *,
    only: str | None = None,
    is_quiet: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    chance: Callable[[], float] = random.random,
    connect: Connect | None = None,
) -> Agent:
    """An agent for a workspace.

    With `only`, it takes nothing but the jobs of that batch, reserved ones included. One that `is_quiet` asks its
    servers nothing more often than every `poll_interval_ms`. Tests give it a clock, chances and connections.
    """
    base = _Base(store, workspace, clock, AgentLock(workspace.locks, is_part=only is not None), only)
    bus, signals = bus or Bus(), Signals()
    fleet = base.make_fleet(connect, is_quiet=is_quiet)
    inputs = ServerInputs(workspace, clock)
    leases = Leases(store, base.recorder, clock, base.worker, workspace.settings.lease_seconds)
    collector = Collector(store, workspace, leases, base.recorder, clock, worker=base.worker)
    runs = Runs(fleet, leases, signals, clock, base.make_runs(fleet, inputs, collector, signals, chance))
    leftovers = LeftoverFiles(workspace, base.lock, collector.remove)
    recovery = Recovery(store, fleet, leases, runs, base.lock, leftovers, clock, RecoveryScope(only))
    unowned = UnownedPrompts(
        store, fleet, clock, base.client_prefix, StopPatience(base.patience.stall, base.patience.timeout)
    )
    alerts = ServerAlerts(base.recorder, recovery, signals, clock, inputs.forget)
    fleet.on_health(alerts.see_health)
    fleet.on_queue(unowned.see_queue)
    stuck = StuckServers(store, fleet)
    grids = GridBuilder(store, workspace, base.lock, clock, only=only)
    bus.subscribe(partial(_see_event, grids))
    return Agent(
        AgentParts(
            store=store,
            lock=base.lock,
            clock=clock,
            bus=bus,
            signals=signals,
            fleet=fleet,
            leases=leases,
            runs=runs,
            dispatcher=Dispatcher(store, fleet, runs, signals, clock, base.lease_terms, mint_prompt_id),
            recovery=recovery,
            unowned=unowned,
            alerts=alerts,
            states=ServerStateWatcher(store, fleet, signals.wake),
            stuck=stuck,
            tail=EventTail(store, MetricsLog(workspace.metrics_log, store.identity), bus, clock),
            grids=grids,
            expiry=Expiry(store, workspace.settings.batch_expiry_seconds, runs.all, clock),
            live=LiveFile(workspace.locks, base.worker),
            idleness=Idleness(store, stuck, clock, worker=base.worker, only=only, patience=base.patience.failover),
        )
    )


@dataclass(frozen=True)
class _Base:
    """What most parts are made of, and the limits that follow from the settings."""

    store: Store
    workspace: Workspace
    clock: Clock
    lock: AgentLock
    only: str | None

    @property
    def worker(self) -> str:
        return self.lock.worker

    @property
    def recorder(self) -> Recorder:
        return Recorder(self.store, self.clock)

    @property
    def client_prefix(self) -> str:
        """Every agent of this database has a client id that starts with it."""
        return f"e3-{self.store.identity}-"

    @property
    def policy(self) -> RetryPolicy:
        settings = self.workspace.settings
        return RetryPolicy(settings.retry_limit, settings.retry_backoff_seconds, settings.poison_limit)

    @property
    def patience(self) -> PatienceLimits:
        comfyui = self.workspace.settings.comfyui
        return PatienceLimits(comfyui.timeout_seconds, comfyui.stall_seconds, comfyui.failover_seconds)

    @property
    def lease_terms(self) -> LeaseTerms:
        settings = self.workspace.settings
        return LeaseTerms(
            worker=self.worker,
            seconds=settings.lease_seconds,
            longest_backoff=self.policy.longest_backoff,
            poll_seconds=settings.poll_interval_ms / 1000,
            one_page=not settings.books.parallel_pages,
            only=self.only,
        )

    def make_fleet(self, connect: Connect | None, *, is_quiet: bool) -> Fleet:
        settings = self.workspace.settings
        limits = Limits(
            lost_after_seconds=NEVER,
            poll_seconds=settings.poll_interval_ms / 1000,
            is_quiet=is_quiet,
            keep_free_bytes=round(settings.paths.keep_free_gb * 1024**3),
        )
        connect = connect or connect_over_http(self.client_prefix + self.worker, limits, self.clock)
        return Fleet(settings.comfyui.urls, connect, limits, self.clock)

    def make_runs(
        self, fleet: Fleet, inputs: ServerInputs, collector: Collector, signals: Signals, chance: Callable[[], float]
    ) -> Callable[[Leased, FleetServer], Run]:
        builder = PromptBuilder(self.store, self.workspace, self.store.identity)
        previews = self.workspace.settings.ui.previews
        parts = RunParts(
            fleet=fleet,
            sender=Sender(self.recorder, fleet, builder, inputs, self.clock, previews=previews),
            collector=collector,
            settlement=Settlement(self.recorder, fleet, self.policy, self.clock, chance, collector.remove),
            limits=self.patience,
            clock=self.clock,
            wake=signals.wake,
        )
        return partial(Run, parts=parts)


def _see_event(grids: GridBuilder, event: Event) -> None:
    if event.name == EventName.BATCH_COMPLETED:
        grids.wake()
