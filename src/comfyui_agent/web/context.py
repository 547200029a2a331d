"""What the routes share while the page is served."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from comfyui_agent.web.fair_turns import TimeShare

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.store.agent_lock import AgentLock
    from comfyui_agent.store.store import Store
    from comfyui_agent.web.access import Gate
    from comfyui_agent.web.audit_trail import AuditTrail
    from comfyui_agent.web.event_feed import EventFeed
    from comfyui_agent.web.fleet_view import FleetView
    from comfyui_agent.web.limits import OpenJobQuota, RequestLimits
    from comfyui_agent.web.live_pages import LivePages
    from comfyui_agent.web.metrics import Metrics
    from comfyui_agent.web.outputs import Outputs
    from comfyui_agent.web.submissions import Submissions
    from comfyui_agent.web.sweep_planning import Planning

LIST_SHARE = 4


@dataclass
class Context:
    """One object of each kind, made when the page starts."""

    store: Store
    workspace: Workspace
    lock: AgentLock
    gate: Gate
    fleet: FleetView
    outputs: Outputs
    metrics: Metrics
    event_feed: EventFeed
    submissions: Submissions
    live_pages: LivePages
    limits: RequestLimits
    quota: OpenJobQuota
    audit: AuditTrail
    planning: Planning
    long_lists: TimeShare = field(default_factory=lambda: TimeShare(LIST_SHARE))
    under_way: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many requests with an Idempotency-Key are being answered, by key and scope."""
