"""Putting an agent together: the one place where its parts meet."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from comfyui_agent.clock import SYSTEM_CLOCK, Clock
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.retry_policy import RetryPolicy
from comfyui_agent.engine.agent import Agent
from comfyui_agent.engine.batch_upkeep import Expiry, GridBuilder
from comfyui_agent.engine.collector import Collector
from comfyui_agent.engine.delivery import MISSING, is_installed
from comfyui_agent.engine.dispatcher import Dispatcher
from comfyui_agent.engine.event_tail import EventTail
from comfyui_agent.engine.idleness import Idleness
from comfyui_agent.engine.leases import Leases
from comfyui_agent.engine.live_feed import FeedServer, LiveFeed
from comfyui_agent.engine.live_files import LiveFile
from comfyui_agent.engine.needs_lookup import NeedsLookup
from comfyui_agent.engine.notifier import Notifier
from comfyui_agent.engine.patience import PatienceLimits
from comfyui_agent.engine.prompt_builder import PromptBuilder
from comfyui_agent.engine.recorder import Recorder
from comfyui_agent.engine.recovery import Recovery
from comfyui_agent.engine.retention import Retention, ages_of
from comfyui_agent.engine.reuse import Reuse
from comfyui_agent.engine.reuse_ahead import ReuseAhead
from comfyui_agent.engine.run import Run, RunParts
from comfyui_agent.engine.runs import Runs, Signals
from comfyui_agent.engine.sender import Sender
from comfyui_agent.engine.server_inputs import ServerInputs
from comfyui_agent.engine.server_states import ServerAlerts, ServerStates
from comfyui_agent.engine.settlement import Settlement
from comfyui_agent.engine.tuner import Tuner
from comfyui_agent.engine.unowned_prompts import UnownedPrompts
from comfyui_agent.engine.webhooks import Webhooks
from comfyui_agent.events.bus import Bus
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.fleet.fleet import Connect, Fleet, connect_over_http
from comfyui_agent.fleet.launch.lifecycle import LaunchLimits
from comfyui_agent.fleet.launch.plan import NO_CARD, slots_here
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.fleet.launch.supervisor import Supervisor
from comfyui_agent.fleet.routing import Routing
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

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
    launch_limits: LaunchLimits | None = None,
) -> Agent:
    """An agent for a workspace.

    With `only`, it takes nothing but the jobs of that batch, reserved ones included. One that `is_quiet` asks its
    servers nothing more often than every `poll_interval_ms`. Tests give it a clock, chances, connections and limits.
    """
    settings, comfyui = workspace.settings, workspace.settings.comfyui
    lock = AgentLock(workspace.locks, is_part=only is not None)
    bus, signals, recorder = bus or Bus(), Signals(), Recorder(store, clock)
    client_prefix = f"e3-{store.identity}-"  # the client ids of all agents of this database start with it
    feed = LiveFeed(store.hurry)
    fleet = _make_fleet(workspace, client_prefix + lock.worker, connect, clock, feed, is_quiet=is_quiet)
    policy = RetryPolicy(settings.retry_limit, settings.retry_backoff_seconds, settings.poison_limit)
    patience = PatienceLimits(comfyui.timeout_seconds, comfyui.stall_seconds, comfyui.failover_seconds)
    inputs = ServerInputs(workspace, clock)
    leases = Leases(store, recorder, clock, lock.worker, settings.lease_seconds)
    collector = Collector(store, workspace, leases, recorder, clock, lock.worker)
    builder = PromptBuilder(store, workspace)
    routing = Routing(fleet, clock, settings.routing.stay_seconds, patience.failover)
    lookup = NeedsLookup(store, routing, fleet, builder, signals, clock)
    live = LiveFile(workspace.locks, lock.worker)
    demand = {"always": lambda: True, "watched": lambda: live.is_watched, "never": lambda: False}
    reuse = Reuse(store, workspace, recorder, inputs, clock, lock.worker)
    sender = Sender(recorder, fleet, builder, inputs, reuse, clock, demand[settings.ui.previews], feed)
    supervisor = tuner = None
    if comfyui.launch and only is None:
        slots = slots_here(workspace)
        if not slots:
            log.error(NO_CARD)
        limits = launch_limits or LaunchLimits(silent_seconds=patience.failover)
        supervisor = Supervisor(slots, workspace, fleet, store, clock, recorder.note, limits)
        tuner = Tuner(supervisor, fleet, store, clock, recorder.note, workspace.processes)
    settlement = Settlement(recorder, fleet, routing, policy, clock, chance, collector.remove)
    if supervisor is not None:
        settlement = replace(settlement, report_lost_context=supervisor.report_lost_context)
    parts = RunParts(fleet, sender, collector, settlement, recorder, patience, clock, signals.work.set)
    runs = Runs(fleet, leases, signals, clock, partial(Run, parts=parts))
    recovery = Recovery(store, workspace, lock, fleet, leases, runs, clock, collector.remove, only)
    unowned = UnownedPrompts(store, fleet, clock, client_prefix, patience)
    alerts = ServerAlerts(recorder, recovery, signals, clock, inputs.forget)
    states = ServerStates(store, fleet, signals.work)
    grids = GridBuilder(store, workspace, recorder, lock, only)
    ages = ages_of(settings.retention) if only is None else None
    inputs.on_forget = lookup.ask
    fleet.on_health, fleet.on_queue = alerts.see_health, unowned.see_queue
    bus.subscribe(grids.see_event)
    notifier = None
    if settings.notify.urls and only is None:
        if is_installed():
            notifier = Notifier(store, workspace, clock, recorder.note)
            bus.subscribe(notifier.see_event)
        else:
            log.error("%s", MISSING)
    webhooks = Webhooks(recorder, workspace, clock, lock, store.identity, chance) if only is None else None
    if webhooks is not None:
        bus.subscribe(webhooks.see_event)
    return Agent(
        store=store,
        lock=lock,
        clock=clock,
        bus=bus,
        signals=signals,
        fleet=fleet,
        leases=leases,
        started=runs,
        dispatcher=Dispatcher(store, fleet, runs, signals, clock, routing, lookup, settings, policy, only),
        reuse=ReuseAhead(store, fleet, runs, clock) if only is None else None,
        lookup=lookup,
        recovery=recovery,
        unowned=unowned,
        alerts=alerts,
        states=states,
        tail=EventTail(store, MetricsLog(workspace.metrics_log, store.identity), bus, clock),
        grids=grids,
        expiry=Expiry(store, settings.batch_expiry_seconds, runs.all, clock),
        live=live,
        feed=FeedServer(feed, workspace.locks, lock.worker) if only is None and connect is None else None,
        idleness=Idleness(store, states, clock, lock.worker, only, patience.failover),
        supervisor=supervisor,
        tuner=tuner,
        retention=Retention(store, workspace, clock, recorder.note, ages) if ages is not None else None,
        notifier=notifier,
        webhooks=webhooks,
    )


def _make_fleet(
    workspace: Workspace, client_id: str, connect: Connect | None, clock: Clock, feed: LiveFeed, *, is_quiet: bool
) -> Fleet:
    settings = workspace.settings
    limits = Limits(
        lost_after_seconds=NEVER,
        poll_seconds=settings.poll_interval_ms / 1000,
        is_quiet=is_quiet,
        keep_free_bytes=round(settings.paths.keep_free_gb * 1024**3),
    )
    connect = connect or connect_over_http(client_id, limits, clock, hear=feed.hear)
    return Fleet(server_urls(workspace), connect, limits, clock)
