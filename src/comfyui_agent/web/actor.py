"""Who asks for a change over HTTP, as use cases know them."""

from __future__ import annotations

from functools import partial

from comfyui_agent.domain.tokens import Role
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.web.access import Caller
from comfyui_agent.web.context import Context


def actor_for(context: Context, caller: Caller) -> Actor:
    """Their rights, quota and lowest priority come from their token."""
    floor = context.workspace.settings.user_priority_floor
    return Actor(
        name=caller.actor,
        address=caller.address or None,
        token_id=caller.token.id if caller.token is not None else None,
        rights=caller.rights,
        lowest_priority=None if caller.role is Role.ADMIN else floor,
        room=partial(context.quota.room, caller),
    )
