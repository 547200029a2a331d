"""Who asks for a change: what they may change, how much they may queue, and their name in the audit trail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import listed
from comfyui_agent.domain.tokens import ALL, Rights
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.errors import ExternalIdTaken, Invalid, NotAllowed

log = logging.getLogger(__name__)

ASK = "Ask whoever made it, or an admin; a token made with e3 token create --shared may change it, too."


def _log_unaudited(event: Event, error: StoreError) -> None:
    log.error("%s by %s is missing in the audit trail: %s", event.name, event.actor, error)


@dataclass(frozen=True)
class Actor:
    """A person or program that asks. Without limits, unless some are given."""

    name: str
    address: str | None = None
    token_id: int | None = None
    """The token that owns what they make."""
    rights: Rights = ALL
    lowest_priority: int | None = None
    room: Callable[[int], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """Reserves room for so many more open jobs; raises if their quota has none."""
    on_unaudited: Callable[[Event, StoreError], None] = _log_unaudited
    """Is called when a change was made and could not be written to the audit trail."""

    def may_change(self, found: Job | Batch) -> bool:
        return self.rights.cover(found.created_by)

    def check_owner(self, found: Job | Batch) -> None:
        """NotAllowed if a job, batch or book is not theirs to change."""
        if not self.may_change(found):
            name = found.config_name if isinstance(found, Job) else found.id
            how = "was not made with a token" if found.created_by is None else "was made with another token than yours"
            raise NotAllowed(f"{name} {how}, so it is not yours to change", ASK)

    def check_owners(self, jobs: Sequence[Job]) -> None:
        """NotAllowed if one of several jobs is not theirs to change."""
        if len(jobs) == 1:
            self.check_owner(jobs[0])
        others = [job.config_name for job in jobs if not self.may_change(job)]
        if others:
            verb = "is" if len(others) == 1 else "are"
            message = f"{len(others):,} of these {len(jobs):,} jobs {verb} not yours to change: {listed(others)}"
            raise NotAllowed(message, "Nothing was changed. Leave them out, or ask an admin.")

    def check_priority(self, priority: int | None) -> None:
        """Invalid if they ask for a priority below their floor. None is the default, which everyone may have."""
        floor = self.lowest_priority
        if priority is None or floor is None or priority >= floor:
            return
        message = f"priority {priority} is for admins: users may ask for {floor} and above (ui.user_priority_floor)"
        raise Invalid.of_key("priority", message, f"Ask for {floor} or more, or ask an admin.")

    async def check_external_id(self, store: Store, external_id: str | None, *, with_filling: bool = False) -> None:
        """ExternalIdTaken if a job, batch or book of theirs has this key."""
        if external_id is not None:
            holder = await store.run(ops.find_external_id, self.token_id, external_id, with_filling=with_filling)
            if holder is not None:
                raise ExternalIdTaken(external_id, holder)

    async def audit(self, store: Store, name: EventName, **facts: Any) -> None:
        """Write what was done to the audit trail. `facts` are fields of an Event; never inputs, never secrets."""
        event = Event(name, actor=self.name, address=self.address, **facts)
        try:
            await store.run(ops.add_event, event)
        except StoreError as error:  # what was done stays done
            self.on_unaudited(event, error)
