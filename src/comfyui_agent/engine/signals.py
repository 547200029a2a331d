"""What wakes the loops of an agent."""

from __future__ import annotations

import asyncio


class Signals:
    """Two events. Whoever waits for one clears it."""

    def __init__(self) -> None:
        self.work = asyncio.Event()
        """There may be work and room for it."""
        self.change = asyncio.Event()
        """Something changed from outside: leases, leftovers and server states are looked at again."""

    def wake(self) -> None:
        self.work.set()

    def note_change(self) -> None:
        self.change.set()
