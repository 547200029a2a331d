"""Putting an agent together: the one place where its parts meet."""

from __future__ import annotations

import random
from collections.abc import Callable

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
from comfyui_agent.store.agent_lock import AgentLock
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
    settings = workspace.settings
    lock = AgentLock(workspace.locks, is_part=only is not None)
    bus, signals, recorder = bus or Bus(), Signals(), Recorder(store, clock)
    client_prefix = f"e3-{store.identity}-"
    poll_seconds = settings.poll_interval_ms / 1000
    limits = Limits(
        lost_after_seconds=NEVER,
        poll_seconds=poll_seconds,
        is_quiet=is_quiet,
        keep_free_bytes=round(settings.paths.keep_free_gb * 1024**3),
    )
    connect = connect or connect_over_http(client_prefix + lock.worker, limits, clock)
    fleet = Fleet(settings.comfyui.urls, connect, limits, clock)
    policy = RetryPolicy(settings.retry_limit, settings.retry_backoff_seconds, settings.poison_limit)
    patience = PatienceLimits(
        settings.comfyui.timeout_seconds, settings.comfyui.stall_seconds, settings.comfyui.failover_seconds
    )
    inputs = ServerInputs(workspace, clock)
    leases = Leases(store, recorder, clock, lock.worker, settings.lease_seconds)
    collector = Collector(store, workspace, leases, recorder, clock, worker=lock.worker)
    run_parts = RunParts(
        fleet=fleet,
        sender=Sender(
            recorder,
            fleet,
            PromptBuilder(store, workspace, store.identity),
            inputs,
            clock,
            previews=settings.ui.previews,
        ),
        collector=collector,
        settlement=Settlement(recorder, fleet, policy, clock, chance, collector.remove),
        limits=patience,
        clock=clock,
        wake=signals.wake,
    )
    runs = Runs(fleet, leases, signals, clock, lambda leased, server: Run(leased, server, run_parts))
    leftovers = LeftoverFiles(workspace, lock, collector.remove)
    recovery = Recovery(store, fleet, leases, runs, lock, leftovers, clock, RecoveryScope(only))
    unowned = UnownedPrompts(store, fleet, clock, client_prefix, StopPatience(patience.stall, patience.timeout))
    alerts = ServerAlerts(recorder, recovery, signals, clock, inputs.forget)
    fleet.on_health(alerts.see_health)
    fleet.on_queue(unowned.see_queue)
    terms = LeaseTerms(
        worker=lock.worker,
        seconds=settings.lease_seconds,
        longest_backoff=policy.longest_backoff,
        poll_seconds=poll_seconds,
        one_page=not settings.books.parallel_pages,
        only=only,
    )
    stuck = StuckServers(store, fleet)
    grids = GridBuilder(store, workspace, lock, clock, only=only)
    bus.subscribe(lambda event: _see_event(event, grids))
    return Agent(
        AgentParts(
            store=store,
            lock=lock,
            clock=clock,
            bus=bus,
            signals=signals,
            fleet=fleet,
            leases=leases,
            runs=runs,
            dispatcher=Dispatcher(store, fleet, runs, signals, clock, terms, mint_prompt_id),
            recovery=recovery,
            unowned=unowned,
            alerts=alerts,
            states=ServerStateWatcher(store, fleet, signals.wake),
            stuck=stuck,
            tail=EventTail(store, MetricsLog(workspace.metrics_log, store.identity), bus, clock),
            grids=grids,
            expiry=Expiry(store, settings.batch_expiry_seconds, runs.all, clock),
            live=LiveFile(workspace.locks, lock.worker),
            idleness=Idleness(store, stuck, clock, worker=lock.worker, only=only, patience=patience.failover),
        )
    )


def _see_event(event: Event, grids: GridBuilder) -> None:
    if event.name == EventName.BATCH_COMPLETED:
        grids.wake()
