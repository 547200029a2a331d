"""The shell of a report's page: one sentence on top that says how it stands, plots, tables, the environment at the end.

The page needs no other file and runs no script: its policy allows its own style and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.markup import Html, element, escaped, joined
from comfyui_agent.lab.pages.plots import NARROW, WIDE
from comfyui_agent.lab.pages.quantities import said

MOST_ROWS = 400
MOST_KEPT = 14
"""A table of so many rows is not cut by the end of a sheet of paper."""
MARKS = {"good": "●", "bad": "△", "dim": "○"}


class Drawing(Protocol):
    """What can be shown as a figure: it states its finding, and draws itself at a width."""

    @property
    def title(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    def svg(self, width: int) -> Html: ...


@dataclass(frozen=True)
class Page:
    """A page before it is written. `json_name` is the file beside it that has all numbers."""

    kind: str
    title: str
    stands: Html
    subtitle: str
    body: Sequence[Html]
    environment: Mapping[str, Any]
    json_name: str = ""

    def text(self) -> str:
        """The whole page."""
        style = _asset("css")
        parts = {
            "policy": _policy(style),
            "style": Html(style),
            "kind": self.kind,
            "title": self.title,
            "stands": self.stands,
            "subtitle": self.subtitle,
            "body": Html("\n".join(piece for piece in self.body if piece)),
            "environment": _environment(self.environment),
            "source": _source(self.environment, self.json_name),
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda found: escaped(parts[found[1]]), _asset("html"))


def verdict(tone: str, word: str) -> Html:
    """A word with its mark: ● good, △ bad, ○ neither."""
    return element("span", element("span", MARKS[tone], class_=f"mark {tone}"), " ", word, class_="verdict")


def section(heading: str, *content: str) -> Html:
    """A part of the page with its heading; nothing at all if there is nothing in it."""
    shown = [piece for piece in content if piece]
    return element("section", element("h2", heading), *shown) if shown else Html()


def paragraph(text: str) -> Html:
    return element("p", text) if text else Html()


def figure(drawing: Drawing | None) -> Html:
    """A plot with its finding above and what it shows below; drawn for paper and for phones."""
    if drawing is None:
        return Html()
    heading = element("figcaption", element("h3", drawing.title))
    return element("figure", heading, drawing.svg(WIDE), drawing.svg(NARROW), element("p", drawing.sentence))


def notices(sentences: Sequence[str]) -> Html:
    """What must be known before anything else is read."""
    return element("ul", *(element("li", each) for each in sentences), class_="notices") if sentences else Html()


@dataclass(frozen=True)
class Tile:
    """A figure that matters, with what it should be."""

    name: str
    value: str
    below: Html | str = ""


def tiles(shown: Sequence[Tile]) -> Html:
    """The figures that matter, side by side."""
    return element("dl", *map(_tile, shown), class_="tiles") if shown else Html()


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[int] = (0,)) -> Html:
    """A table; the columns whose numbers are in `texts` hold words, the others figures. Nothing if it has no rows."""
    if not rows:
        return Html()
    heads = (element("th", name, scope="col", class_=_kind(at, texts)) for at, name in enumerate(columns))
    lines = (
        element("tr", *(element("td", cell, class_=_kind(at, texts)) for at, cell in enumerate(row))) for row in rows
    )
    inside = [element("caption", caption)] if caption else []
    head, body = element("thead", element("tr", *heads)), element("tbody", *lines)
    shown = element("table", *inside, head, body)
    kind = "scroller keep" if len(rows) <= MOST_KEPT else "scroller"
    return element("div", shown, class_=kind, tabindex="0", role="region", aria_label=caption or columns[0])


def _tile(shown: Tile) -> Html:
    below = element("small", shown.below) if shown.below else ""
    digits, space, unit = shown.value.partition(" ")
    has_unit = bool(unit) and not any(letter.isdigit() for letter in unit)
    value = joined(digits, space, element("span", unit, class_="unit")) if has_unit else joined(shown.value)
    return element("div", element("dt", shown.name), element("dd", value, below))


def _kind(at: int, texts: Sequence[int]) -> str:
    return "text" if at in texts else "figure"


def flattened(facts_of: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as pairs of names and texts; samples over time stay in the JSON file."""
    rows: list[tuple[str, str]] = []
    for name, value in facts_of.items():
        if name != "gpu_trace":
            _flatten(facts.text(name), value, rows, 4)
    return rows[:MOST_ROWS]


def _environment(environment: Mapping[str, Any]) -> Html:
    """All that is known of where it was measured, folded."""
    rows = flattened(environment)
    if not rows:
        return Html()
    lines = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows]
    inside = element("table", element("tbody", *lines))
    return element("details", element("summary", "Where and how this was measured"), inside)


def _flatten(name: str, value: Any, rows: list[tuple[str, str]], depth: int) -> None:
    name = name.replace("_", " ")
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            _flatten(f"{name} · {key}", inner, rows, depth - 1)
    elif isinstance(value, (list, tuple)) and depth and any(isinstance(item, (Mapping, list)) for item in value):
        for number, inner in enumerate(value, start=1):
            _flatten(f"{name} {number}" if len(value) > 1 else name, inner, rows, depth - 1)
    else:
        rows.append((name, ", ".join(facts.texts(value)) or said(value)))


def _source(environment: Mapping[str, Any], json_name: str) -> str:
    maker = f"Made by E3 {facts.text(environment.get('e3'))}".strip() + "."
    return f"{maker} All numbers of this page are in {json_name}, beside it." if json_name else maker


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _asset(kind: str) -> str:
    return resources.files(__package__).joinpath(f"page.{kind}").read_text(encoding="utf-8")
