"""From a report to its page. A page needs no other file and runs no script; its policy allows its own style alone."""

from __future__ import annotations

import base64
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined
from markupsafe import Markup

from comfyui_agent.domain.texts import counted, printable, whole
from comfyui_agent.lab import quantities
from comfyui_agent.lab.pages.figures import MOST_DRAWN
from comfyui_agent.lab.quantities import DASH

LONGEST_TEXT = 2_000
MOST_ROWS = 400
DEEPEST = 4


@dataclass(frozen=True)
class Mark:
    """A word with its mark: ● good, △ bad, ○ dim."""

    tone: str
    word: str


@cache
def templates() -> Templates:
    made = Templates(
        loader=PackageLoader("comfyui_agent.lab.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_shown,
        auto_reload=False,
    )
    made.filters |= dict(inspect.getmembers(quantities, inspect.isfunction))
    made.filters |= {"counted": counted, "flattened": flattened, "split_unit": split_unit}
    made.filters["numbered"] = lambda rows: list(enumerate(rows, start=1))
    made.globals |= {"DASH": DASH, "MOST_DRAWN": MOST_DRAWN}
    return made


def render(template: str, **context: Any) -> str:
    """A page as text. Every text of a report is escaped."""
    style = templates().get_template("page.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return templates().get_template(template).render(style=Markup(style), digest=digest, **context)  # noqa: S704 - ours


def split_unit(value: str) -> tuple[str, str]:
    """A quantity as its number and its unit. `12 min 5 s` stays in one piece."""
    digits, _, unit = value.partition(" ")
    return (value, "") if any(letter.isdigit() for letter in unit) else (digits, unit)


def flattened(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as names and texts. Samples over time stay in the JSON file."""
    rows = [row for name, value in facts.items() if name != "gpu_trace" for row in _flatten(name, value, DEEPEST)]
    return rows[:MOST_ROWS]


def _flatten(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    name = name.replace("_", " ")
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            yield from _flatten(f"{name} · {key}", inner, depth - 1)
    elif isinstance(value, list) and depth and any(isinstance(item, (dict, list)) for item in value):
        for number, inner in enumerate(value, start=1):
            yield from _flatten(f"{name} {number}" if len(value) > 1 else name, inner, depth - 1)
    else:
        texts = map(_text, value if isinstance(value, list) else [value])
        yield name, ", ".join(text for text in texts if text.strip()) or DASH


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, (str, int)) else ""


def _shown(value: Any) -> Any:
    """A text of a report cut to a sane length, with control characters made visible."""
    return printable(whole(value, LONGEST_TEXT)) if isinstance(value, str) and not isinstance(value, Markup) else value
