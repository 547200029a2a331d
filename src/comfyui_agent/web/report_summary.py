"""What a report of the lab found, in one line, from its first part alone: reports may be large, cut off or not ours."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from comfyui_agent.domain.texts import counted, printable, whole
from comfyui_agent.lab.load.reports import as_number, moment
from comfyui_agent.lab.sla.verdicts import TargetVerdict, standing, verdicts_in

LONGEST = 240
TITLE = re.compile(r"<title>([^<]*)</title>", re.IGNORECASE)


class ReportKind(str, Enum):
    """What was done, in the words of the page."""

    LOAD = "Load test"
    CHAOS = "Chaos"
    PROFILE = "Profile"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One line, whether someone should look at it, and when the work began, in seconds since 1970, if that is said."""

    words: str
    needs_attention: bool = False
    began: float | None = None


def of_document(kind: ReportKind, text: str) -> Finding:
    """What the beginning of a JSON report says."""
    head = head_of(text)
    match kind:
        case ReportKind.LOAD:
            words, needs_attention = _load(head)
        case ReportKind.CHAOS:
            words, needs_attention = _chaos(head)
        case ReportKind.PROFILE:
            words, needs_attention = _profile(head)
    began = moment(_mapping(head.get("environment")).get("started_at"))
    return Finding(_one_line(words), needs_attention, began)


def of_page(text: str) -> Finding:
    """What the beginning of a page says: its title states the finding."""
    title = TITLE.search(text)
    return Finding(_one_line(html.unescape(title.group(1))) if title else "")


def head_of(text: str) -> dict[str, Any]:
    """The first entries of a JSON object that may be cut off anywhere: those that are whole."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    at = _past(text, 0, "{")
    while at is not None:
        try:
            key, at = decoder.raw_decode(text, _past_space(text, at))
            value_at = _past(text, at, ":")
            if not isinstance(key, str) or value_at is None:
                break
            value, at = decoder.raw_decode(text, _past_space(text, value_at))
        except (ValueError, RecursionError):
            break
        end = _past_space(text, at)
        if text[end : end + 1] not in (",", "}"):
            break  # a number that goes on
        found[key] = value
        at = _past(text, at, ",")
    return found


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _past(text: str, at: int, sign: str) -> int | None:
    at = _past_space(text, at)
    return at + 1 if text[at : at + 1] == sign else None


def _load(head: Mapping[str, Any]) -> tuple[str, bool]:
    summary = _mapping(head.get("summary"))
    total, completed = as_number(summary.get("total_jobs")), as_number(summary.get("completed"))
    if total is None or completed is None:
        return "It has no summary.", True
    words = f"{completed:,.0f} of {total:,.0f} completed"
    for key, said in (("failed", "failed"), ("timeouts", "timed out"), ("cached_jobs", "from the cache")):
        count = as_number(summary.get(key))
        words += f", {count:,.0f} {said}" if count else ""
    p95, rate = as_number(summary.get("p95_duration_sec")), as_number(summary.get("images_per_minute"))
    words += f"; p95 {_seconds(p95)}" if p95 is not None else ""
    words += f", {rate:.1f} images/min" if rate else ""
    reason = _mapping(summary.get("knee")).get("reason")
    words += f"; {reason}" if isinstance(reason, str) else ""
    books = as_number(summary.get("concurrent_books"))
    words += f"; {counted(round(books), 'book')} at once within the targets" if books is not None else ""
    verdicts = verdicts_in(summary)
    told = standing(verdicts)
    words += f"; {told}" if told else ""
    scenario = _mapping(summary.get("scenario"))
    if scenario:
        words += f"; {scenario.get('scenario', 'scenario')} {scenario.get('verdict', '')}"
    words += "; stopped in the middle" if summary.get("partial") is True else ""
    if "verdict" in scenario:
        return words, scenario["verdict"] == "failed"
    return words, completed < total or TargetVerdict.MISSED in verdicts.values()


def _chaos(head: Mapping[str, Any]) -> tuple[str, bool]:
    summary = _mapping(head.get("summary"))
    total, passed = as_number(summary.get("total")), as_number(summary.get("passed"))
    if total is None or passed is None:
        return "It has no summary.", True
    words = f"{passed:.0f} of {total:.0f} scenarios passed"
    skipped, recovery = as_number(summary.get("skipped")), as_number(summary.get("recovery_sec"))
    words += f", {skipped:.0f} skipped" if skipped else ""
    words += f", slowest recovery {_seconds(recovery)}" if recovery is not None else ""
    failed = [each for each in _mappings(head.get("results")) if each.get("verdict") == "failed"]
    words += f"; {failed[0].get('scenario')}: {failed[0].get('reason')}" if failed else ""
    words += "; stopped in the middle" if summary.get("partial") is True else ""
    return words, bool(as_number(summary.get("failed"))) or summary.get("verdict") == "failed"


def _profile(head: Mapping[str, Any]) -> tuple[str, bool]:
    name = _mapping(head.get("workflow")).get("name")
    warm, cold = as_number(head.get("duration_sec")), as_number(head.get("cold_duration_sec"))
    times = [f"{_seconds(value)} {word}" for value, word in ((warm, "warm"), (cold, "cold")) if value is not None]
    words = f"{name if isinstance(name, str) else 'A workflow'}: {', '.join(times) or 'nothing was measured'}"
    first = next(iter(_mappings(head.get("nodes"))), {})
    share = as_number(first.get("share"))
    if share:
        words += f"; node {first.get('node_id')} ({first.get('class_type')}) takes {share * 100:.0f} % of a warm run"
    peak = as_number(head.get("peak_vram_mb"))
    words += f"; {peak:,.0f} MB video memory at most" if peak else ""
    is_partial = head.get("partial") is True
    return words + ("; stopped in the middle" if is_partial else ""), not times


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _one_line(text: str) -> str:
    return printable(whole(" ".join(text.split()), LONGEST))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
