"""What the routes share: one of each, for as long as the page is served."""

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
    from comfyui_agent.web.fleet_view import FleetView
    from comfyui_agent.web.hub import Hub
    from comfyui_agent.web.limits import OpenJobQuota, RequestLimits
    from comfyui_agent.web.metrics import Metrics
    from comfyui_agent.web.news import News
    from comfyui_agent.web.outputs import Outputs
    from comfyui_agent.web.submissions import Submissions
    from comfyui_agent.web.sweep_planning import Planning


LIST_SHARE = 4


@dataclass
class Context:
    """The memory, the workspace, and everything that is made of them once."""

    store: Store
    workspace: Workspace
    lock: AgentLock
    gate: Gate
    fleet: FleetView
    outputs: Outputs
    metrics: Metrics
    news: News
    submissions: Submissions
    hub: Hub
    limits: RequestLimits
    quota: OpenJobQuota
    audit: AuditTrail
    planning: Planning
    long_lists: TimeShare = field(default_factory=lambda: TimeShare(LIST_SHARE))
    under_way: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many requests with an Idempotency-Key are being answered here, by key and scope."""
