"""A caller who changes something: ownership, priority, quota and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import counted_jobs, listed
from comfyui_agent.domain.tokens import Role
from comfyui_agent.web.access import Caller
from comfyui_agent.web.context import Context
from comfyui_agent.web.problems import Problem

ASK = "Ask whoever made it, or an admin; a token made with e3 token create --shared may change it, too."


@dataclass(frozen=True)
class Actor:
    """A caller who is about to change something. Each check raises a Problem before anything is changed."""

    context: Context
    caller: Caller

    @property
    def token_id(self) -> int | None:
        """The owner of what this caller makes."""
        return self.caller.token.id if self.caller.token is not None else None

    def may_change(self, found: Job | Batch) -> bool:
        return self.caller.rights.cover(found.created_by)

    def check_owner(self, found: Job | Batch) -> None:
        """403 if a job, batch or book is not the caller's to change."""
        if not self.may_change(found):
            name = found.config_name if isinstance(found, Job) else found.id
            how = "was not made with a token" if found.created_by is None else "was made with another token than yours"
            raise Problem(403, f"{name} {how}, so it is not yours to change", ASK)

    def check_owners(self, jobs: Sequence[Job]) -> None:
        """403 if one of several jobs is not the caller's to change."""
        if len(jobs) == 1:
            self.check_owner(jobs[0])
        others = [job.config_name for job in jobs if not self.may_change(job)]
        if others:
            verb = "is" if len(others) == 1 else "are"
            detail = f"{len(others):,} of these {len(jobs):,} jobs {verb} not yours to change: {listed(others)}"
            raise Problem(403, detail, "Nothing was changed. Leave them out, or ask an admin.")

    def check_priority(self, priority: int | None) -> None:
        """409 if a user asks for a priority below the floor. None is the default priority."""
        floor = self.context.workspace.settings.user_priority_floor
        if priority is None or priority >= floor or self.caller.role is Role.ADMIN:
            return
        detail = f"priority {priority} is for admins: users may ask for {floor} and above (ui.user_priority_floor)"
        raise Problem(409, detail, f"Ask for {floor} or more, or ask an admin.", errors=[("priority", detail)])

    def room(self, count: int) -> AbstractAsyncContextManager[None]:
        """Room for so many more open jobs; 429 if the caller's quota has none."""
        return self.context.quota.room(self.caller, count)

    async def audit(self, event: EventName, **facts: Any) -> None:
        """Record a change. `facts` are fields of Event, never inputs or secrets."""
        who = self.caller
        await self.context.audit.note(Event(event, actor=who.actor, address=who.address or None, **facts))

    async def audit_jobs(self, event: EventName, names: Sequence[str]) -> None:
        """Record a change of several jobs in one row."""
        if names:
            await self.audit(event, message=counted_jobs(names))
