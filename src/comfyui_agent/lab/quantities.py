"""Quantities as people read them: with their unit, and no more digits than were measured."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from comfyui_agent.lab.reports.fields import as_moment

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def plain(value: float | None) -> str:
    """A number with about three digits that count: 0.043, 4.31, 38.2, 1,240."""
    if value is None:
        return DASH
    decimals = next((places for places, below in ((0, 100), (1, 10), (2, 1)) if abs(value) >= below), 3)
    return minus(f"{value:,.{decimals}f}")


def seconds(value: float | None) -> str:
    """A duration: 43 ms, 38.2 s, 12 min 5 s, 3 h 20 min."""
    if value is None:
        return DASH
    if value == 0:
        return "0 s"
    if abs(value) < 0.0995:
        return minus(f"{value * 1000:.{1 if abs(value) < 0.00995 else 0}f} ms")
    if abs(value) < 600:
        return f"{plain(value)} s"
    minutes, rest = divmod(round(abs(value)), 60)
    sign = MINUS if value < 0 else ""
    if minutes < 180:
        return f"{sign}{minutes} min {rest} s" if rest else f"{sign}{minutes} min"
    return f"{sign}{minutes // 60} h {minutes % 60} min"


def short_seconds(value: float | None) -> str:
    """A duration in one line of a terminal or a list: 43 ms, 2.31 s, 38.2 s."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def rate(value: float | None) -> str:
    return DASH if value is None else f"{plain(value)} images/min"


def share(value: float | None) -> str:
    """A share of 1 in percent. Only all is 100 %, and only nothing is 0 %."""
    if value is None:
        return DASH
    percent = f"{value * 100:.1f}"
    if value < 1 and percent == "100.0":
        return "> 99.9 %"
    if value > 0 and percent == "0.0":
        return "< 0.1 %"
    return minus(f"{percent if 0 < value < 1 else trimmed(percent)} %")


def change(value: float | None) -> str:
    """A relative change with its sign: +12 %, +3.4 %."""
    if value is None:
        return DASH
    size = abs(value) * 100
    digits = f"{size:.1f}".removesuffix(".0") if size < 10 else f"{size:,.0f}"
    return f"{'' if digits == '0' else '+' if value > 0 else MINUS}{digits} %"


def points(value: float | None) -> str:
    """The difference of two shares, in points of a hundred: +0.5 points."""
    return change(value).replace("%", "points")


def memory(megabytes: float | None) -> str:
    if megabytes is None:
        return DASH
    return f"{megabytes / 1024:,.1f} GB" if abs(megabytes) >= 1024 else f"{megabytes:,.0f} MB"


def whole(value: float | None) -> str:
    return DASH if value is None else minus(f"{value:,.0f}")


def measured(value: float | None, unit: str) -> str:
    """A figure of a comparison by the name of its unit."""
    return {"s": seconds, "images/min": rate, "share": share}[unit](value)


def date(value: str | None) -> str:
    """A point in time in UTC, or the text as it stands."""
    found = as_moment(value)
    return (value or "").strip() or DASH if found is None else f"{_utc(found):%Y-%m-%d %H:%M} UTC"


def clock(value: str) -> str:
    """The time of day in UTC, to a tenth of a second, or the text as it stands."""
    found = as_moment(value)
    return value or DASH if found is None else f"{_utc(found):%H:%M:%S}.{_utc(found).microsecond // 100_000}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def trimmed(digits: str) -> str:
    """A number without zeros behind the point that say nothing: 45.0 is 45."""
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def wanted(quantity: str) -> str:
    """A quantity that was set, not measured: 45.0 s is 45 s."""
    digits, space, unit = quantity.partition(" ")
    return trimmed(digits) + space + unit


def against(value: float, target: float | None) -> str:
    """Seconds that should not be above their target, as titles state them."""
    if target is None:
        return seconds(value)
    return f"{seconds(value)}, {'within' if value <= target else 'above'} the target of {wanted(seconds(target))}"


def minus(digits: str) -> str:
    """A number with a true minus sign, and none before zero."""
    if digits.startswith("-"):
        return MINUS + digits[1:] if any(digit in "123456789" for digit in digits) else digits[1:]
    return digits


def _utc(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, timezone.utc)
