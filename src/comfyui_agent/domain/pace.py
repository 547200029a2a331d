"""Rates and durations as text."""

from __future__ import annotations


def rate_of(per_minute: float) -> str:
    """`2.5 images/s` or `40.0 images/min`."""
    return f"{per_minute / 60:.1f} images/s" if per_minute >= 120 else f"{per_minute:.1f} images/min"


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
