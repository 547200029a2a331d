"""The page of two reports compared: what changed, and what is only noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.changes import Change, Changes
from comfyui_agent.lab.pages.markup import Html, element
from comfyui_agent.lab.pages.page import Page, figure, flattened, notices, section, table, verdict
from comfyui_agent.lab.pages.quantities import change, date, measured, points, said

TONES = {"better": "good", "worse": "bad"}
WORDS = {"worse": "worse", "better": "better", "noise": "within noise", "too few": "too few to say"}
FARTHEST = 100.0
"""A hundred times as much says: nobody knows how much."""
NOT_DRAWN = ("not measured",)


def compare_page(comparison: Mapping[str, Any], json_name: str = "") -> str:
    """A comparison as a page that needs nothing else. What it lacks is shown as a dash or left out."""
    a, b = facts.part(comparison.get("a")), facts.part(comparison.get("b"))
    metrics = facts.rows(comparison.get("metrics"))
    return Page(
        "Comparison of two load tests",
        f"{said(a.get('name'))} and {said(b.get('name'))}",
        _stands(comparison, metrics),
        f"A is {said(a.get('name'))}, started {date(a.get('started_at'))}. "
        f"B is {said(b.get('name'))}, started {date(b.get('started_at'))}.",
        [
            notices(facts.texts(comparison.get("cautions"))),
            section("What changed", figure(_changes(metrics)), _metric_table(metrics), _words_list(metrics)),
            section("What was compared", _sides(a, b)),
        ],
        {},
        json_name,
    ).text()


def _stands(comparison: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> Html:
    words = {facts.text(row.get("verdict")) for row in metrics}
    tone = "bad" if "worse" in words else "good" if "better" in words else "dim"
    return verdict(tone, facts.text(comparison.get("verdict")).strip() or "Nothing could be compared.")


def _changes(metrics: Sequence[Mapping[str, Any]]) -> Changes | None:
    found = []
    for row in metrics:
        value = facts.number(row.get("change"))
        if value is not None and row.get("verdict") not in NOT_DRAWN:
            low, high = _bound(row.get("low")), _bound(row.get("high"))
            found.append(Change(_name(row), value, low, high, facts.text(row.get("verdict")), _words(row)(value)))
    if not found:
        return None
    counts = Counter(each.verdict for each in found)
    parts = [f"{counts[word]} {text}" for word, text in WORDS.items() if counts[word]]
    return Changes(
        f"Of {len(found)} figures: {', '.join(parts)}" if parts else f"{len(found)} figures were compared",
        "Each mark is the change from A to B; the line through it is where the true change may lie. A line that "
        "crosses “no change” may be chance. Shares are compared in points of a hundred.",
        found,
    )


def _metric_table(metrics: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            _name(row),
            measured(facts.number(row.get("a")), facts.text(row.get("unit"))),
            measured(facts.number(row.get("b")), facts.text(row.get("unit"))),
            _words(row)(facts.number(row.get("change"))),
            _interval(row),
            verdict(TONES.get(facts.text(row.get("verdict")), "dim"), said(row.get("verdict"))),
        ]
        for row in metrics
    ]
    heads = ["Figure", "A", "B", "Change", "May be", "Verdict"]
    return table("All figures", heads, rows, texts=(0, 5))


def _words_list(metrics: Sequence[Mapping[str, Any]]) -> Html:
    sentences = [sentence for row in metrics if (sentence := facts.text(row.get("sentence")).strip())]
    return element("ul", *(element("li", each) for each in sentences), class_="words") if sentences else Html()


def _interval(row: Mapping[str, Any]) -> str:
    low, high = _bound(row.get("low")), _bound(row.get("high"))
    if low is None or high is None:
        return said(None)
    start, end = change(low).removesuffix(" %"), _words(row)(high)
    return f"{start} to {end}" if high < FARTHEST else f"{change(low)} to any"


def _bound(value: Any) -> float | None:
    """An end of an interval; one that lies beyond all sense lies far off."""
    if isinstance(value, float) and value > FARTHEST:
        return FARTHEST
    return facts.number(value)


def _words(row: Mapping[str, Any]) -> Callable[[float | None], str]:
    """Shares differ by points; everything else changes by a part of itself."""
    return points if row.get("unit") == "share" else change


def _sides(a: Mapping[str, Any], b: Mapping[str, Any]) -> Html:
    """All that is known of both, what differs marked."""
    of_a, of_b = dict(flattened(a)), dict(flattened(b))
    rows = []
    for name in dict.fromkeys([*of_a, *of_b]):
        left, right = of_a.get(name, said(None)), of_b.get(name, said(None))
        rows.append([name, left, element("b", "≠ ", right) if left != right else right])
    return table("", ["", "A", "B"], rows, texts=(0, 1, 2))


def _name(row: Mapping[str, Any]) -> str:
    return said(row.get("metric")).removesuffix("_sec").replace("_", " ")
