"""Rates and durations, measured and as text."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 300.0
ENOUGH = 3


class Pace:
    """Results per second, from the times at which they arrived."""

    def __init__(self) -> None:
        self._moments: deque[float] = deque(maxlen=5000)

    def count(self, moment: float) -> None:
        self._moments.append(moment)

    def per_second(self, now: float) -> float | None:
        """None until there are enough results."""
        while len(self._moments) > ENOUGH and now - self._moments[0] > WINDOW_SECONDS:
            self._moments.popleft()
        if len(self._moments) < ENOUGH:
            return None
        return (len(self._moments) - 1) / max(0.001, now - self._moments[0])


def rate_of(per_second: float) -> str:
    """`2.5 images/s` or `40.0 images/min`."""
    return f"{per_second:.1f} images/s" if per_second >= 2 else f"{per_second * 60:.1f} images/min"


def duration_of(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`"""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def outlook(seconds_left: float | None) -> str:
    """What a sentence about work ends with, such as `, about 12 min left`. Empty if nobody knows."""
    return "" if seconds_left is None else f", about {duration_of(seconds_left)} left"
