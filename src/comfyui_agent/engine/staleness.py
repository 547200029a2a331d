"""Whether what was read from the database may be out of date."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from comfyui_agent.clock import Clock

QUIET_SECONDS = 20.0
"""What only time changes, such as agents that died, is looked at this often while nothing else happens."""


class VersionedStore(Protocol):
    @property
    def version(self) -> int: ...


@dataclass
class Staleness:
    """Something was committed since it was last asked, or that was long ago. Many idle agents cost little by it."""

    store: VersionedStore
    clock: Clock
    _seen: int | None = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)

    def is_stale(self) -> bool:
        version, now = self.store.version, self.clock.now()
        if version == self._seen and now - self._asked_at < QUIET_SECONDS:
            return False
        self._seen, self._asked_at = version, now
        return True
