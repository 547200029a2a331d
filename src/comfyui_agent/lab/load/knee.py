"""Where more load brings no more pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.reports.load import KneeFacts

NEAR = 0.95
"""A level counts as flat when it brings this share of the best throughput seen, or is not surely below it."""
SURE = 2.5
"""Standard errors by which two levels must differ."""


@dataclass(frozen=True)
class Step:
    """One level of a ramp. `noise` is the standard error of the throughput, as a share of it."""

    level: float
    images_per_minute: float
    success_rate: float
    noise: float = 0.0

    def is_below(self, best: Step) -> bool:
        """Whether it brings clearly less: by more than a twentieth, and by more than chance."""
        chance = SURE * math.hypot(self.noise * self.images_per_minute, best.noise * best.images_per_minute)
        return self.images_per_minute < best.images_per_minute - max((1 - NEAR) * best.images_per_minute, chance)


def find_knee(steps: Sequence[Step], most_errors: float, unit: str) -> KneeFacts | None:
    """The lowest level that brings nearly all there is, or the last one before errors rise above `most_errors`.

    None if throughput still rose at the last level: the knee lies beyond what was tried.
    """
    sound = list(takewhile(lambda step: 1.0 - step.success_rate <= most_errors + 1e-9, steps))
    best = max(sound, key=lambda step: step.images_per_minute, default=None)
    if len(steps) < 2 or best is None or best.images_per_minute <= 0:
        return None
    flat = next(step for step in sound if not step.is_below(best))
    if flat is not sound[-1]:
        more = 100 * (best.images_per_minute / flat.images_per_minute - 1)
        gain = f"higher levels bring at most {more:.1f} % more" if more > 0 else "higher levels bring no more"
        reason = f"throughput flattens at {level_text(flat.level, unit)}: {gain}"
    elif len(sound) < len(steps):
        broken = steps[len(sound)]
        share = f"at {broken.level:g}, {100 * (1 - broken.success_rate):.0f} % fail"
        reason = f"errors rise after {level_text(flat.level, unit)}: {share}"
    else:
        return None
    return KneeFacts(level=flat.level, images_per_minute=flat.images_per_minute, unit=unit, reason=reason)
