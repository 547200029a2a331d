"""Targets beside what was measured: met, missed, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.markup import Html
from comfyui_agent.lab.pages.page import Tile, verdict
from comfyui_agent.lab.pages.quantities import DASH, rate, seconds, share, wanted, whole


@dataclass(frozen=True)
class Judged:
    """A figure and the target it has, if there is one."""

    name: str
    value: float | None
    target: float | None
    is_floor: bool
    wording: Callable[[float | None], str]

    @property
    def is_met(self) -> bool | None:
        """None where there is no target, or nothing was measured."""
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.is_floor else self.value <= self.target

    def tile(self) -> Tile:
        """The figure, and below it what it should be."""
        return Tile(self.name, self.wording(self.value), self._below())

    @property
    def asked(self) -> str:
        """The target: at least, or at most."""
        return f"{'≥' if self.is_floor else '≤'} {wanted(self.wording(self.target))}"

    def _below(self) -> Html | str:
        if self.is_met is None:
            return ""
        return verdict("good", f"met, {self.asked}") if self.is_met else verdict("bad", f"missed, {self.asked}")


def judged(summary: Mapping[str, Any], sla: Mapping[str, Any]) -> list[Judged]:
    """The targets of a load test, in the order in which they are asked for."""

    def of(name: str, key: str, target: str, is_floor: bool, wording: Callable[[float | None], str]) -> Judged:
        return Judged(name, facts.number(summary.get(key)), facts.number(sla.get(target)), is_floor, wording)

    return [
        of("Throughput", "images_per_minute", "images_per_minute", True, rate),
        of("p95 duration", "p95_duration_sec", "p95_seconds", False, seconds),
        Judged("Errors", error_share(summary), facts.number(sla.get("error_rate")), False, share),
        of("Books at once", "concurrent_books", "concurrent_books", True, whole),
        of("Recovery", "recovery_sec", "recovery_seconds", False, seconds),
    ]


def error_share(summary: Mapping[str, Any]) -> float | None:
    """Jobs that failed or timed out, of all: counted where it can be, so that 2 of 100 is 0.02 and not a bit more."""
    total = facts.amount(summary.get("total_jobs"))
    if total:
        return (facts.amount(summary.get("failed")) + facts.amount(summary.get("timeouts"))) / total
    rate_of_success = facts.number(summary.get("success_rate"))
    return None if rate_of_success is None or "total_jobs" in summary else round(1 - rate_of_success, 9)


def against(value: float | None, target: float | None, wording: Callable[[float | None], str] = seconds) -> str:
    """A figure that should not be above its target, in the words of a title."""
    if value is None or target is None:
        return wording(value) if value is not None else DASH
    return f"{wording(value)}, {'within' if value <= target else 'above'} the target of {wanted(wording(target))}"
