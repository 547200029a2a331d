"""The audit trail of changes that were asked for over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError

if TYPE_CHECKING:
    from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

MERGE_SECONDS = 60.0
MOST_ADDRESSES = 100
OTHERS = "other addresses"


class AuditTrail:
    """Writes who asked for what. What was done stays done where this fails: then the log says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed_logins: Counter[str] = Counter()

    async def note(self, event: Event) -> None:
        try:
            await self._store.run(ops.add_event, event)
        except StoreError as error:
            log.error("%s by %s is missing in the audit trail: %s", event.name, event.actor, error)

    def count_failed_login(self, address: str) -> None:
        """Remember a wrong token until the next merge: a row each would let strangers fill the database."""
        is_known = address in self._failed_logins or len(self._failed_logins) < MOST_ADDRESSES
        self._failed_logins[address if is_known else OTHERS] += 1

    async def keep_merging(self) -> None:
        """Once a minute, one row for each address that showed wrong tokens."""
        while True:
            await asyncio.sleep(MERGE_SECONDS)
            await self.write_failed_logins()

    async def write_failed_logins(self) -> None:
        counted, self._failed_logins = self._failed_logins, Counter()
        for address, count in counted.items():
            words = f"{count:,} wrong token{'s' if count != 1 else ''} within a minute"
            await self.note(Event(EventName.AUDIT_LOGIN_FAILED, actor="unknown", address=address, message=words))
