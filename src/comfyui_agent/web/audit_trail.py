"""Wrong tokens in the audit trail: one row a minute for each address."""

from __future__ import annotations

import asyncio
from collections import Counter

from comfyui_agent.domain.events import EventName
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor

MERGE_SECONDS = 60.0
MOST_ADDRESSES = 100
OTHERS = "other addresses"


class AuditTrail:
    """Counts wrong tokens, and writes the counts once a minute: a row each would let strangers fill the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed_logins: Counter[str] = Counter()

    def count_failed_login(self, address: str) -> None:
        is_known = address in self._failed_logins or len(self._failed_logins) < MOST_ADDRESSES
        self._failed_logins[address if is_known else OTHERS] += 1

    async def keep_merging(self) -> None:
        while True:
            await asyncio.sleep(MERGE_SECONDS)
            await self.write_failed_logins()

    async def write_failed_logins(self) -> None:
        counted, self._failed_logins = self._failed_logins, Counter()
        for address, count in counted.items():
            message = f"{count:,} wrong token{'s' if count != 1 else ''} within a minute"
            await Actor("unknown", address).audit(self._store, EventName.AUDIT_LOGIN_FAILED, message=message)
