"""ComfyUI versions, and what they can do."""

from __future__ import annotations

import re
from dataclasses import dataclass

OLDEST_WITH_TARGETED_INTERRUPT = (0, 3, 57)


@dataclass(frozen=True, order=True)
class Version:
    """A version number. An unreadable one counts as the oldest."""

    number: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", text)
        return cls(tuple(int(part or 0) for part in found.groups()) if found else ())

    @property
    def can_interrupt_one_prompt(self) -> bool:
        return self.number >= OLDEST_WITH_TARGETED_INTERRUPT
